"""A crash point that does not exist is refused: a test that names it would pass without a crash."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pipeline.crash_points import POINTS, VARIABLE


@pytest.mark.parametrize(
    ("named", "taken"), [("after_grnat", False), ("", True), (POINTS[0], True)]
)
def test_only_a_point_that_exists_is_taken(named: str, taken: bool) -> None:
    argv = [sys.executable, "-c", "import pipeline.crash_points"]
    env = {**os.environ, VARIABLE: named}
    told = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert (told.returncode == 0) is taken
    if not taken:
        assert f"{VARIABLE}={named!r}: expected one of accept_after_store, " in told.stderr
