"""What leaks from one side of a call into the other: spans of speech come in, own words go out.

Headsets, hybrids and bridges let a trace of one side into the other, 20 to 30 dB quieter, and a
voice detector finds speech in it: the same words would be written twice. A stretch is left out only
where every eighth of a second of it is the other side's wave, much quieter, always at one delay; a
person's own "yes" is nowhere near that, and keeps its whole stretch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Literal

import numpy as np

from pipeline.intake.alike import LONGEST_DELAY_S, likeness, product
from pipeline.intake.decode import Pcm
from pipeline.recording import SAMPLE_RATE_HZ, Span

LEAK_DB = 12.0
"""A leak is at least this much quieter than what leaks."""

OWN_SHARE = 0.2
"""An eighth of a second of which the leak leaves more than this unexplained (a correlation under
0.9) has a sound of its own..."""

OWN_OVER_FLOOR = 4.0
"""... if that is also this many times (6 dB) over the side's own noise."""

FLOOR_DB = 30.0
"""A side's noise is at least this far under its loudest words, or it is not taken for noise."""

LEAST_LEAK_S = 1.0
"""Less leakage than this in all is left alone: one short hum may resemble a vowel by chance."""

LIKE_AT_ALL = 0.1
"""Less likeness than this at the best delay is no leak. Seconds of two voices are alike by 0.1 to
0.2 each, every one at a delay of its own, so many together stay far under it."""

KEPT_AROUND_S = 0.3
"""Kept before and after own words when a leak beside them is left out."""

_BLOCK = SAMPLE_RATE_HZ // 8
_REACH = round(LONGEST_DELAY_S * SAMPLE_RATE_HZ)
_TRIED = 40


def without_leaks(
    spans: Sequence[Sequence[Span]], channels: Sequence[Pcm]
) -> tuple[list[list[Span]], float]:
    """The spans of each channel without what leaks from the others; how much that was, seconds.

    `spans[n]` are in `channels[n]`, in order, not overlapping; so are those returned.
    """
    kept = [list(side) for side in spans]
    for quiet, loud in permutations(range(len(channels)), 2):
        late = _delay(kept[quiet], channels[quiet], channels[loud])
        if late is not None:
            kept[quiet] = _own(kept[quiet], channels[quiet], channels[loud], late)
    before_s, after_s = (sum(s.length_s for side in all_ for s in side) for all_ in (spans, kept))
    return kept, before_s - after_s


def _delay(spans: Sequence[Span], quiet: Pcm, loud: Pcm) -> int | None:
    """By how many samples the leak follows; None where too little of `quiet` might be one."""
    tried = [
        (start, stop)
        for span in spans
        for start, stop in _parts(span, SAMPLE_RATE_HZ)
        if _energy(loud[start:stop]) > 10 ** (LEAK_DB / 10) * _energy(quiet[start:stop])
    ]
    if sum(stop - start for start, stop in tried) < LEAST_LEAK_S * SAMPLE_RATE_HZ:
        return None
    chosen = tried[:: max(1, len(tried) // _TRIED)]
    # Sought from the leak's side: a leak follows, so its sound lies earlier in the loud channel.
    total = np.zeros(2 * _REACH + 1)
    for start, stop in chosen:
        total += likeness(quiet, loud, start, stop, _REACH)
    best = int(np.argmax(np.abs(total)))
    return None if abs(total[best]) < LIKE_AT_ALL * len(chosen) else _REACH - best


def _own(spans: Sequence[Span], quiet: Pcm, loud: Pcm, late: int) -> list[Span]:
    floor = _floor(quiet)
    kept: list[Span] = []
    leaked = 0
    for span in spans:
        blocks = _parts(span, _BLOCK)
        kinds = [_kind(quiet[a:b], _earlier(loud, a, b, late), floor) for a, b in blocks]
        own = _between_own(span, blocks, kinds)
        if "leak" not in kinds or (own and span.length_s - own.length_s < LEAST_LEAK_S):
            own = span
        else:
            leaked += kinds.count("leak")
        if own is not None:
            kept.append(own)
    return kept if leaked * _BLOCK >= LEAST_LEAK_S * SAMPLE_RATE_HZ else list(spans)


def _between_own(span: Span, blocks: list[tuple[int, int]], kinds: Sequence[str]) -> Span | None:
    """From the first own word of a span to the last; None when it has none."""
    own = [block for block, kind in zip(blocks, kinds, strict=True) if kind == "own"]
    if not own:
        return None
    first_s = own[0][0] / SAMPLE_RATE_HZ - KEPT_AROUND_S
    last_s = own[-1][1] / SAMPLE_RATE_HZ + KEPT_AROUND_S
    return Span(max(span.start_s, first_s), min(span.end_s, last_s))


def _kind(quiet: Pcm, loud: Pcm, floor: float) -> Literal["own", "leak", "noise"]:
    """What a block of the quiet side is, beside what the loud side had when it leaked."""
    own, other = _energy(quiet), _energy(loud)
    both = product(quiet.astype(np.float64), loud.astype(np.float64))
    rest = own - both**2 / other if other else own
    hidden = rest <= OWN_OVER_FLOOR * floor * len(quiet)
    if (rest <= OWN_SHARE * own or hidden) and other >= 10 ** (LEAK_DB / 10) * own:
        return "leak" if rest <= OWN_SHARE * own else "noise"
    return "noise" if hidden else "own"


def _earlier(loud: Pcm, start: int, stop: int, late: int) -> Pcm:
    """What was on the loud side `late` samples before, silence beyond its ends."""
    found = np.zeros(stop - start, np.int16)
    first, last = max(0, start - late), min(len(loud), stop - late)
    if first < last:
        found[first - (start - late) :][: last - first] = loud[first:last]
    return found


def _parts(span: Span, step: int) -> list[tuple[int, int]]:
    """A span in parts of `step` samples; the last may be shorter."""
    start, end = round(span.start_s * SAMPLE_RATE_HZ), round(span.end_s * SAMPLE_RATE_HZ)
    return [(at, min(at + step, end)) for at in range(start, end, step)]


def _energy(pcm: Pcm) -> float:
    heard = pcm.astype(np.float64)
    return product(heard, heard)


def _floor(pcm: Pcm) -> float:
    """Energy a sample of the side's own noise: its quietest twentieth that is not digital silence.

    At most `FLOOR_DB` under its loudest, for on a line that is cut off between words, words are all
    there is.
    """
    blocks = [_energy(pcm[at : at + _BLOCK]) for at in range(0, len(pcm) - _BLOCK, _BLOCK)]
    heard = [energy for energy in blocks if energy > _BLOCK]
    if not heard:
        return 1.0
    return min(float(np.percentile(heard, 5)), max(heard) * 10 ** (-FLOOR_DB / 10)) / _BLOCK
