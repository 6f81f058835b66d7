"""Which channels are worth hearing? All channels come in, a `ChannelPlan` goes out.

A call is often recorded with one side in each channel; often it is the same sound twice, or one
side is silent. Channels are chosen, never summed: a sum makes two sides talk over each other, and
makes one sound vanish when a side is wired with inverse phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.intake.decode import Pcm
from pipeline.recording import SAMPLE_RATE_HZ

SILENT_RMS = 10 ** (-60 / 20) * 32_768
"""A channel whose loudest second is under -60 dB of full scale carries no speech (33 of 32768)."""

SAME_CORRELATION = 0.99
"""Two channels correlated beyond this, over all, carry one sound."""

SAME_SECOND_CORRELATION = 0.9
"""... provided no loud second falls below this: a short answer on one side only must not be lost
in an hour of leakage from the other."""

LOUD_DB = 30.0
"""A second counts as loud within this many dB of the loudest second of its channel."""

Seconds = NDArray[np.float64]
"""One number for each second of a channel."""


@dataclass(frozen=True)
class ChannelPlan:
    """The channels to hear."""

    kept: tuple[int, ...]
    """Their numbers in the recording, from 0, in order."""
    labels: tuple[str, ...]
    """"mono", "left", "right", or "channel 3" (from 1) when there are more than two."""
    reason: str
    """Why these, in words a person understands."""


def plan_channels(channels: Sequence[Pcm]) -> ChannelPlan:
    """Choose the channels that carry a sound of their own. All must be of one length; at least one.

    A silent recording keeps its first channel, so that there is something to find no speech in.
    """
    if len(channels) == 1:
        return ChannelPlan((0,), ("mono",), "one channel")
    energies = [_products(pcm, pcm) for pcm in channels]
    loud = [number for number, energy in enumerate(energies) if not _silent(energy)]
    if not loud:
        return ChannelPlan((0,), ("mono",), "all channels are silent")
    kept: list[int] = []
    notes = [f"{_label(n, channels)} is silent" for n in range(len(channels)) if n not in loud]
    for number in loud:
        twin = _twin(number, kept, channels, energies)
        if twin is None:
            kept.append(number)
        else:
            notes.append(f"{_label(number, channels)} {twin}")
    return _plan(kept, loud, notes, channels)


def _plan(
    kept: list[int], loud: list[int], notes: list[str], channels: Sequence[Pcm]
) -> ChannelPlan:
    one_sound = len(kept) == 1 and len(loud) == len(channels)
    labels = ("mono",) if one_sound else tuple(_label(number, channels) for number in kept)
    reason = "; ".join(notes) or "each channel carries its own sound"
    return ChannelPlan(tuple(kept), labels, reason)


def _label(number: int, channels: Sequence[Pcm]) -> str:
    return ("left", "right")[number] if len(channels) == 2 else f"channel {number + 1}"


def _twin(
    number: int, kept: list[int], channels: Sequence[Pcm], energies: list[Seconds]
) -> str | None:
    """How this channel repeats one already kept; None when it carries a sound of its own."""
    for other in kept:
        products = _products(channels[number], channels[other])
        sign = _same(products, energies[number], energies[other])
        if sign:
            turned = " with inverse phase" if sign < 0 else ""
            return f"repeats {_label(other, channels)}{turned}"
    return None


def _same(products: Seconds, energy: Seconds, other: Seconds) -> int:
    """1 when two channels carry one sound, -1 when one is the other turned over, else 0."""
    overall = products.sum() / np.sqrt(energy.sum() * other.sum())
    if abs(overall) < SAME_CORRELATION:
        return 0
    floor = 10 ** (-LOUD_DB / 10)
    loud = (energy > energy.max() * floor) | (other > other.max() * floor)
    scale = np.sqrt(energy * other) + 1.0
    if (abs(products[loud]) / scale[loud]).min() < SAME_SECOND_CORRELATION:
        return 0
    return 1 if overall > 0 else -1


def _silent(energy: Seconds) -> bool:
    return bool(np.sqrt(energy.max(initial=0.0) / SAMPLE_RATE_HZ) < SILENT_RMS)


def _products(one: Pcm, other: Pcm) -> Seconds:
    """The sum of products of two channels in each second; the last second may be short."""
    step = SAMPLE_RATE_HZ
    return np.array(
        [
            np.dot(one[at : at + step].astype(np.float64), other[at : at + step])
            for at in range(0, len(one), step)
        ]
    )
