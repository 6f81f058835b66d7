"""Which answers are believed, doubted, asked for again and dropped."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engine import Heard, Utterance
from pipeline.transcript.doubts import (
    END_MISSING,
    FEW,
    NOBODY,
    NOTE,
    PHANTOM,
    REPEATS,
    TOO_FAST,
    UNSURE,
    echoes,
    judge,
    settle,
)
from pipeline.transcript.phantoms import COURTESIES, is_credit, is_phantom, only_notes

SAID = Heard(
    (Utterance(0.0, 3.0, "I would like to close my account."),), "en", 12, -0.3, "stop", 0.1
)
SAID = replace(SAID, no_speech_prob=0.02)


def said(text: str, **numbers: object) -> Heard:
    return replace(SAID, utterances=(Utterance(0.0, 3.0, text),), **numbers)  # type: ignore[arg-type]


def test_words_nothing_speaks_against_are_believed() -> None:
    assert judge(SAID, 3.0) == judge(SAID, 8.0)
    assert (judge(SAID, 3.0).outcome, judge(SAID, 3.0).doubt) == ("keep", None)


@pytest.mark.parametrize(
    ("heard", "speech_s", "outcome", "doubt"),
    [
        # both of Whisper's signs: removed; one of them: kept, with the reason
        (said("Thank you.", no_speech_prob=0.82, mean_logprob=-1.52), 5.0, "drop", NOBODY),
        (said("I am here.", no_speech_prob=0.82, mean_logprob=-0.5), 1.0, "keep", NOBODY),
        (said("like a nice speech", mean_logprob=-1.19), 2.4, "keep", UNSURE),
        # a loop is asked again, however likely silence is: the words may have been said
        (said("no " * 8, finish="repetition"), 6.0, "again", REPEATS),
        (said("no " * 8, finish="repetition", no_speech_prob=0.9), 6.0, "again", REPEATS),
        (said("I am going there. " * 9), 30.0, "again", REPEATS),
        (said("hello " * 9), 9.0, "again", REPEATS),
        # no phrase more than eight times in a row, yet the same over and over
        (said("I am going to do that. I am going to do this. " * 6), 30.0, "again", REPEATS),
        (said("so it goes on and", finish="length"), 3.0, "again", END_MISSING),
        # 35 letters in 0.3 s of speech: 20 + 30 * 0.3 = 29 at most
        (said("The difference is that the two are not connected."), 0.3, "again", TOO_FAST),
        (said("ご視聴ありがとうございましたまたおあいしましょう"), 1.0, "again", TOO_FAST),
        # 10 s of speech, 5 letters
        (said("I am."), 10.0, "keep", FEW),
        (said("I am."), 2.0, "keep", None),
        (said("[BLANK_AUDIO]"), 3.0, "drop", NOTE),
        (said("(wind howling) ♪♪"), 3.0, "drop", NOTE),
        (said(". . ."), 3.0, "drop", None),
        (said("... ♪"), 10.0, "drop", FEW),
        (replace(SAID, utterances=()), 3.0, "keep", None),
        (replace(SAID, utterances=()), 10.0, "keep", FEW),
        (replace(SAID, utterances=(), no_speech_prob=0.9), 10.0, "keep", None),
    ],
)
def test_each_sign_has_its_outcome(
    heard: Heard, speech_s: float, outcome: str, doubt: str | None
) -> None:
    verdict = judge(heard, speech_s)
    assert (verdict.outcome, verdict.doubt) == (outcome, doubt)


@pytest.mark.parametrize("courtesy", sorted(COURTESIES))
def test_a_caller_who_says_thank_you_keeps_it(courtesy: str) -> None:
    # as tiny.en and base hear it said: no_speech at most 0.4, mean logprob about -0.8
    heard = said(courtesy, no_speech_prob=0.4, mean_logprob=-0.8)
    assert judge(heard, 1.0).outcome == "keep"
    assert judge(heard, 1.0).doubt is None


def test_the_same_thank_you_out_of_silence_is_removed() -> None:
    heard = said("Thank you.", no_speech_prob=0.8, mean_logprob=-0.7)
    assert judge(heard, 1.0).outcome == "drop"
    assert judge(heard, 1.0).doubt == PHANTOM


PHANTOMS = [
    "Subtitles by the Amara.org community",
    "Thank you for watching!",
    "Thanks for watching.",
    "Untertitel im Auftrag des ZDF für funk, 2017",
    "Untertitelung des ZDF, 2020",
    "SWR 2020",
    "Vielen Dank fürs Zuschauen!",
    "Sous-titres réalisés par la communauté d'Amara.org",
    "Sous-titrage Société Radio-Canada",
    "Sottotitoli creati dalla comunità Amara.org",
    "Sottotitoli e revisione a cura di QTSS",
    "Subtítulos realizados por la comunidad de Amara.org",
    "¡Suscríbete al canal!",
    "Legendas pela comunidade Amara.org",
    "Ondertitels ingediend door de Amara.org gemeenschap",
    "Teksting av Nicolai Winther",
    "Danske tekster af Nicolai Winther",
    "Napisy stworzone przez społeczność Amara.org",
    "Titulky vytvořil JohnyX",
    "Субтитры сделал DimaTorzok",
    "Редактор субтитров А.Семкин Корректор А.Егорова",
    "Продолжение следует...",
    "Υπότιτλοι AUTHORWAVE",
    "ترجمة نانسي قنقر",
    "Altyazı M.K.",
    "Abone ol!",
    "Bu dizinin betimlemesi TRT tarafından Sesli Betimleme Derneği'ne yaptırılmıştır.",
    "Bu videoyu izlediğiniz için teşekkürler.",
    "字幕由Amara.org社区提供",
    "请不吝点赞 订阅 转发 打赏支持明镜与点点栏目",
    "ご視聴ありがとうございました",
    "チャンネル登録をお願いします",
    "MBC 뉴스 이재경입니다.",
    "시청해 주셔서 감사합니다.",
    "한글자막 by 한효정",
]


@pytest.mark.parametrize("phrase", PHANTOMS)
def test_a_well_known_phantom_is_never_believed(phrase: str) -> None:
    assert is_credit(phrase)
    sure = judge(said(phrase, no_speech_prob=0.1, mean_logprob=-0.1), 5.0)
    assert (sure.outcome, sure.doubt) == ("keep", PHANTOM)
    weak = judge(said(phrase, no_speech_prob=0.35, mean_logprob=-0.7), 5.0)
    assert (weak.outcome, weak.doubt) == ("drop", PHANTOM)


@pytest.mark.parametrize(
    "sentence",
    [
        "Thank you for watching the account for us.",
        "I was watching a video with subtitles by the window.",
        "Is it translated by your office?",
        "Videoyu izleyemiyorum.",
        "Ich habe die Untertitel nicht gefunden.",
        "Can I subscribe to the paper again?",
        "Die ZDF Mediathek geht nicht.",
        "Merci d'avoir rappelé.",
        "Я не вижу субтитры.",
        "자막이 안 나와요.",
        "My channel is 20.",
    ],
)
def test_a_sentence_about_films_is_no_phantom(sentence: str) -> None:
    assert not is_phantom(sentence)
    assert judge(said(sentence, mean_logprob=-0.9), 4.0).doubt is None


def test_a_phantom_at_the_end_of_real_words_leaves_them_and_a_doubt() -> None:
    heard = replace(
        SAID, utterances=(*SAID.utterances, Utterance(3.0, 4.0, "Subtitles by the Amara.org"))
    )
    assert judge(heard, 4.0).outcome == "keep"
    assert judge(heard, 4.0).doubt == PHANTOM


def test_a_note_between_words_takes_no_words_away() -> None:
    assert not only_notes("The room (number two) is free.")
    assert judge(said("The room (number two) is free."), 3.0).doubt is None


def test_what_no_try_made_better_is_kept_with_the_reason_or_dropped_for_silence() -> None:
    stuck = said("no " * 8, finish="repetition")
    assert (settle(stuck).outcome, settle(stuck).doubt) == ("keep", REPEATS)
    nobody = replace(stuck, no_speech_prob=0.9, mean_logprob=-1.2)
    assert (settle(nobody).outcome, settle(nobody).doubt) == ("drop", NOBODY)
    fast = said("The difference is that the two are not connected.")
    assert settle(fast).doubt == TOO_FAST


@pytest.mark.parametrize(
    ("text", "vocabulary", "echo"),
    [
        ("Quantix, Velotron, Fairscribe.", "Quantix, Velotron, Fairscribe", True),
        ("velotron fairscribe", "Quantix, Velotron, Fairscribe", True),
        ("Fairscribe Fairscribe Fairscribe", "Fairscribe", True),
        ("Hello. One two three four five.", "zero one two three four five six", True),
        ("My Velotron came without a Quantix.", "Quantix, Velotron, Fairscribe", False),
        ("Quantix, Fairscribe", "Quantix, Velotron, Fairscribe", False),
        ("Hello.", "Quantix", False),
        ("", "Quantix", False),
        ("Quantix", "", False),
        ("...", "?!", False),
    ],
)
def test_an_echo_is_the_vocabulary_in_its_own_order(text: str, vocabulary: str, echo: bool) -> None:
    assert echoes(text, vocabulary) is echo


def test_an_engine_that_tells_nothing_is_doubted_for_loops_only() -> None:
    silent = said("echo 30.00 12345678", mean_logprob=None, no_speech_prob=None)
    assert judge(silent, 0.1).doubt is judge(silent, 30.0).doubt is None
    assert judge(replace(silent, finish="repetition"), 30.0).outcome == "again"


@given(
    st.lists(st.text(max_size=40), max_size=5),
    st.floats(0, 30),
    st.floats(0, 1),
    st.floats(-20, 0),
    st.sampled_from(["stop", "length", "repetition"]),
)
def test_every_answer_gets_a_verdict_and_words_go_only_with_a_reason(
    texts: list[str], speech_s: float, no_speech: float, logprob: float, finish: str
) -> None:
    heard = replace(
        SAID,
        utterances=tuple(Utterance(0.0, 1.0, text) for text in texts),
        no_speech_prob=no_speech,
        mean_logprob=logprob,
        finish=finish,  # type: ignore[arg-type]
    )
    for verdict in (judge(heard, speech_s), settle(heard)):
        if verdict.outcome == "drop" and any(c.isalnum() for c in heard.text):
            assert verdict.doubt
    echoes(heard.text, heard.text)
