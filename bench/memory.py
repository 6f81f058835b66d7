"""What each part holds and costs, at rest and at work: python -m bench.memory

Everything is up in a throw-away folder, with the engine FAIRSCRIBE_ENGINE names (else echo). Prints
one line of JSON: for each part and its children together `rest_mb`, `work_mb` (proportional set
size, pages shared among processes divided by their users; at work the highest seen while 56
recordings pass) and `rest_cpu`, the share of one core it takes while nothing is to do.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from bench.demo import CLI, RECORDINGS, ask, everything_up, throwaway_home

SETTLE_S = 5.0
REST_S = 20.0
BATCHES = 4
LOOK_S = 0.5


def main() -> None:
    os.environ.setdefault("FAIRSCRIBE_ENGINE", "echo")
    files = sorted(str(file) for file in RECORDINGS.iterdir() if file.suffix != ".json")
    with throwaway_home() as home, everything_up(home) as (up, env):
        parts: dict[str, int] = up["pids"]
        time.sleep(SETTLE_S)
        before = each(parts, cpu_s)
        time.sleep(REST_S)
        spent = each(parts, cpu_s)
        rest = each(parts, pss_mb)
        sending = [
            subprocess.Popen(
                [*CLI, "submit", *files, "--batch-id", f"batch-{number}", "--watch"],
                env=env,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for number in range(BATCHES)
        ]
        work = dict(rest)
        while any(one.poll() is None for one in sending):
            work = {name: max(work[name], now) for name, now in each(parts, pss_mb).items()}
            time.sleep(LOOK_S)
        done = len(ask(env, "list", "--status", "completed", "--limit", "1000")["jobs"])
    figures = {
        name: {
            "rest_mb": round(rest[name]),
            "work_mb": round(work[name]),
            "rest_cpu": round((spent[name] - before[name]) / REST_S, 4),
        }
        for name in parts
        if rest[name]  # the migrations have ended
    }
    print(json.dumps({"engine": up["engine"], "completed": done, "parts": figures}), flush=True)


def each(parts: dict[str, int], measure: Callable[[psutil.Process], float]) -> dict[str, float]:
    """The sum of `measure` over each part and all it started."""
    found = dict.fromkeys(parts, 0.0)
    for name, pid in parts.items():
        if psutil.pid_exists(pid):
            top = psutil.Process(pid)
            for process in (top, *top.children(recursive=True)):
                try:
                    found[name] += measure(process)
                except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                    continue
    return found


def cpu_s(process: psutil.Process) -> float:
    """CPU seconds so far, ended children included."""
    return float(sum(process.cpu_times()[:4]))


def pss_mb(process: psutil.Process) -> float:
    """Proportional set size."""
    return sizes_mb(process.pid)["pss"]


def sizes_mb(pid: int) -> dict[str, int]:
    """{rss, pss} of a process, megabytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {line.split(":")[0]: int(line.split()[1]) // 1024 for line in lines}
    return {"rss": sizes["Rss"], "pss": sizes["Pss"]}


if __name__ == "__main__":
    main()
