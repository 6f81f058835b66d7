"""Damaged files through the real sandbox: does anything crash, hang, or answer nonsense?

    python -m bench.fuzz [--files N] [--seconds S] [--seed S] [--threads N] [--json]
    python -m bench.fuzz --seed S --only N [--keep FOLDER]     one file of a run, made again

File N of a seed is always the same, as long as the whole files (`bench/seeds.py`; their digest is
printed) are. Each is probed; every `SURVEY_EVERY`th is surveyed too. Prints files a second, what
came of them, `stopped` (what parsers died of, and who exceeded a limit), the slowest, and `wrong`:
whatever must not happen. Ends with 1 where something did. Ctrl-C ends it with its report so far.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import psutil

from bench.mutations import mutated
from bench.seeds import Seed, digest, seeds
from pipeline.errors import FairscribeError, LimitExceeded, ParserCrashed, RecordingRefused
from pipeline.intake.prober import Prober
from pipeline.recording import (
    SAMPLE_RATE_HZ,
    WINDOW_LIMIT_S,
    DurationSource,
    Plan,
    Probe,
    SurveyReport,
)

SURVEY_EVERY = 8
MAX_DURATION_S = 4 * 3_600.0
PROBE_WALL_S, SURVEY_WALL_S = 10.0, 60.0
"""Limits of one file, tighter than the product's (30 s and 1,800 s)."""
GRACE_S = 6.0
"""The server kills a child that disarmed its clock this much later at most, and says so."""
MOST_RATE_HZ, MOST_CHANNELS = 768_000, 64
NAMES = ("call.wav", "call.ulaw", "call.vox", "call.g722", "-rf --help.wav", "", "\u202e\n.mp3")


@dataclass(frozen=True)
class Case:
    """One damaged file."""

    number: int
    seed_name: str
    file_name: str
    mutations: list[str]
    content: bytes

    def told(self) -> dict[str, Any]:
        """Enough to make it again."""
        told = {**asdict(self), "size_bytes": len(self.content)}
        del told["content"]
        return told


def case(run_seed: int, number: int, whole: tuple[Seed, ...]) -> Case:
    """File `number` of a run: the same whenever it is asked for."""
    chance = random.Random(f"{run_seed}:{number}")
    seed, other = chance.choice(whole), chance.choice(whole)
    content, done = mutated(seed.content, other.content, chance)
    name = seed.name.rpartition("/")[2] if chance.random() < 0.9 else chance.choice(NAMES)
    return Case(number, seed.name, name, done, content)


class Fuzz:
    """A run: what came of each file, and whatever must not have happened."""

    def __init__(self, run_seed: int, whole: tuple[Seed, ...]) -> None:
        self._run_seed = run_seed
        self._whole = whole
        self._lock = threading.Lock()
        self._outcomes: Counter[str] = Counter()
        self._by: dict[str, Counter[str]] = {}
        self._wrong: list[dict[str, Any]] = []
        self._stopped: list[dict[str, Any]] = []
        self._slowest: tuple[float, dict[str, Any]] = (0.0, {})
        self._files = 0
        self._stopping = threading.Event()
        self._prober = Prober(MAX_DURATION_S, PROBE_WALL_S, SURVEY_WALL_S)
        with _in_memory(b"#!AMR\n\x3c" + bytes(31)) as fd:
            self._prober.probe(fd, "warm.amr")
        self._servers = _servers()
        self._began_s = time.monotonic()

    def stop(self, *_: object) -> None:
        """Begin no further file."""
        self._stopping.set()

    def run(self, numbers: Iterator[int], threads: int, until_s: float) -> None:
        """Try these files until there are no more or `until_s` (monotonic) has come."""
        turn = threading.Lock()

        def work() -> None:
            while time.monotonic() < until_s and not self._stopping.is_set():
                with turn:
                    number = next(numbers, None)
                if number is None:
                    return
                self.try_one(case(self._run_seed, number, self._whole))

        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(work) for _ in range(threads)]:
                done.result()

    def try_one(self, damaged: Case) -> None:
        """Probe a file and, in its turn, survey it; note what came of it."""
        with _in_memory(damaged.content) as fd:
            self._ask("probe", PROBE_WALL_S, damaged, lambda: self._probed(fd, damaged))
            if damaged.number % SURVEY_EVERY == 0:
                self._ask("survey", SURVEY_WALL_S, damaged, lambda: self._surveyed(fd, damaged))
        with self._lock:
            self._files += 1

    def report(self) -> dict[str, Any]:
        """Everything learned, and whether the sandbox's server lived through it."""
        took_s = time.monotonic() - self._began_s
        if _servers() != self._servers:
            self._wrong.append({"what": "the sandbox's server died"})
        self._prober.close()
        slowest_s, slowest = self._slowest
        return {
            "seed": self._run_seed,
            "seeds": len(self._whole),
            "seeds_digest": digest(self._whole),
            "files": self._files,
            "surveyed": sum(count for name, count in self._outcomes.items() if name[0] == "s"),
            "seconds": round(took_s, 1),
            "files_a_second": round(self._files / took_s, 1),
            "outcomes": dict(self._outcomes.most_common()),
            "by_seed": {name: dict(count) for name, count in sorted(self._by.items())},
            "slowest": {"ms": round(slowest_s * 1000), **slowest},
            "stopped": self._stopped,
            "wrong": self._wrong,
        }

    def _probed(self, fd: int, damaged: Case) -> tuple[str, str | None]:
        found = self._prober.probe(fd, damaged.file_name)
        return f"probe {found.source}", insane_probe(found)

    def _surveyed(self, fd: int, damaged: Case) -> tuple[str, str | None]:
        with _in_memory(b"") as out:
            found = self._prober.survey(fd, out, damaged.file_name)
            return "survey done", insane_survey(found, os.fstat(out).st_size)

    def _ask(self, verb: str, wall_s: float, damaged: Case, ask: Any) -> None:
        began_s = time.monotonic()
        message, stopped = "", False
        try:
            outcome, wrong = ask()
        except RecordingRefused as refused:
            outcome, wrong = f"{verb} refused: {refused.code}", None
            stopped = isinstance(refused, ParserCrashed | LimitExceeded)
            message = refused.message
        except FairscribeError as error:
            outcome, wrong = f"{verb} failed: {error.code}", f"not a refusal: {error.message}"
        except Exception as error:
            outcome, wrong = f"{verb} raised", f"{type(error).__name__}: {error}"
        took_s = time.monotonic() - began_s
        if took_s > wall_s + GRACE_S:
            wrong = f"{verb} took {took_s:.1f} s, its limit is {wall_s:g} s"
        with self._lock:
            self._outcomes[outcome] += 1
            self._by.setdefault(damaged.seed_name, Counter())[outcome] += 1
            if wrong is not None:
                self._wrong.append({"what": wrong, **damaged.told()})
            if stopped:
                self._stopped.append({"what": f"{outcome}: {message}", **damaged.told()})
            if took_s > self._slowest[0]:
                self._slowest = took_s, {"verb": verb, **damaged.told()}


