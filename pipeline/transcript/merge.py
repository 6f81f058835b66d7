"""Windows to one transcript: every utterance moved to true time, channels interleaved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pipeline.engine import Heard, Utterance
from pipeline.recording import Plan, Segment, Window
from pipeline.transcript.sides import speakers_of
from pipeline.transcript.turns import split_at_pauses


def merge(
    plan: Plan, heard: Mapping[int, Heard], speakers: Sequence[str] | None = None
) -> tuple[Segment, ...]:
    """All segments in order of their start, then channel. Windows without words add nothing.

    `speakers`: labels of the recording's channels in order; the sides are named after them. Mono
    recordings name no speaker: the words of two people are not told apart.
    """
    names = speakers_of(plan, speakers)
    segments = [
        _segment(window, names[window.channel], said, heard[window.index])
        for window in plan.windows
        if window.index in heard
        for utterance in heard[window.index].utterances
        for said in split_at_pauses(utterance, window)
    ]
    worded = [segment for segment in segments if segment.text]
    return tuple(sorted(worded, key=lambda s: (s.start_s, s.channel)))


def _segment(window: Window, speaker: str | None, said: Utterance, heard: Heard) -> Segment:
    start_s = window.true_time_s(said.start_s)
    logprob = said.mean_logprob if said.mean_logprob is not None else heard.mean_logprob
    confidence = None if logprob is None else math.exp(min(0.0, logprob))
    return Segment(
        start_s=round(start_s, 3),
        end_s=round(max(start_s, window.true_time_s(said.end_s)), 3),
        channel=window.channel,
        speaker=speaker,
        text=" ".join(said.text.split()),
        confidence=None if confidence is None else round(confidence, 4),
        doubt=heard.doubt,
    )
