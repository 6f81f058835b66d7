"""The whole line measured against vLLM's bare engine on the very same windows.

    fairscribe bench pipeline --model tiny.en|base --set calls0|calls40|calls60|short|long
                              --against raw [--speech-s S] [--slots N] [--rounds N] --json

Everything is up on this machine in a throw-away folder; beside it a process with vLLM alone waits.
After a pass of each that is not counted, in turn, three times: `raw`, the surveyed windows through
`LLM.generate`; `transcribe`, the same windows as a backlog of surveyed jobs through the real
worker, from the first grant to the last transcript; `pipeline`, the same files from the first
upload to the last transcript in Postgres. While one is measured the others are idle. Figures are
medians; every single one is told too, with the share of the machine that somebody else used
meanwhile.

    audio_s_per_s   seconds of recording a second of wall time
    ratio_raw       transcribe over raw: what of the engine's speed arrives
    ratio_raw_cpu   the same by CPU seconds of all processes, which foreign load disturbs less
    idle_share      slot seconds in which a slot was empty though a window waited (transcribe)
    waterfall       where the cores' time went in `pipeline`, shares of cores times wall time
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.backlog import Line
from bench.demo import everything_up, throwaway_home, word_error_rate
from bench.sets import SILENCE, Recording, make_set
from pipeline.weights import find_model

ROUNDS = 3
SPEECH_S = {"tiny.en": 800.0, "base": 500.0}
"""Speech in a set: a quarter of a minute and more of work for the bare engine."""

SHORT_SHARE = 0.45
"""Of that in a set of short recordings, whose windows are half empty."""

LIMIT_S = 420.0
"""No further round is begun when it would end later than this."""

LANGUAGE = "en"


def main() -> None:
    asked = arguments()
    began_s = time.monotonic()
    os.environ |= {"FAIRSCRIBE_MODEL": asked.model, "FAIRSCRIBE_ENGINE": "vllm"}
    with throwaway_home() as home:
        recordings = make_set(asked.set, asked.speech_s, folder(home))
        find_model(asked.model, home)  # written before two processes ask for it
        up_with = everything_up(home, SLOTS=str(asked.slots))
        with bare(asked, home, recordings) as raw, up_with as (up, _):
            line = Line(up, recordings)
            raw.wait_ready()
            runs = rounds(raw, line, asked, began_s)
    report = summary(asked, recordings, line.slots, runs)
    print(json.dumps(report) if asked.json else "\n".join(told(report)), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("fairscribe bench pipeline")
    parser.add_argument("--model", default="tiny.en", choices=sorted(SPEECH_S))
    parser.add_argument("--set", default="calls40", choices=sorted(SILENCE))
    parser.add_argument("--against", default="raw", choices=["raw", "raw-async"])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--slots", type=int, default=0, help="of both; 0: the device's own")
    parser.add_argument("--speech-s", type=float, help="seconds of speech in the set")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.speech_s is None:
        share = SHORT_SHARE if asked.set == "short" else 1.0
        asked.speech_s = SPEECH_S[asked.model] * share
    return asked


def folder(home: Path) -> Path:
    made = home / "set"
    made.mkdir(mode=0o755)
    return made


def rounds(
    raw: Bare, line: Line, asked: argparse.Namespace, began_s: float
) -> dict[str, list[dict[str, Any]]]:
    """All runs, in turn. Both engines are faster after their first pass, which is not counted."""
    runs: dict[str, list[dict[str, Any]]] = {"raw": [], "transcribe": [], "pipeline": []}
    raw.run()
    line.transcribe()
    for number in range(asked.rounds):
        round_s = time.monotonic()
        runs["raw"].append(with_foreign(raw.run, [raw.process.pid]))
        runs["transcribe"].append(with_foreign(line.transcribe, line.pids))
        runs["pipeline"].append(with_foreign(line.pipeline, line.pids))
        took_s = time.monotonic() - round_s
        if number and time.monotonic() - began_s + took_s > LIMIT_S:
            break
    return runs


def with_foreign(run: Any, pids: list[int]) -> dict[str, Any]:
    """What `run` tells, and the foreign load meanwhile."""
    with foreign_load(pids) as others:
        told: dict[str, Any] = run()
    return told | {"foreign": others.share}


@dataclass
class Others:
    """Processes that are not ours."""

    share: float = 0.0
    """Part of the machine's time that went to them; known afterwards."""


@contextmanager
def foreign_load(pids: list[int]) -> Iterator[Others]:
    """Measures what others than these processes and their children use, as long as it holds."""
    others, ours_s, all_s, began_s = Others(), cpu_of(pids), used_s(), time.monotonic()
    yield others
    span_s = (time.monotonic() - began_s) * (os.cpu_count() or 1)
    foreign_s = used_s() - all_s - (cpu_of(pids) - ours_s)
    others.share = round(max(0.0, foreign_s / span_s), 3)


