"""Bombs through the sandbox: what memory and time each may take, probed and surveyed.

    python -m bench.bombs [--json] [--only NAME ...] [--probe-only] [--without-mutagen]

Beside each, `mutagen.File` on the same file, in a process of its own under the same limits. Memory
is the most the reading process ever held, in MB, with what it shares with the sandbox's server (see
"ordinary.wav" for what that is). Ends with 1 where a reading took more than the limits below.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.bomb_files import BOMBS
from bench.measured_child import LOG
from pipeline.errors import FairscribeError
from pipeline.intake import prober
from pipeline.intake.prober import Prober

MAX_DURATION_S = 4 * 3_600.0
PROBE_MEMORY_MB, PROBE_S = 600, 10.0
SURVEY_MEMORY_MB, SURVEY_S = 700, 240.0
"""What one reading may take, seconds of the processor, of a limit of 1,024 MB and 30 s for a probe
and 4,096 MB and 1,800 s for a survey of at most `MAX_DURATION_S`."""
_MUTAGEN = """
import re, resource, sys, time, mutagen
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
began, spent = time.monotonic(), time.process_time()
try:
    found = mutagen.File(sys.argv[1])
    said = None if found is None else found.info.length
except Exception as error:
    said = type(error).__name__
most = re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())
print(said, time.monotonic() - began, time.process_time() - spent, int(most[1]) / 1024)
"""


@dataclass(frozen=True)
class Taken:
    """What one reading took, and what came of it."""

    outcome: str
    seconds: float
    """By the clock on the wall."""
    cpu_s: float
    """Of the processor: whatever else the machine does is not in it."""
    memory_mb: float


class MeasuredProber(Prober):
    """The sandbox, and what its last reading took. For one thread."""

    def __init__(self, max_duration_s: float = MAX_DURATION_S) -> None:
        self._log = tempfile.NamedTemporaryFile("r")  # noqa: SIM115  lives as long as we do
        real, module = prober._environment, prober._CHILD_MODULE
        prober._environment = lambda: real() | {LOG: self._log.name}
        prober._CHILD_MODULE = "bench.measured_child"
        try:
            super().__init__(max_duration_s)
        finally:
            prober._environment, prober._CHILD_MODULE = real, module

    def last(self) -> tuple[float, float]:
        """The most memory (MB) and the processor time (s) of the child that answered last."""
        for _ in range(3_000):  # it answers first and ends then
            if lines := self._log.readlines():
                memory_kb, cpu_s = lines[-1].split()
                return int(memory_kb) / 1024, float(cpu_s)
            time.sleep(0.01)
        raise TimeoutError("the sandbox's server does not tell what its child took")


def taken(through: MeasuredProber, read: Callable[[], Any], says: Callable[[Any], str]) -> Taken:
    """Read once, measured."""
    began_s = time.monotonic()
    try:
        outcome = says(read())
    except FairscribeError as refused:
        outcome = refused.code
    took_s = time.monotonic() - began_s
    memory_mb, cpu_s = through.last()
    return Taken(outcome, round(took_s, 2), round(cpu_s, 2), round(memory_mb, 1))


def probe(through: MeasuredProber, path: Path) -> Taken:
    """Probe a file, measured."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return taken(
            through,
            lambda: through.probe(fd, path.name),
            lambda p: f"{p.duration_s:.2f} s by {p.source}",
        )
    finally:
        os.close(fd)


def survey(through: MeasuredProber, path: Path) -> Taken:
    """Survey a file, measured; its packed speech is thrown away."""
    fd = os.open(path, os.O_RDONLY)
    try:
        with tempfile.TemporaryFile() as out:
            return taken(
                through,
                lambda: through.survey(fd, out.fileno(), path.name),
                lambda report: (
                    f"{report.plan.duration_s:.2f} s, {len(report.plan.windows)} windows"
                ),
            )
    finally:
        os.close(fd)


def mutagen_file(path: Path, memory_bytes: int = 1 << 30, wall_s: float = 30.0) -> Taken:
    """`mutagen.File` in a process with the limits of a probe."""
    began_s = time.monotonic()
    command = [sys.executable, "-c", _MUTAGEN, str(path), str(memory_bytes)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=wall_s)
    except subprocess.TimeoutExpired:
        return Taken("not done in time", wall_s, wall_s, 0.0)
    if ran.returncode:
        return Taken(f"died ({ran.returncode})", round(time.monotonic() - began_s, 2), 0.0, 0.0)
    said, *numbers = ran.stdout.split()
    seconds, cpu_s, most_mb = map(float, numbers)
    return Taken(said, round(seconds, 2), round(cpu_s, 2), round(most_mb, 1))


def run(names: list[str], *, surveyed: bool, beside: bool) -> dict[str, dict[str, Any]]:
    """Each bomb made in a folder of its own, read, and removed."""
    through = MeasuredProber()
    found: dict[str, dict[str, Any]] = {}
    try:
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / name
                BOMBS[name](path)
                row: dict[str, Any] = {"size_bytes": path.stat().st_size}
                row["probe"] = asdict(probe(through, path))
                if surveyed:
                    row["survey"] = asdict(survey(through, path))
                if beside:
                    row["mutagen"] = asdict(mutagen_file(path))
                found[name] = row
    finally:
        through.close()
    return found


def exceeded(found: dict[str, dict[str, Any]]) -> list[str]:
    """Which reading of which bomb took more than it may."""
    most = {"probe": (PROBE_MEMORY_MB, PROBE_S), "survey": (SURVEY_MEMORY_MB, SURVEY_S)}
    return [
        f"{name}: {verb} took {row[verb]['memory_mb']} MB and {row[verb]['cpu_s']} s"
        for name, row in found.items()
        for verb, (memory_mb, seconds) in most.items()
        if verb in row and (row[verb]["memory_mb"] > memory_mb or row[verb]["cpu_s"] > seconds)
    ]


def main() -> None:
    asked = argparse.ArgumentParser(
        prog="python -m bench.bombs", description=__doc__.split("\n")[0]
    )
    asked.add_argument("--only", nargs="*", choices=list(BOMBS), default=list(BOMBS))
    asked.add_argument("--probe-only", action="store_true")
    asked.add_argument("--without-mutagen", action="store_true")
    asked.add_argument("--json", action="store_true")
    given = asked.parse_args()
    found = run(given.only, surveyed=not given.probe_only, beside=not given.without_mutagen)
    over = exceeded(found)
    if given.json:
        print(json.dumps({"bombs": found, "exceeded": over}, indent=1))
    else:
        for name, row in found.items():
            print(f"{name:26}{row['size_bytes']:>12,} bytes")
            for verb in ("probe", "survey", "mutagen"):
                if verb in row:
                    took = Taken(**row[verb])
                    cost = (
                        f"{took.cpu_s:>8.2f} s of {took.seconds:>6.2f} s {took.memory_mb:>8.1f} MB"
                    )
                    print(f"  {verb:9}{cost}  {took.outcome}")
        print("\n".join(over))
    sys.exit(bool(over))


if __name__ == "__main__":
    main()
