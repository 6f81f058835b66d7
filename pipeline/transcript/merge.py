"""Windows to one transcript: every utterance moved to true time, channels interleaved."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pipeline.engine import Heard, Utterance
from pipeline.recording import SAMPLE_RATE_HZ, Plan, Segment, Window
from pipeline.transcript.sides import speakers_of
from pipeline.transcript.stitch import stitch
from pipeline.transcript.turns import turns


def merge(
    plan: Plan, heard: Mapping[int, Heard], speakers: Sequence[str] | None = None
) -> tuple[Segment, ...]:
    """All segments in order of their start, then channel. Windows without words add nothing.

    Those of one channel follow each other, never overlap and never leave the recording. Words that
    two windows heard stand once. The same windows make the same segments.

    `speakers`: labels of the recording's channels in order; the sides are named after them. Mono
    recordings name no speaker: the words of two people are not told apart.
    """
    names = speakers_of(plan, speakers)
    segments: list[Segment] = []
    for channel, name in enumerate(names):
        windows = [w for w in plan.windows if w.channel == channel and w.index in heard]
        said = _stitched(windows, heard)
        segments += _in_order(
            _segment(window, name, part, heard[window.index], plan.duration_s)
            for window in windows
            for part in turns(said[window.index], window)
        )
    return tuple(sorted(segments, key=lambda s: (s.start_s, s.channel)))


def _stitched(
    windows: Sequence[Window], heard: Mapping[int, Heard]
) -> dict[int, Sequence[Utterance]]:
    """What each window of a channel adds, by its index; the windows in order of their index.

    Where a neighbour is not heard (yet), there is nothing to stitch and all words stay.
    """
    said: dict[int, Sequence[Utterance]] = {w.index: heard[w.index].utterances for w in windows}
    for before, after in itertools.pairwise(windows):
        if after.overlap_s and _shares(before, after):
            said[before.index], said[after.index] = stitch(
                said[before.index], before, said[after.index], after
            )
    return said


def _shares(before: Window, after: Window) -> bool:
    """Whether `before` is the window whose end `after` begins with: it may be missing."""
    end = before.pieces[-1]
    again_s = after.pieces[0].start_s + after.overlap_s
    return abs(end.start_s + end.length_s - again_s) * SAMPLE_RATE_HZ < 1


def _in_order(segments: Iterable[Segment]) -> list[Segment]:
    """One channel's segments with words, none beginning before the one before it ends."""
    ordered: list[Segment] = []
    for segment in segments:
        if segment.text:
            after_s = ordered[-1].end_s if ordered else 0.0
            start_s = max(segment.start_s, after_s)
            ordered.append(replace(segment, start_s=start_s, end_s=max(segment.end_s, start_s)))
    return ordered


def _segment(
    window: Window, speaker: str | None, said: Utterance, heard: Heard, duration_s: float
) -> Segment:
    start_s = min(round(window.true_time_s(said.start_s), 3), duration_s)
    end_s = min(round(window.true_time_s(said.end_s), 3), duration_s)
    logprob = said.mean_logprob if said.mean_logprob is not None else heard.mean_logprob
    confidence = None if logprob is None else math.exp(min(0.0, logprob))
    return Segment(
        start_s=start_s,
        end_s=max(start_s, end_s),
        channel=window.channel,
        speaker=speaker,
        text=" ".join(said.text.split()),
        confidence=None if confidence is None else round(confidence, 4),
        doubt=heard.doubt,
    )
