"""`fairscribe submit` of many small recordings, killed at half and run again: each exactly once?

    python -m bench.submit [--files 2000] [--parallel 4] [--no-kill]

Everything is up, with the echo engine. Prints one JSON object: how many names of files have one
row in Postgres, two, or none (`once`, `twice`, `missing`), files a second of both runs, how many
got a transcript. Exits with 0 when every file has exactly one job and a transcript.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

from bench.demo import CLI, RECORDINGS, everything_up, throwaway_home

RATE_HZ = 8000
"""Samples a second, of one byte each."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.submit", description="Bulk in, interrupted.")
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--no-kill", action="store_true", help="one run without interruption")
    asked = parser.parse_args()
    os.environ["FAIRSCRIBE_ENGINE"] = "echo"
    for number in (signal.SIGTERM, signal.SIGHUP):  # leave no folder behind then either
        signal.signal(number, lambda *_: sys.exit(1))
    with throwaway_home() as home:
        calls = home / "calls"
        size_bytes = make_recordings(calls, asked.files)
        with everything_up(home / "state") as (up, env):
            env = {**env, "XDG_STATE_HOME": str(home / "journals")}
            url = up["database_url"].replace("+psycopg", "", 1)
            with psycopg.connect(url, autocommit=True) as postgres:
                told = measure(postgres, env, calls, asked)
    print(json.dumps({**told, "mb": round(size_bytes / 1e6, 1)}), flush=True)
    return 0 if told["once"] == told["completed"] == asked.files else 1


def make_recordings(folder: Path, count: int) -> int:
    """A second each of a call (mu-law WAV), up to 3,000 of them not alike; their bytes together."""
    folder.mkdir(parents=True)
    call = (RECORDINGS / "trunk.ulaw").read_bytes()
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 7, 1, RATE_HZ, RATE_HZ, 1, 8)
    head = struct.pack("<4sI4s", b"RIFF", 36 + RATE_HZ, b"WAVE") + form
    head += struct.pack("<4sI", b"data", RATE_HZ)
    for n in range(count):
        start = 20 * n % (len(call) - RATE_HZ)
        (folder / f"call-{n:05}.wav").write_bytes(head + call[start : start + RATE_HZ])
    return count * (len(head) + RATE_HZ)


def measure(
    postgres: psycopg.Connection, env: dict[str, str], calls: Path, asked: argparse.Namespace
) -> dict[str, Any]:
    """Submit, kill, submit; what Postgres has then."""
    words = [*CLI, "submit", str(calls), "--parallel", str(asked.parallel), "--json"]
    first: dict[str, Any] = {}
    if not asked.no_kill:
        first = killed_at_half(postgres, env, words, asked.files // 2)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began_s = time.monotonic()
    ran = subprocess.run(words, env=env, capture_output=True, text=True)
    run_s = time.monotonic() - began_s
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ran.returncode:
        raise SystemExit(f"submit ended with {ran.returncode}: {ran.stderr}")
    answer = json.loads(ran.stdout)
    sent = asked.files - answer["resumed"]
    subprocess.run([*CLI, "watch", answer["batch_id"]], env=env, capture_output=True)
    rows = postgres.execute("SELECT file_name, count(*) FROM jobs GROUP BY 1").fetchall()
    done = postgres.execute("SELECT count(*) FROM transcripts").fetchone()
    return {
        "files": asked.files,
        "parallel": asked.parallel,
        "once": sum(count == 1 for _, count in rows),
        "twice": sum(count > 1 for _, count in rows),
        "missing": asked.files - len(rows),
        "completed": done[0] if done else 0,
        "said": ran.stderr.strip().splitlines()[:1],
        **first,
        "sent_by_last_run": sent,
        "last_run_s": round(run_s, 2),
        "last_run_cpu_s": round(
            used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime, 2
        ),
        "files_a_s": round(sent / run_s, 1),
    }


def killed_at_half(
    postgres: psycopg.Connection, env: dict[str, str], words: list[str], half: int
) -> dict[str, Any]:
    """Kill -9 the submission once half of the jobs are there."""
    count, began_s = 0, time.monotonic()
    process = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL)
    while count < half and process.poll() is None:
        row = postgres.execute("SELECT count(*) FROM jobs").fetchone()
        count = row[0] if row else 0
        time.sleep(0.02)
    run_s = time.monotonic() - began_s
    process.kill()
    process.wait()
    return {
        "killed_at": count,
        "first_run_s": round(run_s, 2),
        "first_files_a_s": round(count / run_s, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
