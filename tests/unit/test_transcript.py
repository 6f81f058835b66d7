"""From heard windows to a transcript: true times, sides of a call, nothing lost on the way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engine import Heard, Utterance
from pipeline.recording import SAMPLE_RATE_HZ, Piece, Plan, Window
from pipeline.transcript.merge import merge
from pipeline.transcript.turns import split_at_pauses


def window(index: int, channel: int, *pieces: tuple[float, float, float]) -> Window:
    end_s = pieces[-1][0] + pieces[-1][2]
    return Window(index, channel, 0, int(end_s * SAMPLE_RATE_HZ), tuple(Piece(*p) for p in pieces))


def heard(*said: tuple[float, float, str], logprob: float | None = -0.1) -> Heard:
    return Heard(tuple(Utterance(*s) for s in said), "en", 10, logprob, "stop", 0.1)


def plan(*windows: Window, channels: tuple[str, ...] = ("mono",)) -> Plan:
    return Plan(60.0, 10.0, channels, "", windows)


AGENT = window(0, 0, (0.0, 0.1, 3.0), (3.3, 9.7, 2.9), (6.5, 17.5, 4.1))
CUSTOMER = window(1, 1, (0.0, 3.6, 5.6), (5.9, 13.1, 3.8))
AGENT_TEXT = (
    "Thank you for calling. How can I help you today? Have you tried to turn the box off and on "
    "again? I will send an engineer to your house tomorrow between 8 and 10."
)
CUSTOMER_TEXT = (
    "My internet connection stopped working this morning and the red light is blinking. "
    "Yes, I did that two times but nothing has changed."
)


def test_two_sides_of_a_call_take_turns_although_each_was_heard_in_one_breath() -> None:
    segments = merge(
        plan(AGENT, CUSTOMER, channels=("left", "right")),
        {0: heard((0.0, 10.6, AGENT_TEXT)), 1: heard((0.0, 9.7, CUSTOMER_TEXT))},
    )
    assert [(s.start_s, s.speaker, s.text.split()[0]) for s in segments] == [
        (0.1, "left", "Thank"),
        (3.6, "right", "My"),
        (9.7, "left", "Have"),
        (13.1, "right", "Yes,"),
        (17.5, "left", "I"),
    ]
    assert [s.end_s for s in segments] == [3.1, 9.2, 12.6, 16.9, 21.6]


def test_a_sentence_that_runs_over_a_pause_is_not_cut() -> None:
    said = Utterance(0.0, 10.6, "I wanted to say that there is no end of a sentence anywhere near")
    assert split_at_pauses(said, AGENT) == [said]


def test_a_sentence_end_far_from_the_pause_is_not_taken_for_it() -> None:
    said = Utterance(0.0, 10.6, "Yes. " + "word " * 40)
    assert split_at_pauses(said, AGENT) == [said]


@given(st.text(alphabet="ab .?! é。", max_size=200), st.floats(0, 10.6), st.floats(0, 10.6))
def test_splitting_loses_and_doubles_nothing_and_keeps_time_in_order(
    text: str, one_s: float, other_s: float
) -> None:
    said = Utterance(min(one_s, other_s), max(one_s, other_s), text)
    parts = split_at_pauses(said, AGENT)
    assert "".join("".join(p.text for p in parts).split()) == "".join(text.split())
    assert (parts[0].start_s, parts[-1].end_s) == (said.start_s, said.end_s)
    times = [t for p in parts for t in (p.start_s, p.end_s)]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("at_s", "true_s"),
    [(0.0, 0.1), (2.9, 3.0), (3.1, 3.1), (3.3, 9.7), (6.5, 17.5), (99.0, 21.6), (-1.0, 0.1)],
)
def test_a_time_in_a_window_is_mapped_to_the_piece_it_lies_in(at_s: float, true_s: float) -> None:
    assert AGENT.true_time_s(at_s) == pytest.approx(true_s)


def test_mono_names_no_speaker_and_confidence_is_the_mean_probability() -> None:
    (segment,) = merge(plan(window(0, 0, (0.0, 2.0, 4.0))), {0: heard((0.5, 2.0, " Hi \n you "))})
    assert (segment.speaker, segment.text) == (None, "Hi you")
    assert (segment.start_s, segment.end_s) == (2.5, 4.0)
    assert segment.confidence == pytest.approx(0.9048)


def test_windows_without_words_or_not_heard_add_nothing() -> None:
    windows = [window(i, 0, (0.0, i * 10.0, 4.0)) for i in range(3)]
    assert merge(plan(*windows), {0: heard((0.0, 1.0, "  ")), 2: heard(logprob=None)}) == ()


def test_a_plan_reads_back_from_json_with_the_same_name() -> None:
    written = plan(AGENT, CUSTOMER, channels=("left", "right"))
    assert Plan.from_json(written.to_json()) == written
    assert Plan.from_json(written.to_json()).plan_hash == written.plan_hash
    assert plan(AGENT).plan_hash != written.plan_hash


def test_what_was_heard_reads_back_from_json() -> None:
    written = heard((0.0, 1.5, "Grüße, 世界"))
    assert Heard.from_json(written.to_json()) == written


@given(st.permutations(range(3)))
def test_the_order_in_which_windows_were_heard_is_nothing(order: list[int]) -> None:
    windows = [AGENT, CUSTOMER, window(2, 0, (0.0, 40.0, 5.0))]
    texts = {0: AGENT_TEXT, 1: CUSTOMER_TEXT, 2: "And good bye. Yes."}
    said = {n: heard((0.0, windows[n].length_s, texts[n])) for n in range(3)}
    call = plan(*windows, channels=("left", "right"))
    assert merge(call, {n: said[n] for n in order}) == merge(call, said)


@pytest.mark.parametrize(
    ("channels", "speakers", "named"),
    [
        (("left", "right"), None, ["left", "right"]),
        (("left", "right"), ["agent", "customer"], ["agent", "customer"]),
        (("mono",), ["agent", "customer"], [None]),  # two people, not told apart
        (("mono",), None, [None]),
        (("right",), ["agent", "customer"], ["customer"]),  # the left one was silent
        (("right",), None, [None]),
        (("channel 1", "channel 3"), None, ["channel 1", "channel 3"]),
        (("channel 1", "channel 3"), ["agent", "customer"], ["agent", "channel 3"]),
        (("channel 1", "channel 3"), ["agent", "customer", "boss"], ["agent", "boss"]),
        (("channel 8",), list("abcdefgh"), ["h"]),  # the others were silent
        (("left", "right"), ["agent", "customer", "boss"], ["agent", "customer"]),
    ],
)
def test_sides_are_named_as_the_sender_named_them(
    channels: tuple[str, ...], speakers: list[str] | None, named: list[str | None]
) -> None:
    windows = [window(n, n, (0.0, float(n), 1.0)) for n in range(len(channels))]
    said = {n: heard((0.0, 1.0, "Hello.")) for n in range(len(channels))}
    segments = merge(plan(*windows, channels=channels), said, speakers)
    assert [segment.speaker for segment in segments] == named
