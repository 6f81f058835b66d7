"""A recording in raw windows of 30 s, silence and all: what packing is measured against."""

from __future__ import annotations

from dataclasses import replace

from bench.by_hand import channels_of
from bench.ours import Surveyed
from pipeline.recording import SAMPLE_RATE_HZ, WINDOW_LIMIT_S, Piece, Plan, Window

LIMIT = round(WINDOW_LIMIT_S * SAMPLE_RATE_HZ)


def fixed_windows(sound: Surveyed) -> Surveyed:
    """The same recording with windows that take no heed of what is said, channel by channel."""
    if sound.plan is None:
        return sound
    _, sides = channels_of(sound)
    windows: list[Window] = []
    packed = b""
    for channel, samples in enumerate(sides):
        for at in range(0, len(samples), LIMIT):
            part = samples[at : at + LIMIT]
            piece = Piece(0.0, at / SAMPLE_RATE_HZ, len(part) / SAMPLE_RATE_HZ)
            first = len(packed) // 2
            windows.append(Window(len(windows), channel, first, len(part), (piece,)))
            packed += (part * 32_768.0).astype("<i2").tobytes()
    plan: Plan = replace(sound.plan, windows=tuple(windows))
    return replace(sound, plan=plan, packed=packed)