def used_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def cpu_of(pids: list[int]) -> float:
    """CPU seconds of these processes and of all they started, ended ones included."""
    total_s = 0.0
    for pid in pids:
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for process in family:
            try:
                total_s += sum(process.cpu_times()[:4])
            except psutil.NoSuchProcess:
                continue
    return total_s


# -- the bare engine ------------------------------------------------------------------------


class Bare:
    """The process with vLLM alone."""

    def __init__(self, process: subprocess.Popen[str], recordings: list[Recording]) -> None:
        self.process, self._recordings = process, recordings

    def wait_ready(self) -> None:
        """Return once it is warm."""
        assert self.process.stdout is not None
        while (line := self.process.stdout.readline()) != "ready\n":
            if not line:
                raise SystemExit(f"the bare engine ended with {self.process.wait()}")

    def run(self) -> dict[str, Any]:
        """All windows once; {"seconds", "cpu_s", "heard": {file: words}}."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("run\n")
        self.process.stdin.flush()
        told = json.loads(self.process.stdout.readline())
        texts = iter(told.pop("texts"))
        told["heard"] = {
            r.name: " ".join(next(texts) for _ in r.plan.windows) for r in self._recordings
        }
        return dict(told)


@contextmanager
def bare(asked: argparse.Namespace, home: Path, recordings: list[Recording]) -> Iterator[Bare]:
    """The process with the windows of all recordings; ended at the end."""
    windows = home / "windows"
    windows.mkdir()
    number = 0
    for recording in recordings:
        for window in recording.plan.windows:
            (windows / f"{number:05}.pcm").write_bytes(recording.window(window.index))
            number += 1
    kind = "async" if asked.against == "raw-async" else "offline"
    words = [kind, str(home / "models" / asked.model), str(windows), str(asked.slots), LANGUAGE]
    with (home / "raw.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.raw", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        yield Bare(process, recordings)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


# -- what it comes to -----------------------------------------------------------------------


def summary(
    asked: argparse.Namespace,
    recordings: list[Recording],
    slots: int,
    runs: dict[str, list[dict[str, Any]]],
) -> dict[str, Any]:
    """The report."""
    audio_s = sum(r.duration_s for r in recordings)
    said = {r.name: r.words for r in recordings}
    speed = {kind: median(audio_s / run["seconds"] for run in all) for kind, all in runs.items()}
    cpu_s = {kind: median(run["cpu_s"] for run in all) for kind, all in runs.items()}
    wer = {kind: round(word_error_rate(said, all[-1]["heard"]), 4) for kind, all in runs.items()}
    return {
        "model": asked.model,
        "set": asked.set,
        "against": asked.against,
        "slots": slots,
        "recordings": len(recordings),
        "windows": sum(len(r.plan.windows) for r in recordings),
        "audio_s": round(audio_s, 1),
        "speech_s": round(sum(r.plan.speech_s for r in recordings), 1),
        "audio_s_per_s": {kind: round(value, 2) for kind, value in speed.items()},
        "wer": wer,
        "ratio_raw": round(speed["transcribe"] / speed["raw"], 4),
        "ratio_raw_cpu": round(cpu_s["raw"] / cpu_s["transcribe"], 4),
        "idle_share": round(median(run["idle_share"] for run in runs["transcribe"]), 4),
        "waterfall": middle(runs["pipeline"])["waterfall"],
        "runs": {kind: [figures(run) for run in all] for kind, all in runs.items()},
    }


def figures(run: dict[str, Any]) -> dict[str, Any]:
    """One run without its words."""
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in run.items() if k != "heard"}


def median(values: Any) -> float:
    return float(statistics.median(values))


def middle(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2]


def told(report: dict[str, Any]) -> list[str]:
    """The report for a person."""
    speed, wer = report["audio_s_per_s"], report["wer"]
    lines = [
        f"{report['model']}, {report['set']}: {report['recordings']} recordings, "
        f"{report['audio_s']:.0f} s, {report['windows']} windows, {report['slots']} slots"
    ]
    for kind in ("raw", "transcribe", "pipeline"):
        each = ", ".join(f"{run['seconds']:.1f}" for run in report["runs"][kind])
        lines.append(f"  {kind:<11}{speed[kind]:7.1f} x    WER {wer[kind]:6.1%}    ({each} s)")
    lines.append(f"  transcribe / raw  {report['ratio_raw']:.3f}")
    lines.append(f"  slots idle        {report['idle_share']:.1%}")
    lines += [f"  {part:<18}{share:6.1%}" for part, share in report["waterfall"].items()]
    return lines


if __name__ == "__main__":
    main()
