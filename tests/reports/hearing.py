"""Sounds of reports through survey, windows, one engine, guards and merge, as a worker does it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.sets import PIECES
from pipeline.engine import Heard, SpeechEngine
from pipeline.intake.prober import Prober
from pipeline.recording import Plan, Segment
from pipeline.steps.hear import hear_out
from pipeline.transcript.merge import merge
from pipeline.weights import find_model
from tests.reports.files import (
    RATE_HZ,
    gated,
    line,
    louder,
    made,
    noise,
    said,
    stereo,
)
from tests.sounds import Samples, joined, silence, wav
from workers.vllm_engine import VllmEngine

APART_S = 50.0
"""The twelve sentences over ten minutes begin so far from each other, seconds."""
SENTENCES = ("hotel.flac", "trunk.ulaw", "lost_phone.opus", "switchboard.aac") * 3
VOCABULARY = "Kowalczyk, Wrzeszcz, Fairscribe Limited"


@dataclass(frozen=True)
class Words:
    """What one sound became."""

    plan: Plan
    segments: tuple[Segment, ...]
    heard: Mapping[int, Heard] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All words."""
        return " ".join(segment.text for segment in self.segments)

    @property
    def believed(self) -> str:
        """The words nobody doubts."""
        return " ".join(segment.text for segment in self.segments if not segment.doubt)


def times() -> list[float]:
    """When each of `SENTENCES` begins in "known times"."""
    return [3.0 + APART_S * number for number in range(len(SENTENCES))]


def known_times() -> Samples:
    """Sentences at known times, quiet between them."""
    sound = silence(times()[-1] + APART_S)
    for start_s, piece in zip(times(), SENTENCES, strict=True):
        speech, at = said(piece), round(start_s * RATE_HZ)
        sound[at : at + len(speech)] = speech
    return sound


def gapless() -> Samples:
    """Seventy seconds of speech without a pause between sentences."""
    return joined([said(piece) for piece in PIECES[:6]])


def sounds() -> dict[str, bytes]:
    """Files to hear, by what is in them."""
    quiet = louder(said("hotel.flac"), -40)
    noisy = louder(said("lost_phone.opus"), -26) + noise(len(said("lost_phone.opus")) / RATE_HZ,
                                                         level=0.006)  # fmt: skip
    thanks = louder(said("greeting_mulaw_8k.wav")[: 2 * RATE_HZ], -50)
    halves = joined([said("hotel.flac"), silence(24), said("trunk.ulaw")])
    twice = said("switchboard.aac")
    return {
        "silence": wav(silence(30)),
        "quiet noise": wav(noise(30, level=0.001)),
        "hold music, then speech": wav(joined([line("hold music", 40), said("hotel.flac")])),
        "ring tone, then speech": wav(joined([line("ring Europe", 35), said("hotel.flac")])),
        "noisy and low": wav(noisy.astype(np.int16)),
        "thanks at -50 dB": wav(joined([silence(2), thanks, silence(2)])),
        "two halves": wav(halves),
        "quiet and short": wav(quiet[: 2 * RATE_HZ]),
        "vocabulary": wav(joined([said("hotel.flac"), noise(8, level=0.02), said("trunk.ulaw")])),
        "one sound on both sides": stereo(twice, twice),
        "inverse phase": stereo(twice, -twice),
        "known times": wav(known_times()),
        "gapless": wav(gapless()),
        "three seconds": wav(said("hotel.flac")[: 3 * RATE_HZ]),
        "starts at 5 s": made(said("hotel.flac"), "mp4", "aac", starts_s=5.0),
        "MP3": made(said("hotel.flac"), "mp3", "libmp3lame"),
        "m4a": made(said("hotel.flac"), "mp4", "aac"),
        "tones only": wav(gated(30)),
    } | {f"clip of {n / 10} s": wav(said("hotel.flac")[: n * RATE_HZ // 10]) for n in (1, 3, 5, 8)}


def hear_all(prober: Prober, model: str, home: Path) -> dict[str, Words]:
    """Every sound through one engine."""
    surveyed = {name: _surveyed(prober, content) for name, content in sounds().items()}
    return asyncio.run(_hear_all(surveyed, find_model(model, home)))


async def _hear_all(surveyed: dict[str, tuple[Plan, bytes]], model: str) -> dict[str, Words]:
    engine = VllmEngine(model, kv_cache_gib=0.5)
    await engine.start()
    try:
        free = asyncio.Semaphore(engine.slots)
        heard = await asyncio.gather(
            *(
                _words(engine, free, plan, packed, VOCABULARY if name == "vocabulary" else "")
                for name, (plan, packed) in surveyed.items()
            )
        )
        return dict(zip(surveyed, heard, strict=True))
    finally:
        await engine.stop()


async def _words(
    engine: SpeechEngine, free: asyncio.Semaphore, plan: Plan, packed: bytes, vocabulary: str
) -> Words:
    async def one(index: int) -> Heard:
        window = plan.windows[index]
        at = 2 * window.first_sample
        pcm = packed[at : at + 2 * window.sample_count]
        async with free:
            prepared = await engine.prepare(pcm, language="en", vocabulary=vocabulary)
            return await hear_out(engine, prepared, window, plan.shared_s(window))

    answers = await asyncio.gather(*(one(window.index) for window in plan.windows))
    heard = dict(enumerate(answers))
    return Words(plan, merge(plan, heard), heard)


def _surveyed(prober: Prober, content: bytes) -> tuple[Plan, bytes]:
    fd, out = os.memfd_create("sound"), os.memfd_create("packed")
    try:
        os.write(fd, content)
        plan = prober.survey(fd, out, "call").plan
        return plan, os.pread(out, os.fstat(out).st_size, 0)
    finally:
        os.close(fd)
        os.close(out)
