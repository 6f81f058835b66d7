"""Rules of packing: nothing lost, nothing doubled, no window too long, every time maps back."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.recording import SAMPLE_RATE_HZ, Span, Window
from pipeline.scheduling.windows import (
    CUT_SEARCH_S,
    GAP_S,
    SHORTEST_TAIL_S,
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


def heard(windows: tuple[Window, ...], channel: int) -> list[tuple[int, int]]:
    """Stretches of a channel that are in some window, in samples, touching ones joined."""
    pieces = sorted(
        (in_samples(p.start_s), in_samples(p.start_s) + in_samples(p.length_s))
        for w in windows
        if w.channel == channel
        for p in w.pieces
    )
    return joined(pieces)


def joined(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in stretches:
        if found and start == found[-1][1]:
            start = found.pop()[0]
        if end > start:
            found.append((start, end))
    return found


@given(channels())
def test_every_sample_of_speech_is_in_one_window_and_no_other_sample_is(
    sides: list[list[Span]],
) -> None:
    windows = plan_windows(sides)
    for channel, spans in enumerate(sides):
        wanted = joined([(in_samples(s.start_s), in_samples(s.end_s)) for s in spans])
        assert heard(windows, channel) == wanted


@given(channels())
def test_no_window_is_longer_than_the_engine_hears(sides: list[list[Span]]) -> None:
    assert all(0 < w.sample_count <= 30 * SAMPLE_RATE_HZ for w in plan_windows(sides))


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


@given(channels(), st.floats(-10.0, 10.0))
def test_a_cut_asked_for_outside_its_range_loses_nothing(
    sides: list[list[Span]], beside_s: float
) -> None:
    windows = plan_windows(sides, quietest=lambda _channel, from_s, _to_s: from_s + beside_s)
    for channel, spans in enumerate(sides):
        wanted = joined([(in_samples(s.start_s), in_samples(s.end_s)) for s in spans])
        assert heard(windows, channel) == wanted
    assert all(w.sample_count <= 30 * SAMPLE_RATE_HZ for w in windows)


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
    assert [w.length_s for w in plan_windows([spans])] == pytest.approx(lengths_s)


def test_a_long_span_is_cut_where_it_is_quietest() -> None:
    asked: list[tuple[int, float, float]] = []

    def quietest(channel: int, from_s: float, to_s: float) -> float:
        asked.append((channel, from_s, to_s))
        return 127.25

    first, second = plan_windows([[], [Span(100.0, 150.0)]], quietest=quietest)
    assert asked == [(1, 130.0 - CUT_SEARCH_S, 130.0)]
    assert first.length_s == 27.25
    assert second.pieces[0].start_s == 127.25


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
    with pytest.raises(ValueError, match="no room"):
        plan_windows([[Span(0.0, 1.0)]], limit_s=2 * CUT_SEARCH_S)


def test_no_cut_leaves_a_shred_behind() -> None:
    for over_s in (0.01, 0.5, 0.99, 1.0, 7.0):
        windows = plan_windows([[Span(0.0, 30.0 + over_s)]])
        assert min(w.length_s for w in windows) >= SHORTEST_TAIL_S
