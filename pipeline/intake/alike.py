"""Do two channels carry one sound? Two channels come in, a `Twin` or nothing goes out.

A bridge may record one side some milliseconds later, quieter, with inverse phase, with its own
noise or through another codec; two people on one call may hear a trace of each other. What tells
these apart is that a twin is one in *every* loud second, at one delay and one gain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.intake.decode import Pcm
from pipeline.recording import SAMPLE_RATE_HZ

LONGEST_DELAY_S = 0.25
"""A side is looked for this much earlier and later. A satellite hop is 0.25 s; a bridge 0.02."""

SAME_CORRELATION = 0.97
"""Two channels correlated beyond this, over all, carry one sound. Measured between a call and the
same through mu-law, A-law, ADPCM, G.726, Opus at 12 and 24 kb/s, MP3 at 16 kb/s and AAC: 0.976 to
0.9999. AMR rebuilds the wave (0.80 to 0.88): such a twin is heard twice, which loses nothing."""

SAME_SECOND_CORRELATION = 0.9
"""... provided no loud second falls below this (the least of those codecs: 0.949): a short answer
on one side only must not be lost in an hour of leakage from the other."""

LOUD_DB = 30.0
"""A second counts as loud within this many dB of the loudest second of its channel."""

ALIKE_AT_ALL = 0.3
"""Less alike than this at their best delay, two channels are not compared any further: twins are
over 0.5 there, the energy around each second taken with it."""

LISTENED_SECONDS = 16
"""The delay is sought in this many of the seconds that are loud on both sides."""

Seconds = NDArray[np.float64]
"""One number for each second of a channel."""


@dataclass(frozen=True)
class Twin:
    """How one channel repeats another."""

    late_s: float
    """How much later it is, seconds; negative: earlier."""
    inverse: bool
    """Whether its wave is turned over."""


def twin_of(one: Pcm, other: Pcm) -> Twin | None:
    """How `other` repeats `one`, None when each has a sound of its own. Both of one length."""
    late, alike = delay(one, other)
    if alike < ALIKE_AT_ALL:
        return None
    if late >= 0:
        one, other = one[: len(one) - late], other[late:]
    else:
        one, other = one[-late:], other[:late]
    sign = _same(products(one, other), products(one, one), products(other, other))
    return Twin(late / SAMPLE_RATE_HZ, sign < 0) if sign else None


def delay(one: Pcm, other: Pcm) -> tuple[int, float]:
    """By how many samples `other` is later than `one`, where they are most alike, -1/4 to 1/4 s.

    And how alike they are there, 0..1. By cross-correlation of seconds that are loud on both sides,
    each counting by its likeness and not by its loudness.
    """
    reach = min(round(LONGEST_DELAY_S * SAMPLE_RATE_HZ), len(one) // 4)
    both = products(one, one) * products(other, other)
    total = np.zeros(2 * reach + 1)
    loudest = [int(n) for n in np.argsort(both)[::-1][:LISTENED_SECONDS] if both[n] > 0]
    for second in loudest:
        start = second * SAMPLE_RATE_HZ
        total += likeness(one, other, start, start + SAMPLE_RATE_HZ, reach)
    best = int(np.argmax(np.abs(total)))
    return best - reach, float(abs(total[best])) / max(1, len(loudest))


def likeness(one: Pcm, other: Pcm, start: int, stop: int, reach: int) -> Seconds:
    """Correlation, -1..1, of `one[start:stop]` with `other` at each of -reach..reach samples later.

    Energy of `other` is taken over all it is compared with, so this is a little low where that
    changes. Beyond the ends there is silence.
    """
    heard = one[start:stop].astype(np.float64)
    first, last = max(0, start - reach), min(len(other), stop + reach)
    around = np.zeros(stop - start + 2 * reach)
    around[first - (start - reach) :][: last - first] = other[first:last]
    # What a circle of this size wraps around lies beyond the delays asked for; thousands are fast.
    size = -(-len(around) // 1_000) * 1_000
    spectrum = np.fft.rfft(around, size) * np.conj(np.fft.rfft(heard, size))
    found = np.fft.irfft(spectrum, size)[: 2 * reach + 1]
    scale = np.sqrt(product(heard, heard) * product(around, around))
    return found / scale if scale else np.zeros(2 * reach + 1)


def products(one: Pcm, other: Pcm) -> Seconds:
    """The sum of products of two channels, about their means, in each second.

    The last second may be short.
    """
    step = SAMPLE_RATE_HZ
    means = [np.float32(pcm.mean()) if len(pcm) else np.float32(0) for pcm in (one, other)]
    found = []
    for at in range(0, len(one), step):
        part = one[at : at + step] - means[0]
        # an energy: the same second need not be read twice
        found.append(product(part, part if one is other else other[at : at + step] - means[1]))
    return np.array(found, np.float64)


def product(one: NDArray[np.floating], other: NDArray[np.floating]) -> float:
    """The sum of products of two stretches of one length.

    Not `np.dot`, which starts a thread a core beyond 10,000 samples: outside the sandbox, where
    nothing holds it to one, these wait for each other a hundred times longer than they reckon.
    """
    return float(np.einsum("i,i->", one, other))


def _same(both: Seconds, energy: Seconds, other: Seconds) -> int:
    """1 when two channels carry one sound, -1 when one is the other turned over, else 0."""
    overall = both.sum() / np.sqrt(energy.sum() * other.sum() + 1.0)
    if abs(overall) < SAME_CORRELATION:
        return 0
    floor = 10 ** (-LOUD_DB / 10)
    loud = (energy > energy.max() * floor) | (other > other.max() * floor)
    scale = np.sqrt(energy * other) + 1.0
    if (abs(both[loud]) / scale[loud]).min() < SAME_SECOND_CORRELATION:
        return 0
    return 1 if overall > 0 else -1
