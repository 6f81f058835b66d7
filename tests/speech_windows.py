"""Windows of real speech for tests of hearing, cut and packed as the survey does it."""

from __future__ import annotations

from typing import Any

from bench.sets import RECORDINGS, surveyed
from pipeline.engine import Heard, SpeechEngine

FILES = ("greeting_mulaw_8k.wav", "bill_gsm_8k.wav", "new_address.mp3", "lost_phone.opus")
FILES += ("hotel.flac", "wrong_table.m4a", "late_flight.ogg", "browser.webm")


def speech_windows(count: int) -> dict[str, bytes]:
    """The first window of `count` recordings, by the name of their file."""
    windows = {}
    for name in FILES[:count]:
        plan, packed = surveyed(RECORDINGS / name)
        windows[name] = packed[: plan.windows[0].sample_count * 2]
    return windows


async def hear(engine: SpeechEngine, pcm: bytes, language: str = "en", **asked: Any) -> Heard:
    """A window through an engine: made ready, then heard."""
    return await engine.transcribe(await engine.prepare(pcm, language=language, **asked))
