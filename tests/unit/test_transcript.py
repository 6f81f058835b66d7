"""From heard windows to a transcript: true times, sides of a call, nothing lost on the way."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.engine import Heard, Utterance
from pipeline.intake.speech import PAD_S
from pipeline.recording import SAMPLE_RATE_HZ, Piece, Plan, Window
from pipeline.transcript.merge import merge
from pipeline.transcript.turns import BREATH_S, turns


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
        (0.3, "left", "Thank"),  # each begins and ends with the speech in its piece
        (3.8, "right", "My"),
        (9.9, "left", "Have"),
        (13.3, "right", "Yes,"),
        (17.7, "left", "I"),
    ]
    assert [s.end_s for s in segments] == [2.9, 9.0, 12.4, 16.7, 21.4]


def texts(*said: tuple[float, float, str]) -> list[str]:
    return [part.text for part in turns([Utterance(*s) for s in said], AGENT)]


def test_a_sentence_that_runs_over_a_pause_is_not_cut() -> None:
    said = "I wanted to say that there is no end of a sentence anywhere near"
    (part,) = turns([Utterance(0.0, 10.6, said)], AGENT)
    assert part == Utterance(0.2, 10.4, said, None)


def test_a_sentence_end_far_from_the_pause_is_not_taken_for_it() -> None:
    said = "Yes. " + "word " * 39 + "word"
    assert texts((0.0, 10.6, said)) == [said]


def test_sentences_said_in_one_breath_stay_together() -> None:
    one_piece = window(0, 0, (0.0, 5.0, 10.0))
    said = Utterance(0.0, 10.0, "I ordered a table. It is black. I wanted a white one.")
    assert [u.text for u in turns([said], one_piece)] == [said.text]


def test_times_of_whisper_that_are_late_are_moved_to_where_speech_begins() -> None:
    parts = turns(
        [Utterance(0.0, 3.6, "How can I help you?"), Utterance(3.6, 6.9, "Hello there?")],
        window(0, 0, (0.0, 1.0, 3.0), (3.3, 9.0, 3.4)),
    )
    assert [(u.start_s, u.end_s) for u in parts] == [(0.2, 2.8), (3.5, 6.5)]


def test_whisper_s_own_ends_inside_a_piece_are_kept() -> None:
    said = [
        Utterance(0.0, 4.0, "How can I help you?"),
        Utterance(4.0, 9.9, "Have you tried again?"),
    ]
    parts = turns(said, window(0, 0, (0.0, 1.0, 10.0)))
    assert [(u.start_s, u.end_s) for u in parts] == [(0.2, 4.0), (4.0, 9.8)]


def test_pieces_after_the_last_word_heard_get_none() -> None:
    parts = turns([Utterance(0.0, 3.2, "How can I help you today?")], AGENT)
    assert [(u.start_s, u.end_s) for u in parts] == [(0.2, 2.8)]


def test_a_window_that_goes_on_in_the_middle_of_speech_begins_where_its_words_do() -> None:
    cut = replace(window(1, 0, (0.0, 5.0, 20.0)), overlap_s=3.0)
    (part,) = turns([Utterance(1.5, 20.0, "and so on")], cut)
    assert part.start_s == 1.5


def test_a_comma_divides_where_no_sentence_ends() -> None:
    said = (
        0.0,
        10.6,
        "I sent the form back, I was waiting for three weeks, and then nobody called me again",
    )
    assert len(texts(said)) == 3


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("It costs 12.5 and 1,000 or 3:30 of it", 1),  # no end within a number
        ("今日は東京に行きます。明日は大阪で会議です。また電話します", 3),
        ("मैं कल दिल्ली जाऊंगा। आप कब आएंगे मुझे बताइए। फिर मिलेंगे कल सुबह", 3),
    ],
)
def test_sentences_end_as_their_script_has_it(text: str, parts: int) -> None:
    assert len(texts((0.0, 10.6, text))) == parts


def test_the_pause_kept_around_speech_is_the_one_the_survey_keeps() -> None:
    assert BREATH_S == PAD_S


@st.composite
def windows(draw: st.DrawFn) -> Window:
    at_s, true_s, pieces = 0.0, 0.0, []
    for _ in range(draw(st.integers(1, 8))):
        length_s = draw(st.floats(0.05, 6.0))
        true_s += draw(st.floats(0.0, 20.0))
        pieces.append((at_s, true_s, length_s))
        at_s, true_s = at_s + length_s + 0.3, true_s + length_s
    shared_s = draw(st.sampled_from([0.0, 0.0, 3.0]))
    return replace(window(0, 0, *pieces), overlap_s=shared_s)


@st.composite
def said_in(draw: st.DrawFn, window: Window) -> list[Utterance]:
    times = sorted(draw(st.lists(st.floats(0, window.length_s), min_size=2, max_size=8)))
    text = st.text(alphabet="ab ,.?! é。", max_size=60)
    return [Utterance(a, b, draw(text)) for a, b in itertools.pairwise(times)]


@settings(deadline=None)
@given(st.data())
def test_dividing_loses_and_doubles_nothing_and_keeps_time_in_order(data: st.DataObject) -> None:
    window = data.draw(windows())
    said = data.draw(said_in(window))
    parts = turns(said, window)
    assert "".join("".join(p.text for p in parts).split()) == "".join(
        "".join(u.text for u in said).split()
    )
    times = [t for p in parts for t in (p.start_s, p.end_s)]
    assert times == sorted(times)
    assert all(0.0 <= t <= window.length_s for t in times)


@settings(deadline=None)
@given(st.data(), st.floats(0.0, 60.0))
def test_segments_of_a_channel_never_overlap_nor_leave_the_recording(
    data: st.DataObject, duration_s: float
) -> None:
    window = data.draw(windows())
    said = Heard(tuple(data.draw(said_in(window))), "en", 1, None, "stop", 0.1)
    segments = merge(replace(plan(window), duration_s=duration_s), {0: said})
    times = [t for s in segments for t in (s.start_s, s.end_s)]
    assert times == sorted(times)
    assert all(0.0 <= t <= duration_s for t in times)


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
