"""Speech whose every sentence has a known place: for measuring cuts and times.

Sentences are taken from bench/recordings/long_call.mp3, where 0.9 s lie between them; where
espeak-ng is installed, it reads the same words without a pause, faster.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import wave
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from bench.make_recordings import LINES
from bench.sets import RECORDINGS, surveyed
from pipeline.recording import SAMPLE_RATE_HZ

Samples = NDArray[np.int16]

BETWEEN_LINES_S = 0.5
"""A longer pause in long_call.mp3 is one between two sentences' lines."""

FRAME_S = 0.01
QUIET_DB = -30.0
"""A frame so far under a sentence's loud parts holds no sound of it."""
LONGEST_HUSH_S = 0.06
"""Of a pause inside gapless speech so much is kept: no longer than before a "p" or a "t"."""

NOISE = 10 ** (-60 / 20) * 32_768
"""Standard deviation of noise at -60 dB of full scale."""


@dataclass(frozen=True)
class Line:
    """Words with their sound, from the first to the last sample that can be heard."""

    text: str
    samples: Samples


@dataclass(frozen=True)
class Placed:
    """Words at a known place of a recording, seconds."""

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Spoken:
    """A recording of one channel with the place of all its words."""

    name: str
    samples: Samples
    placed: tuple[Placed, ...]


@cache
def lines() -> tuple[Line, ...]:
    """The 46 lines of the long call, two voices in turn; 26 differ, 20 come twice."""
    plan, packed = surveyed(RECORDINGS / "long_call.mp3")
    sound = np.frombuffer(packed, "<i2")
    groups: list[list[Samples]] = []
    ended_s = -1.0
    for window in plan.windows:
        for piece in window.pieces:
            first = window.first_sample + round(piece.at_s * SAMPLE_RATE_HZ)
            part = sound[first : first + round(piece.length_s * SAMPLE_RATE_HZ)]
            if piece.start_s - ended_s > BETWEEN_LINES_S or not groups:
                groups.append([])
            groups[-1].append(part)
            ended_s = piece.start_s + piece.length_s
    said = (LINES + LINES[:20])[: len(groups)]
    assert len(groups) == len(LINES) + 20, "the pauses of long_call.mp3 are not those of its lines"
    return tuple(
        Line(text, trimmed(np.concatenate(parts))) for text, parts in zip(said, groups, strict=True)
    )


def gapless(seed: int, length_s: float) -> Spoken:
    """Lines in an order drawn by `seed`, no pause in them or between them longer than a "p"."""
    parts: list[tuple[str, Samples]] = []
    total = 0
    for number in _order(seed):
        parts.append((lines()[number].text, squeezed(lines()[number].samples)))
        total += len(parts[-1][1])
        if total >= length_s * SAMPLE_RATE_HZ:
            break
    return _joined(f"gapless-{seed}", parts, [0.0] * len(parts))


def _order(seed: int) -> Iterator[int]:
    """The 26 lines in ever other orders. None comes again within ten: Whisper says a sentence once
    that is said twice in a row.
    """
    draw = np.random.default_rng(seed)
    last: list[int] = []
    while True:
        order = draw.permutation(len(LINES)).tolist()
        if not set(last[-10:]) & set(order[:10]):
            yield from order
            last = order


def read_aloud(seed: int, length_s: float, voice: str, words_a_minute: int) -> Spoken | None:
    """espeak-ng reading the lines as one breath each, without stops; None where it is missing."""
    if shutil.which("espeak-ng") is None:
        return None
    parts: list[tuple[str, Samples]] = []
    total = 0
    for number in _order(seed):
        text = LINES[number]
        sound = squeezed(
            trimmed(_read(text.replace(",", "").replace(".", ""), voice, words_a_minute))
        )
        parts.append((text, sound))
        total += len(sound)
        if total >= length_s * SAMPLE_RATE_HZ:
            break
    return _joined(f"espeak-{voice}-{words_a_minute}", parts, [0.0] * len(parts))