def insane_probe(found: Probe) -> str | None:
    """What no recording can be; None when this one can."""
    if not 0 < found.duration_s <= MAX_DURATION_S:  # False for NaN too
        return f"a length of {found.duration_s} s"
    if found.source not in get_args(DurationSource) or not found.container or not found.codec:
        return f"source {found.source!r}, container {found.container!r}, codec {found.codec!r}"
    if not 0 < found.sample_rate_hz <= MOST_RATE_HZ or not 0 < found.channels <= MOST_CHANNELS:
        return f"{found.sample_rate_hz} Hz in {found.channels} channels"
    return None


def insane_survey(found: SurveyReport, size_bytes: int) -> str | None:
    """What no survey can have found, `size_bytes` being what it wrote; None when it can."""
    plan = found.plan
    if not 0 < plan.duration_s <= MAX_DURATION_S or not math.isfinite(plan.speech_s):
        return f"a length of {plan.duration_s} s with {plan.speech_s} s of speech"
    if size_bytes != 2 * sum(window.sample_count for window in plan.windows):
        return f"{size_bytes} bytes of speech for a plan of other windows"
    if not plan.channels or Plan.from_json(plan.to_json()) != plan:
        return "a plan that cannot be kept"
    for window in plan.windows:
        if not 0 < window.sample_count <= WINDOW_LIMIT_S * SAMPLE_RATE_HZ:
            return f"a window of {window.sample_count} samples"
        if not 0 <= window.channel < len(plan.channels):
            return f"a window of channel {window.channel}"
        if any(
            p.start_s < 0 or p.start_s + p.length_s > plan.duration_s + 1 for p in window.pieces
        ):
            return "speech outside the recording"
    return None


def _servers() -> set[int]:
    """Processes of ours that are a sandbox's server."""
    found = set()
    for child in psutil.Process().children():
        try:
            if any("prober_child" in word for word in child.cmdline()):
                found.add(child.pid)
        except psutil.NoSuchProcess:
            continue
    return found


@contextmanager
def _in_memory(content: bytes) -> Iterator[int]:
    fd = os.memfd_create("damaged")
    try:
        os.write(fd, content)
        yield fd
    finally:
        os.close(fd)


def fuzz(run_seed: int, numbers: Iterator[int], threads: int, seconds: float) -> dict[str, Any]:
    """Try these files for at most so many seconds; the report as JSON values."""
    whole = seeds()
    tried = Fuzz(run_seed, whole)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, tried.stop)
    tried.run(numbers, threads, time.monotonic() + seconds)
    return tried.report()


def main() -> None:
    asked = argparse.ArgumentParser(prog="python -m bench.fuzz", description=__doc__.split("\n")[0])
    asked.add_argument("--files", type=int, default=100_000)
    asked.add_argument("--seconds", type=float, default=math.inf, help="stop after so many")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--threads", type=int, default=3)
    asked.add_argument("--only", type=int, help="the number of the one file to try")
    asked.add_argument("--keep", type=Path, help="write the file of --only into this folder")
    asked.add_argument("--json", action="store_true", help="the whole report, for programs")
    given = asked.parse_args()
    numbers = itertools.count() if given.files < 0 else iter(range(given.files))
    if given.only is not None:
        numbers = iter((given.only,))
        if given.keep:
            damaged = case(given.seed, given.only, seeds())
            (given.keep / f"{given.seed}-{given.only}").write_bytes(damaged.content)
    found = fuzz(given.seed, numbers, given.threads, given.seconds)
    if not given.json:
        del found["by_seed"]
    print(json.dumps(found, indent=1))
    sys.exit(bool(found["wrong"]))


if __name__ == "__main__":
    main()
