"""What a survey costs: two sides of a call come in, seconds of the processor and memory go out.

The call is repeated until it is long enough and written as most recorders do: WAV, 8 kHz, 16 bit, a
side a channel. Its parts are measured in this process, then the whole in the sandbox.
"""

from __future__ import annotations

import os
import tempfile
import time
import wave
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import av
import numpy as np

from bench.bombs import MeasuredProber, Taken, survey
from bench.tones import RATE, Samples
from pipeline.intake.channels import plan_channels
from pipeline.intake.decode import decode
from pipeline.intake.leaks import without_leaks
from pipeline.intake.opening import NamelessFile
from pipeline.intake.pack import quietest, write_packed
from pipeline.intake.speech import speech_spans
from pipeline.scheduling.windows import plan_windows

RECORDED_HZ = 8_000

Made = TypeVar("Made")


def survey_cost(sides: Sequence[Samples], hours: float) -> tuple[dict[str, float], Taken]:
    """Processor seconds of each part, and what the whole took in the sandbox."""
    longest_s = hours * 3_600 + 60
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "call.wav"
        _write(path, sides, hours)
        prober = MeasuredProber(longest_s)
        try:
            return _parts(path, longest_s), survey(prober, path)
        finally:
            prober.close()


def _parts(path: Path, longest_s: float) -> dict[str, float]:
    """As `pack.survey` goes through them."""
    spent: dict[str, float] = {}

    def timed(part: str, does: Callable[[], Made]) -> Made:
        began_s = time.process_time()
        done = does()
        spent[part] = time.process_time() - began_s
        return done

    with path.open("rb") as file:
        sound = timed("decode", lambda: decode(NamelessFile(file.fileno()), path.name, longest_s))
    chosen = timed("channels", lambda: plan_channels(sound.channels))
    kept = [sound.channels[number] for number in chosen.kept]
    found = timed("speech", lambda: [speech_spans(pcm) for pcm in kept])
    spans, _ = timed("leaks", lambda: without_leaks(found, kept))
    windows = timed(
        "windows", lambda: plan_windows(spans, quietest=lambda *place: quietest(kept, *place))
    )
    with open(os.devnull, "wb") as out:
        timed("packing", lambda: write_packed(windows, kept, out))
    return spent


def _write(path: Path, sides: Sequence[Samples], hours: float) -> None:
    """One after the other, the same call, for so many hours."""
    resampler = av.AudioResampler("s16", "stereo", RECORDED_HZ)
    frame = av.AudioFrame.from_ndarray(np.stack(sides, 1).reshape(1, -1), "s16", "stereo")
    frame.sample_rate = RATE
    parts = [*resampler.resample(frame), *resampler.resample(None)]
    once = b"".join(part.to_ndarray().tobytes() for part in parts)
    with wave.open(str(path), "wb") as out:
        out.setnchannels(2)
        out.setsampwidth(2)
        out.setframerate(RECORDED_HZ)
        left = int(hours * 3_600 * RECORDED_HZ) * 4
        while left > 0:
            out.writeframesraw(once[:left])
            left -= len(once)
