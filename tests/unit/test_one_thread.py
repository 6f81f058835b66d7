"""The survey's reckoning stays in one thread, also where nothing holds the libraries to one."""

from __future__ import annotations

import os
import subprocess
import sys

_TWO_SIDES = """
import time
import numpy as np
from pipeline.intake.channels import plan_channels
from pipeline.intake.leaks import without_leaks
from pipeline.recording import Span

left = (np.random.default_rng(1).normal(size=240 * 16_000) * 3_000).astype(np.int16)
right = np.concatenate((np.zeros(320, np.int16), left[:-320] // 20))
right[:480_000] = left[480_000:960_000]
began_s, all_began_s = time.thread_time(), time.process_time()
plan_channels([left, right])
_, left_out_s = without_leaks([[], [Span(0.0, 240.0)]], [left, right])
print(left_out_s, time.thread_time() - began_s, time.process_time() - all_began_s)
"""


def test_channels_and_leaks_are_reckoned_in_one_thread() -> None:
    """Threads that wait for each other took 20 s for what one does in 1 s."""
    free = {**os.environ, "OPENBLAS_NUM_THREADS": "4", "OMP_NUM_THREADS": "4"}
    ran = subprocess.run(
        [sys.executable, "-c", _TWO_SIDES], env=free, capture_output=True, text=True, check=True
    )
    left_out_s, own_s, all_s = map(float, ran.stdout.split())
    assert left_out_s > 100
    assert all_s < own_s + 0.05
