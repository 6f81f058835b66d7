"""Rules of packing: nothing lost, nothing doubled but at cuts, every time maps back."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.recording import SAMPLE_RATE_HZ, Span, Window
from pipeline.scheduling.windows import (
    CUT_SEARCH_S,
    FILL_S,
    GAP_S,
    OVERLAP_S,
    PAUSE_SEARCH_S,
    SHORTEST_TAIL_S,
    Lull,
    plan_windows,
)


@st.composite
def channels(draw: st.DrawFn) -> list[list[Span]]:
    """Up to three channels of speech: pauses from none at all, spans up to three windows long."""
    sides = []
    for _ in range(draw(st.integers(0, 3))):
        at, spans = 0.0, []
        for _ in range(draw(st.integers(0, 12))):
            start = at + draw(st.floats(0.0, 40.0))
            at = start + draw(st.floats(0.0, 95.0))
            spans.append(Span(start, at))
        sides.append(spans)
    return sides


def in_samples(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE_HZ)


def joined(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in stretches:
        if found and start == found[-1][1]:
            start = found.pop()[0]
        if end > start:
            found.append((start, end))
    return found


def shared(window: Window) -> int:
    """Samples at its start that the window before it has too."""
    return in_samples(window.overlap_s)


def heard(windows: tuple[Window, ...], channel: int) -> list[tuple[int, int]]:
    """Stretches of a channel in some window, in samples, what was heard before left out."""
    pieces = []
    for window in (w for w in windows if w.channel == channel):
        skipped = shared(window)
        for piece in window.pieces:
            start = in_samples(piece.start_s)
            pieces.append((start + skipped, start + in_samples(piece.length_s)))
            skipped = 0
    return joined(pieces)


def wanted(spans: list[Span]) -> list[tuple[int, int]]:
    return joined([(in_samples(s.start_s), in_samples(s.end_s)) for s in spans])


Ears = Callable[[int, float, float], Lull]


@st.composite
def ears(draw: st.DrawFn) -> Ears:
    """Something that finds lulls anywhere, a pause or not, outside the range too."""
    chance = random.Random(draw(st.integers(0, 1 << 30)))
    pauses, beside_s = draw(st.floats(0.0, 1.0)), draw(st.sampled_from([0.0, 8.0]))

    def lull(_channel: int, from_s: float, to_s: float) -> Lull:
        at_s = chance.uniform(from_s - beside_s, to_s + beside_s)
        return Lull(at_s, pause=chance.random() < pauses)

    return lull


@given(channels(), ears())
def test_every_sample_of_speech_is_in_a_window_and_only_overlaps_are_in_two(
    sides: list[list[Span]], quietest: Ears
) -> None:
    windows = plan_windows(sides, quietest=quietest)
    assert all(0 < w.sample_count <= FILL_S * SAMPLE_RATE_HZ for w in windows)
    for channel, spans in enumerate(sides):
        assert heard(windows, channel) == wanted(spans)


@given(channels(), ears())
def test_an_overlap_is_the_end_of_the_window_before_and_no_third_one_has_it(
    sides: list[list[Span]], quietest: Ears
) -> None:
    windows = plan_windows(sides, quietest=quietest)
    for channel in range(len(sides)):
        mine = [w for w in windows if w.channel == channel]
        assert all(w.overlap_s == 0 for w in mine[:1])
        for before, after in itertools.pairwise(mine):
            if after.overlap_s:
                assert OVERLAP_S[0] - 1e-4 <= after.overlap_s <= OVERLAP_S[1] + 1e-4
                end = before.pieces[-1]
                ends = in_samples(end.start_s) + in_samples(end.length_s)
                first = after.pieces[0]
                assert in_samples(first.start_s) + shared(after) == ends
                assert in_samples(first.length_s) > shared(after)
                assert in_samples(end.length_s) >= shared(before) + shared(after)


@given(channels(), ears())
def test_without_overlaps_every_sample_is_in_one_window(
    sides: list[list[Span]], quietest: Ears
) -> None:
    windows = plan_windows(sides, quietest=quietest, overlapping=False)
    assert all(w.overlap_s == 0 for w in windows)
    for channel, spans in enumerate(sides):
        assert heard(windows, channel) == wanted(spans)


@given(channels())
def test_at_pauses_nothing_is_heard_twice(sides: list[list[Span]]) -> None:
    windows = plan_windows(sides, quietest=lambda _channel, _from_s, to_s: Lull(to_s, pause=True))
    assert all(w.overlap_s == 0 for w in windows)
    for channel, spans in enumerate(sides):
        assert heard(windows, channel) == wanted(spans)


@given(channels(), ears(), st.floats(18.5, 30.0))
def test_no_window_is_longer_than_its_limit(
    sides: list[list[Span]], quietest: Ears, limit_s: float
) -> None:
    windows = plan_windows(sides, limit_s, quietest=quietest)
    assert all(0 < w.sample_count <= round(limit_s * SAMPLE_RATE_HZ) for w in windows)


@given(channels())
def test_a_time_in_a_window_maps_back_to_where_it_was_taken_from(sides: list[list[Span]]) -> None:
    for window in plan_windows(sides):
        for piece in window.pieces:
            for share in (0.0, 0.25, 0.999):
                into_s = share * piece.length_s
                assert window.true_time_s(piece.at_s + into_s) == pytest.approx(
                    piece.start_s + into_s, abs=1e-6
                )


@given(channels())
def test_windows_lie_one_after_the_other_in_order_of_true_time(sides: list[list[Span]]) -> None:
    windows = plan_windows(sides)
    assert [w.index for w in windows] == list(range(len(windows)))
    starts = [w.pieces[0].start_s for w in windows]
    assert starts == sorted(starts)
    for before, after in itertools.pairwise(windows):
        assert after.first_sample == before.first_sample + before.sample_count
    assert all(w.first_sample == 0 for w in windows[:1])


@pytest.mark.parametrize(
    ("spans", "lengths_s"),
    [
        ([], []),
        ([Span(5.0, 5.0)], []),  # no length
        ([Span(0.0, 30.0)], [30.0]),  # exactly one window
        ([Span(0.0, 10.0), Span(60.0, 70.0)], [20.3]),  # 10 + 0.3 + 10
        ([Span(0.0, 14.85), Span(60.0, 74.85)], [30.0]),  # 14.85 + 0.3 + 14.85
        ([Span(0.0, 15.0), Span(60.0, 75.0)], [15.0, 15.0]),  # 30.3 does not fit
        ([Span(0.0, 70.0)], [30.0, 30.0, 10.0]),
        ([Span(0.0, 30.5)], [29.5, 1.0]),  # not 30 + a shred of 0.5
        ([Span(0.0, 40.0), Span(41.0, 51.0)], [30.0, 20.3]),  # what a cut left is packed on
    ],
)
def test_speech_is_packed_as_tight_as_whole_spans_allow(
    spans: list[Span], lengths_s: list[float]
) -> None:
    windows = plan_windows(
        [spans], 30.0, quietest=lambda _channel, _from_s, to_s: Lull(to_s, pause=True)
    )
    assert [w.length_s for w in windows] == pytest.approx(lengths_s)


def listening_to(*pauses_s: float) -> tuple[Ears, list[tuple[int, float, float]]]:
    """Ears that know these pauses, and what they are asked; quietest is a stretch's middle."""
    asked: list[tuple[int, float, float]] = []

    def lull(channel: int, from_s: float, to_s: float) -> Lull:
        asked.append((channel, from_s, to_s))
        at_s = next((p for p in pauses_s if from_s <= p <= to_s), None)
        return Lull((from_s + to_s) / 2, False) if at_s is None else Lull(at_s, True)

    return lull, asked


