"""Which channels are worth hearing? All channels come in, a `ChannelPlan` goes out.

A call is often recorded with one side in each channel; often it is the same sound twice (maybe
later, quieter, turned over or through another codec), or one side carries nothing but its line's
hum. Channels are chosen, never summed: a sum makes two sides talk over each other, and makes one
sound vanish when a side is wired with inverse phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.intake.alike import Seconds, Twin, products, twin_of
from pipeline.intake.decode import Pcm
from pipeline.recording import SAMPLE_RATE_HZ

SILENT_RMS = 10 ** (-60 / 20) * 32_768
"""A channel whose loudest second is under -60 dB of full scale carries no speech (33 of 32768)."""

CONSTANT_DB = 8.0
"""A channel whose loudest 20 ms are no more than this over its quietest hundredth carries hum or
comfort noise. An hour of noise of a telephone's band stays under 6 dB; a single "yes" is over."""

CONSTANT_LEAST_S = 2.0
"""A shorter channel may be one long vowel, and is never called constant."""

MIX_REST = 0.05
"""A channel is the mix of others when these leave at most this share of each loud second of it."""

MIX_LEAST_GAIN = 0.1
"""... and when each of them is in it at -20 dB or more: less is leakage, not a mix."""

MIX_MOST_CHANNELS = 8
"""Among more channels no mix is looked for: the work grows with their square."""

_FRAME = SAMPLE_RATE_HZ // 50


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
    notes: dict[int, str] = {}
    kept: list[int] = []
    for number, pcm in enumerate(channels):
        note = _nothing_on(pcm) or _repeats(number, kept, channels)
        if note:
            notes[number] = note
        else:
            kept.append(number)
    notes |= _mixes(kept, channels)
    kept = [number for number in kept if number not in notes]
    return _plan(kept, notes, channels)


def _plan(kept: list[int], notes: dict[int, str], channels: Sequence[Pcm]) -> ChannelPlan:
    if not kept:
        silent = all(note == _SILENT for note in notes.values())
        reason = "all channels are silent" if silent else "no channel carries more than noise"
        return ChannelPlan((0,), ("mono",), reason)
    one_sound = len(kept) == 1 and all(note.startswith(_REPEATS) for note in notes.values())
    labels = ("mono",) if one_sound else tuple(_label(number, channels) for number in kept)
    told = [f"{_label(number, channels)} {note}" for number, note in sorted(notes.items())]
    reason = "; ".join(told) or "each channel carries its own sound"
    return ChannelPlan(tuple(kept), labels, reason)


_SILENT = "is silent"
_REPEATS = "repeats"


def _label(number: int, channels: Sequence[Pcm]) -> str:
    return ("left", "right")[number] if len(channels) == 2 else f"channel {number + 1}"


def _nothing_on(pcm: Pcm) -> str | None:
    """Why nobody can be heard on a channel; None when somebody might."""
    frames = _frame_energies(pcm)
    # A second at -60 dB may hide a shorter sound above it, so the loudest second decides.
    second = np.convolve(frames, np.ones(50))[: max(1, len(frames))] if len(frames) else frames
    if np.sqrt(second.max(initial=0.0) / SAMPLE_RATE_HZ) < SILENT_RMS:
        return _SILENT
    # Most channels show within a minute that somebody speaks; the rest are looked at whole.
    first = pcm[: 60 * SAMPLE_RATE_HZ]
    constant = _constant(first) and (len(first) == len(pcm) or _constant(pcm))
    return "carries nothing but a constant noise" if constant else None


def _constant(pcm: Pcm) -> bool:
    """Whether a channel is equally loud all the time; False of one too short to tell."""
    if len(pcm) < CONSTANT_LEAST_S * SAMPLE_RATE_HZ:
        return False
    frames = _frame_energies(pcm, rising=True)
    return bool(frames.max() < 10 ** (CONSTANT_DB / 10) * np.percentile(frames, 1))


def _frame_energies(pcm: Pcm, rising: bool = False) -> Seconds:
    """The energy of each 20 ms about the channel's mean: a constant offset is no sound.

    `rising`: of the differences between samples, in which mains hum is 34 dB weaker than in the
    sound and cannot hide a quiet voice.
    """
    mean = np.float32(pcm.mean()) if len(pcm) else np.float32(0)
    found = []
    for at in range(0, len(pcm), SAMPLE_RATE_HZ):
        part = pcm[at : at + SAMPLE_RATE_HZ].astype(np.float32) - mean
        if rising:
            part = np.diff(part, prepend=part[:1])
        whole = len(part) // _FRAME * _FRAME
        frames = part[:whole].reshape(-1, _FRAME)
        found.append(np.einsum("ij,ij->i", frames, frames))
        if whole < len(part):
            found.append(np.array([np.dot(part[whole:], part[whole:])]))
    return np.concatenate(found).astype(np.float64) if found else np.zeros(0)


def _repeats(number: int, kept: list[int], channels: Sequence[Pcm]) -> str | None:
    """How this channel repeats one already kept; None when it carries a sound of its own."""
    for other in kept:
        twin = twin_of(channels[other], channels[number])
        if twin is not None:
            return f"{_REPEATS} {_label(other, channels)}{_how(twin)}"
    return None


def _how(twin: Twin) -> str:
    turned = " with inverse phase" if twin.inverse else ""
    late_ms = round(twin.late_s * 1_000)
    if not late_ms:
        return turned
    return f"{turned} {abs(late_ms)} ms {'later' if late_ms > 0 else 'earlier'}"


def _mixes(kept: list[int], channels: Sequence[Pcm]) -> dict[int, str]:
    """The channel of a conference that is the sum of the others, where there are two others."""
    if not 3 <= len(kept) <= MIX_MOST_CHANNELS:
        return {}
    pairs = {(a, b): products(channels[a], channels[b]) for a in kept for b in kept if a <= b}
    table = {**pairs, **{(b, a): found for (a, b), found in pairs.items()}}
    for number in kept:
        others = [other for other in kept if other != number]
        if _is_mix(number, others, table):
            return {number: "is the mix of the others"}
    return {}


def _is_mix(number: int, others: list[int], table: dict[tuple[int, int], Seconds]) -> bool:
    """Whether one set of gains makes this channel of the others, in every loud second."""
    gram = np.array([[table[a, b].sum() for b in others] for a in others])
    gains = np.linalg.lstsq(gram, np.array([table[number, a].sum() for a in others]), rcond=None)[0]
    if (gains < MIX_LEAST_GAIN).any():
        return False
    own = table[number, number]
    rest = own.copy()
    for gain, a in zip(gains, others, strict=True):
        rest -= 2 * gain * table[number, a]
        for other_gain, b in zip(gains, others, strict=True):
            rest += gain * other_gain * table[a, b]
    loud = own > own.max() * 1e-3
    return bool((rest[loud] <= MIX_REST * own[loud]).all())
