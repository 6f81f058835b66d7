"""Jobs for experiments: clips of speech cut to given lengths, calls of echo's silence.

A clip is one window. Its speech comes from the shipped recordings (bench/sets.py), end to end and
round and round from a place drawn by the seed, so a clip of 7.42 s is 7.42 s of somebody talking; a
word may be cut at its ends. A call is as many windows of 30 s as its length fills, the last one
shorter, and its packed speech a file that takes no room: only an echo hears it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.sets import PIECES, speech
from pipeline.recording import SAMPLE_BYTES, SAMPLE_RATE_HZ, WINDOW_LIMIT_S, Piece, Plan, Window
from pipeline.scheduling.work import JOB_S, predicted_work_s

LANGUAGE = "en"


@dataclass(frozen=True)
class Clip:
    """One job: its windows, and their packed speech."""

    name: str
    plan: Plan
    packed: bytes | None
    """s16le at 16 kHz; None: nothing but its size."""

    @property
    def works(self) -> tuple[float, ...]:
        """Predicted work of each window, as the transcribe step counts it, without JOB_S."""
        lengths = (window.length_s for window in self.plan.windows)
        return tuple(predicted_work_s(length_s, 1, LANGUAGE) - JOB_S for length_s in lengths)

    @property
    def work_s(self) -> float:
        """Predicted work S, reference slot seconds."""
        return predicted_work_s(self.plan.speech_s, len(self.plan.windows), LANGUAGE)

    @property
    def size_bytes(self) -> int:
        """Of its packed speech."""
        return sum(window.sample_count for window in self.plan.windows) * SAMPLE_BYTES


def windows_of(length_s: float) -> list[float]:
    """Lengths of the windows of so much speech: 30 s each, the last one what is left.

    >>> windows_of(75.0), windows_of(30.0)
    ([30.0, 30.0, 15.0], [30.0])
    """
    full, rest_s = divmod(length_s, WINDOW_LIMIT_S)
    return [WINDOW_LIMIT_S] * int(full) + ([rest_s] if rest_s >= 1 / SAMPLE_RATE_HZ else [])


def plan_of(lengths_s: Sequence[float]) -> Plan:
    """A mono plan of windows of these lengths, back to back."""
    windows, first = [], 0
    for index, length_s in enumerate(lengths_s):
        count = round(length_s * SAMPLE_RATE_HZ)
        from_s = first / SAMPLE_RATE_HZ
        piece = Piece(0.0, from_s, count / SAMPLE_RATE_HZ)
        windows.append(Window(index, 0, first, count, (piece,)))
        first += count
    total_s = first / SAMPLE_RATE_HZ
    return Plan(total_s, total_s, ("mono",), "one channel", tuple(windows))


def hollow(lengths_s: Sequence[float]) -> list[Clip]:
    """Jobs of these lengths, seconds, without sound."""
    return [
        Clip(f"{number:04}", plan_of(windows_of(length_s)), None)
        for number, length_s in enumerate(lengths_s)
    ]


def spoken(lengths_s: Sequence[float], seed: int) -> list[Clip]:
    """Jobs of these lengths, seconds, of speech. Raises ValueError for one beyond a window."""
    if max(lengths_s, default=0.0) > WINDOW_LIMIT_S:
        raise ValueError(f"a clip is one window: at most {WINDOW_LIMIT_S:g} s")
    chance = random.Random(seed)
    whole = np.concatenate([speech(piece) for piece in PIECES])
    clips = []
    for number, length_s in enumerate(lengths_s):
        plan = plan_of([length_s])
        at = chance.randrange(len(whole)) + np.arange(plan.windows[0].sample_count)
        clips.append(Clip(f"{number:04}", plan, whole.take(at, mode="wrap").tobytes()))
    return clips
