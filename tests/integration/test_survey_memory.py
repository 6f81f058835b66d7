"""No recording of allowed length dies of memory while it is surveyed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench import bombs
from bench.bombs import MeasuredProber
from pipeline.intake.decode import MOST_TRACK_S
from tests.sounds import joined, noise, sides, silence, voice, wav

LIMIT_MB = 4_096
"""The sandbox's, of address space."""
CODE_MB = 400
"""What of it no recording uses: programs and libraries, mapped and mostly not in memory."""
GROWTH = 9 / 8
"""A bytearray that grows asks for an eighth more than it needs."""


def test_a_survey_of_the_longest_recording_has_memory_enough(tmp_path: Path) -> None:
    left = joined([voice(4, seed=1), silence(4)])
    right = joined([silence(4), voice(4, seed=2, pitch_hz=210)])
    traces = [
        (own + other // 20 + noise(8, level=0.0008)).astype(np.int16)
        for own, other in ((left, right), (right, left))
    ]
    prober = MeasuredProber()
    took_mb = []
    try:
        for minutes in (3, 15):
            path = tmp_path / f"{minutes}.wav"
            path.write_bytes(wav(np.tile(sides(*traces), minutes * 60 // 8), channels=2))
            took_mb.append(bombs.survey(prober, path).memory_mb)
    finally:
        prober.close()
    for_an_hour_mb = (took_mb[1] - took_mb[0]) / (2 * 12 / 60)
    assert for_an_hour_mb > 100, "the samples of an hour of one channel are 110 MB"
    most_mb = took_mb[0] + for_an_hour_mb * MOST_TRACK_S / 3_600 * GROWTH
    assert most_mb + CODE_MB < LIMIT_MB
