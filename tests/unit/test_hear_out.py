"""What Whisper leaves out at a window's end is heard once more, and only that.

The engine here says what it is told: a real one stops early when it likes.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from pipeline.engine import Heard, Prepared, Utterance
from pipeline.recording import SAMPLE_RATE_HZ, Piece, Plan, Window
from pipeline.steps.hear import hear_out
from pipeline.transcript.doubts import FEW
from workers.echo_engine import EchoEngine

PIECES = (Piece(0.0, 5.0, 10.0), Piece(10.3, 30.0, 8.0), Piece(18.6, 60.0, 4.0))
WINDOW = Window(0, 0, 0, round(22.6 * SAMPLE_RATE_HZ), PIECES)


class Told(EchoEngine):
    """Gives the answers it was told, in turn, and notes what it was asked to hear."""

    def __init__(self, *answers: Heard) -> None:
        super().__init__()
        self.answers = list(answers)
        self.asked_s: list[float] = []
        self.vocabularies: list[str] = []

    async def transcribe(self, window: Prepared, *, temperature: float = 0.0) -> Heard:
        self.asked_s.append(round(window.length_s, 2))
        self.vocabularies.append(window.vocabulary)
        return self.answers.pop(0)


def heard(*said: tuple[float, float, str], **other: Any) -> Heard:
    # of an engine that does not tell how sure it is no words are missed: texts here are short
    answer = Heard(tuple(Utterance(*s) for s in said), "en", 10, None, "stop", 0.5)
    return replace(answer, **other)


def ask(engine: Told, shared_s: float = 0.0, vocabulary: str = "") -> Heard:
    async def run() -> Heard:
        pcm = bytes(2 * WINDOW.sample_count)
        await engine.start()
        prepared = await engine.prepare(pcm, language="en", vocabulary=vocabulary)
        return await hear_out(engine, prepared, WINDOW, shared_s)

    return asyncio.run(run())


def test_a_window_heard_to_its_end_is_heard_once() -> None:
    engine = Told(heard((0.0, 22.4, "all of it")))
    assert ask(engine).text == "all of it"
    assert engine.asked_s == [22.6]


def test_the_piece_that_was_left_out_is_heard_alone() -> None:
    engine = Told(heard((0.0, 18.9, "most of it.")), heard((0.0, 3.8, "The rest."), tokens=4))
    answer = ask(engine, vocabulary="Fairscribe")
    assert engine.asked_s == [22.6, 4.0]  # from 18.6, where the piece begins: times are late
    assert engine.vocabularies == ["Fairscribe"] * 2
    assert [(u.start_s, u.end_s, u.text) for u in answer.utterances] == [
        (0.0, 18.6, "most of it."),
        (18.6, pytest.approx(22.4), "The rest."),
    ]
    assert (answer.tokens, answer.busy_s) == (14, 1.0)


def test_all_pieces_that_were_left_out_are_heard() -> None:
    engine = Told(heard((0.0, 10.0, "little.")), heard((0.0, 12.0, "Much.")))
    assert ask(engine).text == "little. Much."
    assert engine.asked_s == [22.6, 12.3]


def test_where_it_stopped_in_the_middle_of_a_piece_it_goes_on_there() -> None:
    engine = Told(heard((0.0, 14.0, "half.")), heard((0.0, 8.0, "The other half.")))
    assert ask(engine).text == "half. The other half."
    assert engine.asked_s == [22.6, 8.6]


def test_what_the_next_window_hears_too_is_not_heard_again() -> None:
    engine = Told(heard((0.0, 18.9, "most of it.")))
    assert ask(engine, shared_s=4.0).text == "most of it."
    assert engine.asked_s == [22.6]


@pytest.mark.parametrize(
    "rest", [heard((0.0, 3.0, "La la."), doubt="music"), heard((0.0, 3.0, "a"), finish="length")]
)
def test_words_that_are_doubted_are_left_out_and_their_cost_is_counted(rest: Heard) -> None:
    # a stuck answer is tried again, and stays stuck
    engine = Told(heard((0.0, 18.9, "most of it.")), rest, rest, rest)
    answer = ask(engine)
    assert (answer.text, answer.doubt, answer.finish) == ("most of it.", None, "stop")
    assert answer.tokens >= 20


@pytest.mark.parametrize("answer", [heard(), heard((0.0, 5.0, "a"), doubt="noise")])
def test_where_nothing_is_heard_or_believed_nothing_is_heard_again(answer: Heard) -> None:
    engine = Told(answer)
    assert ask(engine) == answer


def test_words_that_were_missing_at_the_end_and_then_heard_leave_no_doubt() -> None:
    # Given so few words for 22 s of speech that more must have been said
    few = heard((0.0, 10.0, "It was like this."), mean_logprob=-0.2)
    rest = heard(
        (0.0, 12.0, "First I called and nobody was there at all, and then I wrote."),
        mean_logprob=-0.2,
    )
    alone = heard((0.0, 12.0, "Yes."), mean_logprob=-0.2)
    # When what stands after the last time is heard, the doubt goes only with the lack of words
    assert ask(Told(few, few, rest)).doubt is None
    assert ask(Told(few, few, rest)).text.endswith("and then I wrote.")
    still = ask(Told(few, few, alone, alone))
    assert (still.text, still.doubt) == ("It was like this.", FEW)


def test_a_plan_knows_what_a_window_shares_with_the_next_of_its_channel() -> None:
    windows = [
        Window(0, 0, 0, 16_000, PIECES),
        Window(1, 1, 0, 16_000, PIECES),
        Window(2, 0, 0, 16_000, PIECES, overlap_s=3.5),
    ]
    plan = Plan(60.0, 10.0, ("left", "right"), "", tuple(windows))
    assert [plan.shared_s(window) for window in windows] == [3.5, 0.0, 0.0]
