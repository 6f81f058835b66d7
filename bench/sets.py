"""Sets of recordings for measurements, mixed from bench/recordings, whose words are known.

calls0, calls40, calls60    calls of a minute or two with so many per cent of silence in them
short                       a sentence or two, 5 to 15 s
long                        five minutes and more
"""

from __future__ import annotations

import json
import os
import random
import wave
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np

from bench.truths import Said
from pipeline.intake.opening import NamelessFile
from pipeline.intake.pack import survey
from pipeline.recording import SAMPLE_RATE_HZ, Plan

RECORDINGS = Path(__file__).parent / "recordings"
CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus"
"""Recordings that break readers; beside the checkout or nowhere."""

PIECES = ("bill_gsm_8k.wav", "new_address.mp3", "wrong_table.m4a", "lost_phone.opus")
PIECES += ("browser.webm", "switchboard.aac", "late_flight.ogg", "trunk.ulaw", "hotel.flac")

SILENCE = {"calls0": 0.0, "calls40": 0.4, "calls60": 0.6, "short": 0.1, "long": 0.2}
"""Share of a recording's length, by set."""

SPEECH_S = {"calls0": 75.0, "calls40": 60.0, "calls60": 45.0, "short": 0.0, "long": 260.0}
"""Speech in one recording, at least; 0: one piece."""


@dataclass(frozen=True)
class Recording:
    """One file of a set, surveyed."""

    name: str
    path: Path
    words: str
    duration_s: float
    plan: Plan
    packed: bytes
    """Its packed speech, s16le at 16 kHz."""
    said: tuple[Said, ...] = ()
    """Its words by piece, with their times."""

    def window(self, index: int) -> bytes:
        """The packed samples of one window."""
        at = self.plan.windows[index]
        return self.packed[at.first_sample * 2 : (at.first_sample + at.sample_count) * 2]


def make_set(name: str, speech_s: float, folder: Path) -> list[Recording]:
    """Recordings of set `name` with about `speech_s` seconds of speech together, under `folder`."""
    said = json.loads((RECORDINGS / "manifest.json").read_text())
    spoken = {piece: speech(piece) for piece in PIECES}
    chance = random.Random(7)
    made: list[Recording] = []
    total_s = 0.0
    while total_s < speech_s:
        pieces: list[str] = []
        length_s = 0.0
        while not pieces or length_s < SPEECH_S[name]:
            pieces.append(chance.choice(PIECES))
            length_s += len(spoken[pieces[-1]]) / SAMPLE_RATE_HZ
        path = folder / f"{name}-{len(made):03}.wav"
        pause = np.zeros(int(length_s * SILENCE[name] / (1 - SILENCE[name]) / len(pieces) * 16_000))
        samples = np.concatenate([part for p in pieces for part in (spoken[p], pause)])
        _write(path, samples.astype("<i2"))
        plan, packed = surveyed(path)
        parts = _placed([(said[p], len(spoken[p])) for p in pieces], len(pause))
        words = " ".join(part.text for part in parts)
        made.append(Recording(path.name, path, words, plan.duration_s, plan, packed, parts))
        total_s += length_s
    return made


def _placed(pieces: list[tuple[str, int]], pause: int) -> tuple[Said, ...]:
    """Words and samples of each piece, with times; `pause` samples follow each."""
    found, at = [], 0
    for words, samples in pieces:
        first_s, last_s = at / SAMPLE_RATE_HZ, (at + samples) / SAMPLE_RATE_HZ
        found.append(Said(words, None, first_s, last_s))
        at += samples + pause
    return tuple(found)


def surveyed(file: Path) -> tuple[Plan, bytes]:
    """A recording's plan and its packed speech, s16le at 16 kHz, as the survey makes them."""
    fd = os.open(file, os.O_RDONLY)
    try:
        packed = BytesIO()
        plan = survey(NamelessFile(fd), packed, file.name, max_duration_s=7200).plan
    finally:
        os.close(fd)
    return plan, packed.getvalue()


def speech(piece: str) -> np.ndarray:
    """What is said in a shipped recording, without the silence around it."""
    _, packed = surveyed(RECORDINGS / piece)
    return np.frombuffer(packed, "<i2")


def _write(path: Path, samples: np.ndarray) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE_HZ)
        file.writeframes(samples.tobytes())
