"""A measurement that is killed leaves no house running."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from tests.journey.house import ROOT
from tests.servers import is_alive, throwaway_home, wait_until

MEASUREMENT = """
import json, sys, time
from pathlib import Path
from bench.demo import everything_up
with everything_up(Path(sys.argv[1]), ENGINE="echo") as (up, _):
    print(json.dumps(up), flush=True)
    time.sleep(600)
"""


def test_a_house_that_was_started_to_be_measured_ends_with_whoever_started_it() -> None:
    with throwaway_home() as home:
        words = [sys.executable, "-c", MEASUREMENT, str(home)]
        with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as measuring:
            try:
                assert measuring.stdout is not None
                json.loads(measuring.stdout.readline())  # all of it is up
                # up's pid, and those of the servers
                pids = [int(pid) for pid in _children(measuring.pid)]
                pids += [int(pid) for one in pids for pid in _children(one)]
            finally:
                measuring.send_signal(signal.SIGKILL)
        assert len(pids) > 3
        wait_until(lambda: not any(map(is_alive, pids)), 60, "everything of it has ended")


def _children(pid: int) -> list[str]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [child for task in tasks for child in task.read_text().split()]
