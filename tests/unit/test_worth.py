"""What heard windows are worth, and the document that says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engine import Heard, Utterance
from pipeline.recording import Channel, Lengths, Piece, Plan, Window
from pipeline.transcript.document import Spoken, compose
from pipeline.transcript.worth import END_MISSING, told_doubts, transcribed_s

NOBODY = "perhaps nobody speaks"
REPEATS = "words repeat"


def window(
    index: int, *, channel: int = 0, speech_s: float = 10.0, overlap_s: float = 0.0
) -> Window:
    return Window(index, channel, 0, 480_000, (Piece(0.0, index * 10.0, speech_s),), overlap_s)


def plan(*windows: Window, channels: tuple[str, ...] = ("mono",)) -> Plan:
    speech_s = sum(window.speech_s for window in windows)
    return Plan(60.0, speech_s, channels, "as it is", windows)


def heard(text: str = "Hello.", doubt: str | None = None, finish: str = "stop") -> Heard:
    return Heard((Utterance(0.0, 1.0, text),), "en", 9, -0.1, finish, 0.1, doubt=doubt)


@pytest.mark.parametrize(
    ("answers", "seconds"),
    [
        pytest.param([heard(), heard()], 20.0, id="all of it"),
        pytest.param([heard(), None], 10.0, id="not heard yet"),
        pytest.param([heard(), heard(doubt=NOBODY)], 10.0, id="in doubt"),
        pytest.param([heard(), heard(finish="length")], 10.0, id="cut off"),
        pytest.param([heard(), heard("  ")], 10.0, id="no words"),
        pytest.param([None, None], 0.0, id="nothing"),
    ],
)
def test_speech_is_transcribed_that_was_heard_to_its_end_with_words_nobody_doubts(
    answers: list[Heard | None], seconds: float
) -> None:
    said = {n: answer for n, answer in enumerate(answers) if answer}
    assert transcribed_s(plan(window(0), window(1)), said) == seconds


@pytest.mark.parametrize(
    ("sound", "seconds"),
    [
        pytest.param({0, 1, 2}, 26.0, id="10, and 8 and 8 beside what is shared"),
        pytest.param({1, 2}, 18.0, id="what the first shares is in the second"),
        pytest.param({0, 2}, 20.0, id="what the second shares with the third is in the third"),
    ],
)
def test_what_two_windows_share_counts_once(sound: set[int], seconds: float) -> None:
    windows = [window(n, overlap_s=2.0 if n else 0.0) for n in range(3)]
    assert transcribed_s(plan(*windows), {n: heard() for n in sound}) == seconds


def test_windows_share_nothing_with_those_of_the_other_side() -> None:
    windows = [window(0), window(1, channel=1), window(2, overlap_s=2.0)]
    both = plan(*windows, channels=("left", "right"))
    assert transcribed_s(both, {n: heard() for n in range(3)}) == 28.0


def test_windows_cut_at_whole_samples_are_no_more_than_the_speech_they_were_cut_of() -> None:
    cut = plan(window(0, speech_s=10.0004), window(1, speech_s=10.0004))
    assert transcribed_s(replace(cut, speech_s=20.0), {0: heard(), 1: heard()}) == 20.0


@given(st.lists(st.tuples(st.floats(0, 30), st.floats(0, 5), st.booleans()), max_size=20))
def test_never_more_is_transcribed_than_was_said_nor_less_than_nothing(
    given_: list[tuple[float, float, bool]],
) -> None:
    windows = [window(n, speech_s=s, overlap_s=o) for n, (s, o, _) in enumerate(given_)]
    said = {n: heard() for n, (_, _, sound) in enumerate(given_) if sound}
    found = transcribed_s(plan(*windows), said)
    assert 0 <= found <= sum(w.speech_s for w in windows) + 0.001


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        pytest.param([heard(), heard()], None, id="no doubt"),
        pytest.param([], None, id="nothing heard"),
        pytest.param(
            [heard(), heard(doubt=NOBODY)],
            "1 of 2 windows is doubtful: perhaps nobody speaks (1)",
            id="one",
        ),
        pytest.param(
            [heard(doubt=REPEATS), *[heard(doubt=NOBODY)] * 2, *[heard()] * 37],
            "3 of 40 windows are doubtful: perhaps nobody speaks (2), words repeat (1)",
            id="the most frequent first",
        ),
        pytest.param(
            [heard(finish="length")], f"1 of 1 windows is doubtful: {END_MISSING} (1)", id="cut off"
        ),
        pytest.param(
            [heard(doubt=letter) for letter in "fedcba"],
            "6 of 6 windows are doubtful: a (1), b (1), c (1), d (1), other reasons (2)",
            id="many reasons",
        ),
    ],
)
def test_doubts_are_told_in_one_sentence(answers: list[Heard], told: str | None) -> None:
    assert told_doubts(dict(enumerate(answers))) == told


def test_a_document_says_which_channels_were_heard_in_which_language_and_how_long_all_is() -> None:
    call = plan(window(0), window(1, channel=1), channels=("left", "right"))
    said = {0: heard("Grüße."), 1: heard("Hi.", doubt=NOBODY)}
    made = compose(
        "id", call, said, Spoken("de", ["de", "en"]),
        probed_s=61.0, options={"speakers": ["agent", "customer"]}, provenance={"model": "m"},
    )  # fmt: skip
    assert made.channels == (Channel("left", "agent", "de"), Channel("right", "customer", "en"))
    assert (made.channel_reason, made.speakers_separated) == ("as it is", True)
    assert made.lengths == Lengths(61.0, 60.0, 20.0, 10.0)
    assert (made.language, made.text, made.no_speech) == ("de", "Grüße. Hi.", False)
    assert [segment.doubt for segment in made.segments] == [None, NOBODY]


def test_on_one_channel_speakers_are_not_told_apart_and_the_document_says_so() -> None:
    made = compose(
        "id", plan(window(0)), {0: heard()}, Spoken("en"),
        probed_s=None, options={"speakers": ["agent", "customer"]}, provenance={},
    )  # fmt: skip
    assert not made.speakers_separated
    assert made.channels == (Channel("mono", None, "en"),)
    assert made.segments[0].speaker is None


def test_a_plan_without_windows_is_a_recording_in_which_nobody_speaks() -> None:
    silent = Plan(4.0, 0.0, ("mono",), "all channels are silent", ())
    made = compose("id", silent, {}, Spoken("und"), probed_s=4.0, options={}, provenance={})
    assert made.no_speech
    assert made.lengths == Lengths(4.0, 4.0, 0.0, 0.0)
    assert made.channels == (Channel("mono", None, "und"),)
    assert made.text == ""


def test_words_that_are_all_in_doubt_are_not_silence() -> None:
    made = compose(
        "id", plan(window(0)), {0: heard(doubt=NOBODY)}, Spoken("en"),
        probed_s=None, options={}, provenance={},
    )  # fmt: skip
    assert not made.no_speech
    assert made.lengths
    assert made.lengths.transcribed_s == 0


def test_languages_of_another_plan_are_not_put_on_these_channels() -> None:
    made = compose(
        "id", plan(window(0)), {0: heard()}, Spoken("de", ["de", "en"]),
        probed_s=None, options={}, provenance={},
    )  # fmt: skip
    assert made.channels == (Channel("mono", None, "de"),)
