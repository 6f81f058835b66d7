"""Windows of real speech for tests of hearing, cut and packed as the survey does it."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path
from typing import Any

from pipeline.engine import Heard, SpeechEngine
from pipeline.intake.opening import NamelessFile
from pipeline.intake.pack import survey
from pipeline.recording import Plan

RECORDINGS = Path(__file__).resolve().parents[1] / "bench/recordings"

FILES = ("greeting_mulaw_8k.wav", "bill_gsm_8k.wav", "new_address.mp3", "lost_phone.opus")
FILES += ("hotel.flac", "wrong_table.m4a", "late_flight.ogg", "browser.webm")


def surveyed(file: Path) -> tuple[Plan, bytes]:
    """A recording's plan and its packed speech, s16le at 16 kHz."""
    fd = os.open(file, os.O_RDONLY)
    try:
        packed = BytesIO()
        plan = survey(NamelessFile(fd), packed, file.name, max_duration_s=3600).plan
    finally:
        os.close(fd)
    return plan, packed.getvalue()


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
