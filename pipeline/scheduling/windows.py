"""Plan the windows: spans of speech come in, windows of at most 30 s of packed speech come out.

Whisper always encodes 30 s and loses words at long pauses, so speech is packed: whole spans of one
channel, in order, a short silence between them. A span longer than a window is cut where somebody
pauses; where nobody does, both windows hear the seconds around the cut, and their words are joined
by `transcript/stitch.py`. All arithmetic is in whole samples, so a piece maps back to the recording
without drift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pipeline.recording import SAMPLE_RATE_HZ, WINDOW_LIMIT_S, Piece, Span, Window

GAP_S = 0.3
"""Silence between two pieces; measured: enough for Whisper to hear two sentences, not one."""

FILL_S = 27.5
"""A window is filled no further: where speech goes on to its very end, Whisper takes its last
sentence for one that is cut off and leaves it out. Counted by hand with tiny.en on speech with and
without pauses: so ended 15 of 77 windows over 28 s, 6 of 67 over 27 s, 7 of 214 shorter ones."""

CUT_SEARCH_S = 5.0
"""A span longer than a window is cut somewhere in the last seconds of the window it fills..."""

PAUSE_SEARCH_S = 12.0
"""...or, when nobody pauses in them, at a pause in as many: a fuller window is not worth a word."""

OVERLAP_S = (3.0, 5.0)
"""Where nobody pauses, the next window begins so long before the cut, at the quietest moment: room
for some words that both windows hear whole."""

SHORTEST_TAIL_S = 1.0
"""No cut leaves less than this behind: a shred of a word alone in a window is guessed at."""


@dataclass(frozen=True)
class Lull:
    """The quietest moment of a stretch of one channel."""

    at_s: float
    """In true time, seconds."""
    pause: bool
    """Whether nobody speaks there; else it is only where a cut hurts least."""


Quietest = Callable[[int, float, float], Lull]
"""(channel, from_s, to_s) -> the best moment between the two to cut that channel."""


@dataclass(frozen=True)
class Part:
    """A stretch of speech that goes into one window; samples of its channel."""

    start: int
    end: int
    """The sample after the last."""
    shared: int = 0
    """At its start, those that the part before it holds too."""


def plan_windows(
    spans_by_channel: Sequence[Sequence[Span]],
    limit_s: float = FILL_S,
    gap_s: float = GAP_S,
    quietest: Quietest | None = None,
    overlapping: bool = True,
) -> tuple[Window, ...]:
    """Pack each channel's speech into windows of at most `limit_s`, in order of true time.

    Args:
        spans_by_channel: for each channel kept, its spans in order, not overlapping.
        limit_s: longest window in seconds; long enough to look for a pause and to overlap.
        gap_s: silence between two pieces of a window, seconds.
        quietest: chooses where a span longer than `limit_s` is cut; without it every cut is made at
            the latest moment and taken for one inside a word.
        overlapping: False cuts through words: to measure what overlaps are worth.

    Every sample of every span is in a window: those of an overlap (`Window.overlap_s`) in exactly
    two that follow each other on their channel, all others in one. Windows lie one after the other
    in the packed artefact. Raises ValueError when a channel's spans overlap or run backwards,
    or when `limit_s` leaves no room for that or is more than the engine hears.

    >>> calls = [[Span(1.0, 21.0), Span(25.0, 40.0)], [Span(22.0, 24.0)]]
    >>> [(w.channel, w.first_sample, w.length_s) for w in plan_windows(calls)]
    [(0, 0, 20.0), (1, 320000, 2.0), (0, 352000, 15.0)]
    """
    limit, gap = _samples(limit_s), _samples(gap_s)
    if limit_s > WINDOW_LIMIT_S:
        raise ValueError(f"a window of {limit_s} s is longer than the engine hears")
    if limit_s <= PAUSE_SEARCH_S + OVERLAP_S[1] + SHORTEST_TAIL_S:
        raise ValueError(f"a window of {limit_s} s leaves no room to look for a place to cut")
    drafts: list[tuple[int, list[Part]]] = []
    for channel, spans in enumerate(spans_by_channel):
        cutter = _Cutter(channel, limit, quietest or _latest, overlapping)
        parts = (part for span in _checked(spans) for part in cutter.cut(span))
        drafts += [(channel, group) for group in _packed(parts, limit, gap)]
    drafts.sort(key=lambda draft: (draft[1][0].start, draft[0]))
    windows: list[Window] = []
    first_sample = 0
    for index, (channel, group) in enumerate(drafts):
        window = _window(index, channel, first_sample, group, gap)
        windows.append(window)
        first_sample += window.sample_count
    return tuple(windows)


def _samples(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE_HZ)


def _latest(_channel: int, _from_s: float, to_s: float) -> Lull:
    """What is chosen where nobody listens."""
    return Lull(to_s, pause=False)


def _checked(spans: Sequence[Span]) -> Iterator[Part]:
    """Spans in samples, those of no length left out."""
    last = 0
    for span in spans:
        start, end = _samples(span.start_s), _samples(span.end_s)
        if start < last or end < start:
            raise ValueError(f"spans overlap or run backwards at {span.start_s} s")
        if end > start:
            yield Part(start, end)
        last = end


@dataclass(frozen=True)
class _Cutter:
    """Cuts long spans of one channel."""

    channel: int
    limit: int
    quietest: Quietest
    overlapping: bool

    def cut(self, span: Part) -> Iterator[Part]:
        """The same speech in parts of at most `limit` samples."""
        start, shared = span.start, 0
        while span.end - start > self.limit:
            latest = min(start + self.limit, span.end - _samples(SHORTEST_TAIL_S))
            at, again = self._place(latest)
            yield Part(start, at, shared)
            start, shared = again, at - again
        yield Part(start, span.end, shared)

    def _place(self, latest: int) -> tuple[int, int]:
        """Where a part ends at or before `latest`, and where the next one begins."""
        near = latest - _samples(CUT_SEARCH_S)
        at, pause = self._lull(near, latest)
        if not pause and self.overlapping:
            earlier, pause = self._lull(latest - _samples(PAUSE_SEARCH_S), near)
            at = earlier if pause else at
        if pause or not self.overlapping:
            return at, at
        longest, shortest = _samples(OVERLAP_S[1]), _samples(OVERLAP_S[0])
        return at, self._lull(at - longest, at - shortest)[0]

    def _lull(self, first: int, last: int) -> tuple[int, bool]:
        lull = self.quietest(self.channel, first / SAMPLE_RATE_HZ, last / SAMPLE_RATE_HZ)
        return min(max(_samples(lull.at_s), first), last), lull.pause


def _packed(parts: Iterator[Part], limit: int, gap: int) -> Iterator[list[Part]]:
    """Parts gathered in order while they and the gaps between them fit.

    One that shares its start with the part before it begins a window: what both hold is heard twice
    so that it can be compared.
    """
    group: list[Part] = []
    used = 0
    for part in parts:
        length = part.end - part.start
        if group and (part.shared or used + gap + length > limit):
            yield group
            group, used = [], 0
        used += length + (gap if group else 0)
        group.append(part)
    if group:
        yield group


def _window(index: int, channel: int, first_sample: int, parts: list[Part], gap: int) -> Window:
    pieces: list[Piece] = []
    at = 0
    for part in parts:
        length = part.end - part.start
        pieces.append(
            Piece(at / SAMPLE_RATE_HZ, part.start / SAMPLE_RATE_HZ, length / SAMPLE_RATE_HZ)
        )
        at += length + gap
    overlap_s = parts[0].shared / SAMPLE_RATE_HZ
    return Window(index, channel, first_sample, at - gap, tuple(pieces), overlap_s)
