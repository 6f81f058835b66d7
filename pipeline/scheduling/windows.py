"""Plan the windows: spans of speech come in, windows of at most 30 s of packed speech come out.

Whisper always encodes 30 s and loses words at long pauses, so speech is packed: whole spans of one
channel, in order, a short silence between them. All arithmetic is in whole samples, so a piece
maps back to the recording without drift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pipeline.recording import SAMPLE_RATE_HZ, WINDOW_LIMIT_S, Piece, Span, Window

GAP_S = 0.3
"""Silence between two pieces; measured: enough for Whisper to hear two sentences, not one."""

CUT_SEARCH_S = 5.0
"""A span longer than a window is cut somewhere in the last seconds of the window it fills."""

SHORTEST_TAIL_S = 1.0
"""No cut leaves less than this behind: a shred of a word alone in a window is guessed at."""

Quietest = Callable[[int, float, float], float]
"""(channel, from_s, to_s) -> the best moment between the two to cut that channel, in true time."""

Part = tuple[int, int]
"""A stretch of speech: first sample, and the sample after the last."""


def plan_windows(
    spans_by_channel: Sequence[Sequence[Span]],
    limit_s: float = WINDOW_LIMIT_S,
    gap_s: float = GAP_S,
    quietest: Quietest | None = None,
) -> tuple[Window, ...]:
    """Pack each channel's speech into windows of at most `limit_s`, in order of true time.

    Args:
        spans_by_channel: for each channel kept, its spans in order, not overlapping.
        limit_s: longest window in seconds; more than twice `CUT_SEARCH_S`.
        gap_s: silence between two pieces of a window, seconds.
        quietest: chooses where a span longer than `limit_s` is cut; its latest moment if None.

    Every sample of every span is in exactly one piece. Windows lie one after the other in the
    packed artefact. Raises ValueError when a channel's spans overlap or run backwards.

    >>> calls = [[Span(1.0, 21.0), Span(25.0, 40.0)], [Span(22.0, 24.0)]]
    >>> [(w.channel, w.first_sample, w.length_s) for w in plan_windows(calls)]
    [(0, 0, 20.0), (1, 320000, 2.0), (0, 352000, 15.0)]
    """
    limit, gap = _samples(limit_s), _samples(gap_s)
    if limit <= 2 * _samples(CUT_SEARCH_S):
        raise ValueError(f"a window of {limit_s} s leaves no room to look for a place to cut")
    drafts = [
        (parts, channel)
        for channel, spans in enumerate(spans_by_channel)
        for parts in _packed(_cut(_checked(spans), channel, limit, quietest), limit, gap)
    ]
    drafts.sort(key=lambda draft: (draft[0][0], draft[1]))
    windows: list[Window] = []
    first_sample = 0
    for index, (parts, channel) in enumerate(drafts):
        window = _window(index, channel, first_sample, parts, gap)
        windows.append(window)
        first_sample += window.sample_count
    return tuple(windows)


def _samples(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE_HZ)


def _checked(spans: Sequence[Span]) -> Iterator[Part]:
    """Spans in samples, those of no length left out."""
    last = 0
    for span in spans:
        start, end = _samples(span.start_s), _samples(span.end_s)
        if start < last or end < start:
            raise ValueError(f"spans overlap or run backwards at {span.start_s} s")
        if end > start:
            yield start, end
        last = end


def _cut(
    parts: Iterator[Part], channel: int, limit: int, quietest: Quietest | None
) -> Iterator[Part]:
    """The same speech in parts of at most `limit` samples."""
    for start, end in parts:
        while end - start > limit:
            latest = min(start + limit, end - _samples(SHORTEST_TAIL_S))
            earliest = latest - _samples(CUT_SEARCH_S)
            at = latest
            if quietest is not None:
                moment_s = quietest(channel, earliest / SAMPLE_RATE_HZ, latest / SAMPLE_RATE_HZ)
                at = min(max(_samples(moment_s), earliest), latest)
            yield start, at
            start = at
        yield start, end


def _packed(parts: Iterator[Part], limit: int, gap: int) -> Iterator[list[Part]]:
    """Parts gathered in order while they and the gaps between them fit."""
    group: list[Part] = []
    used = 0
    for start, end in parts:
        needed = (gap if group else 0) + end - start
        if group and used + needed > limit:
            yield group
            group, used, needed = [], 0, end - start
        group.append((start, end))
        used += needed
    if group:
        yield group


def _window(index: int, channel: int, first_sample: int, parts: list[Part], gap: int) -> Window:
    pieces: list[Piece] = []
    at = 0
    for start, end in parts:
        pieces.append(
            Piece(at / SAMPLE_RATE_HZ, start / SAMPLE_RATE_HZ, (end - start) / SAMPLE_RATE_HZ)
        )
        at += end - start + gap
    return Window(index, channel, first_sample, at - gap, tuple(pieces))
