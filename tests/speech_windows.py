"""Windows of real speech for tests of hearing, cut and packed as the survey does it."""

from __future__ import annotations

import shutil
import subprocess
from io import BytesIO
from typing import Any

import av
import numpy as np
import pytest

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


def said(words: str, voice: str = "en-us") -> bytes:
    """Words as espeak-ng says them, a window of mono s16le at 16 kHz; skips where it is missing."""
    program = shutil.which("espeak-ng")
    if program is None:
        pytest.skip("espeak-ng is not installed")
    command = [program, "-v", voice, "-s", "150", "--stdout", words]
    wav = subprocess.run(command, capture_output=True, check=True).stdout
    resampler = av.AudioResampler("s16", "mono", 16_000)
    with av.open(BytesIO(wav), format="wav") as file:
        frames = [f for frame in file.decode(audio=0) for f in resampler.resample(frame)]
    frames += resampler.resample(None)
    return np.concatenate([frame.to_ndarray()[0] for frame in frames]).astype("<i2").tobytes()
