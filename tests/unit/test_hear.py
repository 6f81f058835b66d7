"""A window is asked for again within its bound, and the most trustworthy answer is kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pipeline.engine import Heard, Prepared, Utterance
from pipeline.steps.hear import TRIES, hear
from pipeline.transcript.doubts import ECHO, FEW, NOBODY, REPEATS, UNSURE
from workers.echo_engine import EchoEngine

VOCABULARY = "Quantix, Velotron, Fairscribe"


def heard(text: str, **numbers: object) -> Heard:
    said = (Utterance(0.0, 3.0, text),) if text else ()
    answer = Heard(said, "en", 10, -0.3, "stop", 1.0, no_speech_prob=0.02)
    return replace(answer, **numbers)  # type: ignore[arg-type]


def stuck(text: str = "no " * 8, **numbers: object) -> Heard:
    return heard(text, finish="repetition", **numbers)


class Saying(EchoEngine):
    """Says what it is told to: by temperature, and by whether it knows a vocabulary."""

    def __init__(self, *told: Heard, untold: Heard | None = None) -> None:
        super().__init__(fixed_s=0.0, per_second_s=0.0)
        self.told, self.untold = list(told), untold
        self.asked: list[tuple[float, str]] = []

    async def transcribe(self, window: Prepared, *, temperature: float = 0.0) -> Heard:
        self.asked.append((temperature, window.vocabulary))
        if self.untold is not None and not window.vocabulary and not temperature:
            return self.untold
        at = {0.0: 0, 0.4: 1, 0.8: 2}[temperature]
        return replace(self.told[min(at, len(self.told) - 1)], temperature=temperature)

    def be_heard(self, speech_s: float = 3.0, vocabulary: str = "") -> Heard:
        async def story() -> Heard:
            await self.start()
            window = await self.prepare(bytes(96_000), language="en", vocabulary=vocabulary)
            return await hear(self, window, speech_s)

        return asyncio.run(story())


def test_a_believed_answer_is_asked_for_once() -> None:
    engine = Saying(heard("Good morning."))
    answer = engine.be_heard()
    assert (answer.text, answer.doubt, answer.tokens) == ("Good morning.", None, 10)
    assert engine.asked == [(0.0, "")]


def test_what_no_database_keeps_is_no_word() -> None:
    """A decoder of bytes can say the byte 0."""
    assert Saying(heard("Good\0 morning.\0")).be_heard().text == "Good morning."


def test_a_stuck_answer_gives_way_to_one_that_is_not() -> None:
    engine = Saying(stuck(), heard("No, no, no. That is not mine."))
    answer = engine.be_heard()
    assert answer.text == "No, no, no. That is not mine."
    assert (answer.temperature, answer.doubt) == (0.4, None)
    assert (answer.tokens, answer.busy_s) == (20, 2.0)


def test_a_window_that_stays_stuck_ends_after_its_tries_with_no_run_beyond_the_limit() -> None:
    engine = Saying(stuck("hello " * 400))
    answer = engine.be_heard(30.0)
    assert len(engine.asked) == TRIES == 3
    assert answer.text == " ".join(["hello"] * 8)
    assert (answer.doubt, answer.tokens) == (REPEATS, 30)


def test_a_likely_silence_does_not_keep_a_loop_from_being_tried_again() -> None:
    quiet = {"no_speech_prob": 0.9, "mean_logprob": -1.2}
    engine = Saying(stuck(**quiet), heard("Thank you for calling us.", no_speech_prob=0.9))
    answer = engine.be_heard()
    assert (answer.text, answer.doubt) == ("Thank you for calling us.", NOBODY)


def test_a_loop_out_of_silence_ends_without_words_and_says_why() -> None:
    engine = Saying(stuck(no_speech_prob=0.9, mean_logprob=-1.2))
    answer = engine.be_heard()
    assert (answer.utterances, answer.doubt) == ((), NOBODY)
    assert answer.tokens == 30


def test_noise_is_not_tried_again() -> None:
    engine = Saying(heard("Thank you.", no_speech_prob=0.9, mean_logprob=-1.5))
    answer = engine.be_heard()
    assert (answer.utterances, answer.doubt, len(engine.asked)) == ((), NOBODY, 1)


def test_an_unsure_answer_beats_a_loop_and_is_doubted() -> None:
    engine = Saying(stuck(mean_logprob=-0.2), heard("The bell is a bell.", mean_logprob=-1.7))
    assert engine.be_heard().doubt == UNSURE


def test_a_vocabulary_said_back_to_noise_is_removed() -> None:
    engine = Saying(heard("Quantix, Velotron."), untold=heard(""))
    answer = engine.be_heard(vocabulary=VOCABULARY)
    assert (answer.utterances, answer.doubt) == ((), ECHO)
    assert engine.asked == [(0.0, VOCABULARY), (0.0, "")]


def test_a_vocabulary_said_back_over_real_words_gives_way_to_them() -> None:
    engine = Saying(heard("Quantix, Velotron, Fairscribe."), untold=heard("I want to cancel."))
    answer = engine.be_heard(vocabulary=VOCABULARY)
    assert (answer.text, answer.doubt) == ("I want to cancel.", None)


def test_a_name_that_was_really_said_keeps_the_spelling_of_the_vocabulary() -> None:
    engine = Saying(heard("Fairscribe."), untold=heard("Fair scribe."))
    answer = engine.be_heard(vocabulary=VOCABULARY)
    assert (answer.text, answer.doubt) == ("Fairscribe.", None)


def test_words_that_end_early_under_a_vocabulary_are_heard_without_it() -> None:
    whole = "I am calling about the bill of last month, which is much too high."
    engine = Saying(heard("I am."), untold=heard(whole))
    assert engine.be_heard(10.0, VOCABULARY).text == whole


def test_a_loop_under_a_vocabulary_is_bounded_like_any_other() -> None:
    engine = Saying(stuck(), untold=stuck())
    answer = engine.be_heard(vocabulary=VOCABULARY)
    assert engine.asked == [(0.0, VOCABULARY), (0.0, ""), (0.4, "")]
    assert (answer.doubt, answer.tokens) == (REPEATS, 30)


@pytest.mark.parametrize("vocabulary", ["", VOCABULARY])
def test_a_window_without_words_stays_without(vocabulary: str) -> None:
    answer = Saying(heard("")).be_heard(vocabulary=vocabulary)
    assert (answer.utterances, answer.doubt) == ((), None)


BEFORE = heard("higher than the bill of the month before.", mean_logprob=-0.38)
"""For 18.6 s of speech, by tiny.en; at temperature 0.4 the same window has the words after it."""
ALL = heard(
    "Higher than the bill of the month before. Please bring your passport and a letter from your "
    "bank. Please keep the box. Because the driver will collect it on Friday.",
    mean_logprob=-0.30,
)


def test_a_window_that_stops_after_a_sentence_is_heard_once_more() -> None:
    engine = Saying(BEFORE, ALL)
    answer = engine.be_heard(18.6)
    assert (answer.text, answer.doubt, answer.tokens) == (ALL.text, None, 20)
    assert engine.asked == [(0.0, ""), (0.4, "")]


@pytest.mark.parametrize(
    "again",
    [BEFORE, replace(ALL, mean_logprob=-0.6), replace(ALL, no_speech_prob=0.7), stuck(), heard("")],
    ids=["no more", "less sure", "perhaps nobody", "a loop", "nothing"],
)
def test_few_words_stay_with_their_doubt_where_more_are_not_beyond_doubt(again: Heard) -> None:
    answer = Saying(BEFORE, again).be_heard(18.6)
    assert (answer.text, answer.doubt) == (BEFORE.text, FEW)


def test_few_words_under_a_vocabulary_are_tried_within_the_bound() -> None:
    engine = Saying(BEFORE)
    assert engine.be_heard(18.6, VOCABULARY).doubt == FEW
    assert len(engine.asked) == TRIES