def test_a_long_span_is_cut_at_a_pause_near_the_end_of_its_window() -> None:
    ears, asked = listening_to(120.0, 127.25)
    first, second = plan_windows([[], [Span(100.0, 150.0)]], 30.0, quietest=ears)
    assert asked == [(1, 130.0 - CUT_SEARCH_S, 130.0)]
    assert first.length_s == 27.25
    assert (second.pieces[0].start_s, second.overlap_s) == (127.25, 0.0)


def test_a_pause_further_back_is_better_than_no_pause() -> None:
    ears, asked = listening_to(120.0)
    first, second = plan_windows([[Span(100.0, 140.0)]], 30.0, quietest=ears)
    assert asked[1] == (0, 130.0 - PAUSE_SEARCH_S, 130.0 - CUT_SEARCH_S)
    assert (first.length_s, second.pieces[0].start_s, second.overlap_s) == (20.0, 120.0, 0.0)


def test_where_nobody_pauses_two_windows_hear_the_seconds_before_the_cut() -> None:
    ears, _ = listening_to()
    first, second = plan_windows([[Span(100.0, 150.0)]], 30.0, quietest=ears)
    assert first.length_s == 27.5  # the quietest moment of the last 5 s
    assert (second.pieces[0].start_s, second.overlap_s) == (123.5, 4.0)  # 3 to 5 s before it
    assert second.length_s == 26.5
    assert first.speech_s + second.speech_s == 54.0


def test_pieces_are_a_gap_apart() -> None:
    (window,) = plan_windows([[Span(1.0, 2.0), Span(8.0, 9.0)]])
    assert [p.at_s for p in window.pieces] == pytest.approx([0.0, 1.0 + GAP_S])


def test_windows_of_two_sides_take_turns_as_the_call_did() -> None:
    left = [Span(0.0, 20.0), Span(50.0, 70.0)]
    right = [Span(25.0, 45.0), Span(75.0, 95.0)]
    assert [w.channel for w in plan_windows([left, right])] == [0, 1, 0, 1]


@pytest.mark.parametrize(
    "spans", [[Span(0.0, 2.0), Span(1.0, 3.0)], [Span(5.0, 4.0)], [Span(5.0, 6.0), Span(1.0, 2.0)]]
)
def test_spans_that_overlap_or_run_backwards_are_refused(spans: list[Span]) -> None:
    with pytest.raises(ValueError, match="overlap"):
        plan_windows([spans])


def test_a_limit_too_short_to_look_for_a_cut_is_refused() -> None:
    limit_s = PAUSE_SEARCH_S + OVERLAP_S[1] + SHORTEST_TAIL_S
    with pytest.raises(ValueError, match="no room"):
        plan_windows([[Span(0.0, 1.0)]], limit_s=limit_s)


def test_a_limit_longer_than_the_engine_hears_is_refused() -> None:
    with pytest.raises(ValueError, match="than the engine hears"):
        plan_windows([[Span(0.0, 1.0)]], limit_s=30.01)


@given(ears(), st.floats(0.001, 40.0))
def test_no_cut_leaves_a_shred_behind(quietest: Ears, over_s: float) -> None:
    windows = plan_windows([[Span(0.0, 30.0 + over_s)]], quietest=quietest)
    assert min(w.length_s for w in windows) >= SHORTEST_TAIL_S - 1e-4