def with_pauses(seed: int, length_s: float) -> Spoken:
    """Lines with 0.4 to 8 s between them and noise at -60 dB throughout.

    Near each multiple of 29.2 s, where cutters of fixed windows drift, the pause is made to lie
    over it.
    """
    draw = np.random.default_rng(seed)
    parts: list[tuple[str, Samples]] = []
    pauses: list[float] = []
    at_s, tick_s = 0.0, 29.2
    while at_s < length_s:
        line = lines()[int(draw.integers(len(lines())))]
        pause_s = float(np.exp(draw.uniform(np.log(0.4), np.log(8.0))))
        line_s = len(line.samples) / SAMPLE_RATE_HZ
        if at_s + pause_s + line_s > tick_s - 0.2:
            pause_s = max(pause_s, tick_s + 0.2 - at_s) if at_s > tick_s - 7.8 else pause_s
            tick_s += 29.2
        parts.append((line.text, line.samples))
        pauses.append(pause_s)
        at_s += pause_s + line_s
    spoken = _joined(f"pauses-{seed}", parts, pauses)
    noise = draw.normal(0.0, NOISE, len(spoken.samples))
    loud = np.clip(spoken.samples + noise, -32_768, 32_767).astype(np.int16)
    return Spoken(spoken.name, loud, spoken.placed)


def trimmed(samples: Samples) -> Samples:
    """The sound without the quiet before and after it."""
    heard = np.flatnonzero(_loud(samples))
    step = round(FRAME_S * SAMPLE_RATE_HZ)
    return samples[heard[0] * step : (heard[-1] + 1) * step]


def squeezed(samples: Samples) -> Samples:
    """The sound with each hush in it cut to `LONGEST_HUSH_S`."""
    step = round(FRAME_S * SAMPLE_RATE_HZ)
    kept: list[int] = []
    hush = 0
    for number, loud in enumerate(_loud(samples)):
        hush = 0 if loud else hush + 1
        if hush * FRAME_S <= LONGEST_HUSH_S:
            kept.append(number)
    return np.concatenate([samples[n * step : (n + 1) * step] for n in kept])


def _loud(samples: Samples) -> NDArray[np.bool_]:
    step = round(FRAME_S * SAMPLE_RATE_HZ)
    frames = samples[: len(samples) // step * step].astype(np.float64).reshape(-1, step)
    level = np.sqrt((frames**2).mean(axis=1))
    loudest = np.percentile(level, 95)
    return level > loudest * 10 ** (QUIET_DB / 20)


def _joined(name: str, parts: list[tuple[str, Samples]], before_s: list[float]) -> Spoken:
    placed: list[Placed] = []
    sounds: list[Samples] = []
    at = 0
    for (text, sound), pause_s in zip(parts, before_s, strict=True):
        hush = np.zeros(round(pause_s * SAMPLE_RATE_HZ), np.int16)
        at += len(hush)
        ends = at + len(sound)
        placed.append(Placed(text, at / SAMPLE_RATE_HZ, ends / SAMPLE_RATE_HZ))
        sounds += [hush, sound]
        at = ends
    return Spoken(name, np.concatenate(sounds), tuple(placed))


def _read(text: str, voice: str, words_a_minute: int) -> Samples:
    command = ["espeak-ng", "-v", voice, "-s", str(words_a_minute), "--stdout", text]
    said = subprocess.run(command, check=True, capture_output=True).stdout
    with wave.open(io.BytesIO(said)) as file:
        rate = file.getframerate()
        sound = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float64)
    # from 22050 Hz: linear interpolation would fold high sounds down, so they go first
    spectrum = np.fft.rfft(sound)
    spectrum[round(len(sound) * 8_000 / rate) :] = 0
    smooth = np.fft.irfft(spectrum, len(sound))
    count = round(len(sound) * SAMPLE_RATE_HZ / rate)
    at = np.arange(count) * rate / SAMPLE_RATE_HZ
    return np.interp(at, np.arange(len(sound)), smooth).clip(-32_768, 32_767).astype(np.int16)
