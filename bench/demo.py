"""`make demo`: everything up in a throw-away folder, the shipped recordings through it, a table.

Prints as its last line {"recordings", "transcripts", "wer", "engine", "model", "seconds"}, and
exits with 0 when every recording was transcribed and nothing was left running.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jiwer
from rich import box
from rich.console import Console
from rich.table import Table
from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

from workers.die_with_parent import die_with_parent

RECORDINGS = Path(__file__).parent / "recordings"
CLI = [str(Path(sys.executable).with_name("fairscribe"))]
STOP_WITHIN_S = 90.0


def main() -> int:
    """Run the demo; the exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # leave no folder behind then either
        signal.signal(number, lambda *_: sys.exit(1))
    began_s = time.monotonic()
    said = json.loads((RECORDINGS / "manifest.json").read_text())
    with throwaway_home() as home, everything_up(home) as (up, env):
        files = [str(RECORDINGS / name) for name in said]
        subprocess.run([*CLI, "submit", *files, "--batch-id", "demo", "--watch"], env=env)
        jobs = ask(env, "list", "--batch", "demo")["jobs"]
        heard = {job["file_name"]: transcript(env, job) for job in jobs}
    wer = word_error_rate(said, heard)
    show(jobs, heard, said)
    done = [job for job in jobs if job["status"] == "completed"]
    summary = {
        "recordings": len(said),
        "transcripts": len(done),
        "wer": round(wer, 4),
        "engine": up["engine"],
        "model": up["model"],
        "seconds": round(time.monotonic() - began_s, 1),
    }
    print(json.dumps(summary), flush=True)
    return 0 if len(done) == len(said) else 1


@contextmanager
def throwaway_home() -> Iterator[Path]:
    """A state folder that the servers' own user may enter, gone at the end."""
    home = Path(tempfile.mkdtemp(prefix="fairscribe-demo-"))
    home.chmod(0o711)
    try:
        yield home
    finally:
        shutil.rmtree(home)


@contextmanager
def everything_up(home: Path, **settings: str) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """`fairscribe up` on free ports; its addresses and the environment that finds them.

    `settings` are FAIRSCRIBE_* variables without the prefix.
    """
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith("FAIRSCRIBE_")},
        **{k: v for k, v in os.environ.items() if k in ("FAIRSCRIBE_MODEL", "FAIRSCRIBE_ENGINE")},
        "FAIRSCRIBE_HOME": str(home),
        "FAIRSCRIBE_API_PORT": "0",
        "FAIRSCRIBE_FLOWER_PORT": "0",
        **{f"FAIRSCRIBE_{name}": value for name, value in settings.items()},
    }
    process = subprocess.Popen(
        [*CLI, "up", "--json"],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent(signal.SIGINT),  # whatever ends us, it is not left running
    )
    try:
        assert process.stdout is not None
        first_line = process.stdout.readline()
        if not first_line:
            raise SystemExit(f"`fairscribe up` ended with {process.wait()}; see above")
        yield json.loads(first_line), env
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(STOP_WITHIN_S)
    if code != 0:
        raise SystemExit(f"`fairscribe up` did not stop cleanly: {code}")


def ask(env: dict[str, str], *command: str) -> Any:
    """What a command of the CLI prints with --json."""
    answer = subprocess.run([*CLI, *command, "--json"], env=env, stdout=subprocess.PIPE, check=True)
    return json.loads(answer.stdout)


def transcript(env: dict[str, str], job: dict[str, Any]) -> str:
    """The words heard in a job; empty when it has none."""
    if job["status"] != "completed":
        return ""
    return str(ask(env, "get", job["id"])["transcript"]["text"])


def word_error_rate(said: dict[str, str], heard: dict[str, str]) -> float:
    """Over all words of all files, after Whisper's own normalisation of English."""
    normal = EnglishTextNormalizer({})
    truth = [normal(text) for text in said.values()]
    answer = [normal(heard.get(name, "")) for name in said]
    return float(jiwer.wer(truth, answer))


def show(jobs: list[dict[str, Any]], heard: dict[str, str], said: dict[str, str]) -> None:
    """The table: file, length and how it was found, wait, run, word error, words."""
    title = "Fairscribe demo, in the order of completion"
    table = Table(title=title, title_justify="left", box=box.SIMPLE, expand=True)
    for name, justify in [
        *(("file", "left"), ("length", "right"), ("found by", "left")),
        *(("wait", "right"), ("run", "right"), ("WER", "right"), ("text", "left")),
    ]:
        # the text takes what the others leave, on one line
        ratio = 1 if name == "text" else None
        table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis", ratio=ratio)
    for job in sorted(jobs, key=lambda job: job["completed_at"] or ""):
        name = job["file_name"]
        error = job["error"]["message"] if job["error"] else ""
        wer = word_error_rate({name: said[name]}, heard)
        table.add_row(
            name,
            seconds(job["duration_s"]),
            job["probed_source"] or "",
            seconds(job["wait_s"]),
            seconds(job["run_s"]),
            f"{wer:.0%}",
            error or heard[name],
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def seconds(value: float | None) -> str:
    """A time for the table."""
    return "" if value is None else f"{value:.1f} s"


if __name__ == "__main__":
    sys.exit(main())
