"""What the documents tell people to type is typed here, against a house that runs.

Every ```sh and ```python block of README.md, docs/api.md, docs/cli.md, docs/webhooks.md and
docs/retention.md runs as it stands, in the order of its page, but for the addresses and ids it uses
as examples. Where a ```json block follows, the answer must have its shape: the same keys, at every
depth. The house has the echo engine: words are not compared here.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.journey.house import CLI, RECORDINGS, ROOT, House

PAGES = (
    *("README.md", "docs/api.md", "docs/cli.md"),
    *("docs/webhooks.md", "docs/retention.md"),
)

RESTING = re.compile(r"^make (demo|up|test|verify|setup|check)$")
"""Commands that test, or start a house, themselves: that they exist is all that is asked here."""

ELSEWHERE = re.compile(r"^fairscribe restore ")
"""Wants an empty installation, which tests/integration/test_backup.py gives it."""

RUNS = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}

SAMPLE_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|JOB_ID")

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """One block of commands, and the answer the page shows for it."""

    page: str
    line: int
    language: str
    commands: str
    answer: Any = None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def examples(page: str) -> list[Example]:
    """The blocks of a page that can be run, in order."""
    text = (ROOT / page).read_text("utf-8")
    found: list[Example] = []
    blocks = list(FENCE.finditer(text))
    for n, block in enumerate(blocks):
        if block[1] not in RUNS:
            continue
        after = blocks[n + 1] if n + 1 < len(blocks) else None
        # an answer stands right below its command
        shown = after and after[1] == "json" and not text[block.end() : after.start()].strip()
        line = text.count("\n", 0, block.start()) + 1
        found.append(
            Example(page, line, block[1], block[2], json.loads(after[2]) if shown else None)
        )
    return found


def shape(value: Any) -> Any:
    """What is promised of an answer: its keys at every depth, of lists what their elements have.

    Metadata is the caller's, and what is null or empty in an example promises nothing about inside.
    """
    if isinstance(value, dict):
        return {key: {} if key == "metadata" else shape(inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return None


def fits(promised: Any, given: Any) -> bool:
    """Whether an answer's shape is the one promised; null and empty lists fit anything."""
    if not promised or not given:
        return True
    if isinstance(promised, dict) and isinstance(given, dict):
        return promised.keys() == given.keys() and all(
            fits(promised[key], given[key]) for key in promised
        )
    if isinstance(promised, list) and isinstance(given, list):
        return fits(promised[0], given[0])
    return type(promised) is type(given)


@pytest.fixture(scope="module")
def up(running: Any) -> Iterator[House]:
    with running(ENGINE="echo", ECHO_FIXED_S="0.02", ECHO_PER_SECOND_S="0.001") as house:
        yield house


@pytest.fixture(scope="module")
def folder(up: House) -> Path:
    """Where the commands run: what the pages suppose to lie there."""
    here = up.root / "typed"
    here.mkdir()
    (here / "bench").symlink_to(ROOT / "bench")
    (here / ".venv" / "bin").mkdir(parents=True)
    (here / ".venv" / "bin" / "fairscribe").symlink_to(CLI)
    shutil.copy(RECORDINGS / "hotel.flac", here / "call-1.wav")
    shutil.copy(RECORDINGS / "new_address.mp3", here / "call-2.mp3")
    shutil.copy(RECORDINGS / "hotel.flac", here / "anruf.wav")
    return here


@pytest.fixture(scope="module")
def job_for(up: House) -> Callable[[str], str]:
    """A job in the state that a command supposes."""

    def choose(commands: str) -> str:
        retried = "retry" in commands
        name = "long_call.mp3" if retried else "hotel.flac"
        (job_id,) = up.upload(RECORDINGS / name, "documents").values()
        if retried:
            up.post(f"/v1/jobs/{job_id}/cancel")
        else:
            assert up.get(f"/v1/jobs/{job_id}?wait=30")["status"] == "completed"
        return job_id

    return choose


@pytest.mark.parametrize("example", [e for page in PAGES for e in examples(page)], ids=str)
def test_what_a_page_tells_people_to_type_works(
    example: Example, up: House, folder: Path, job_for: Callable[[str], str]
) -> None:
    commands = example.commands
    for line in commands.splitlines():
        if RESTING.match(line.strip()):
            subprocess.run(
                ["make", "-n", line.split()[1]], cwd=ROOT, check=True, capture_output=True
            )
    commands = "\n".join(
        line
        for line in commands.splitlines()
        if not (RESTING.match(line.strip()) or ELSEWHERE.match(line.strip()))
    )
    commands = commands.replace("/backups/", f"{folder}/backups/")
    if SAMPLE_ID.search(commands):
        commands = SAMPLE_ID.sub(job_for(commands), commands)
    for address in ("http://127.0.0.1:8000", "http://localhost:8000", "localhost:8000"):
        commands = commands.replace(address, up.up["api"])
    commands = commands.replace("http://127.0.0.1:5555", up.up["flower"])
    commands = re.sub(r"\bcurl\b", "curl --silent --show-error --fail", commands)
    env = up.env | {
        "PATH": f"{Path(CLI).parent}:{up.env['PATH']}",
        "FAIRSCRIBE_API_URL": up.up["api"],
    }
    typed = subprocess.run(
        [*RUNS[example.language], commands],
        cwd=folder, env=env, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert typed.returncode == 0, f"{commands}\n{typed.stdout}\n{typed.stderr}"
    if example.answer is not None:
        given = json.loads(typed.stdout)
        promised = shape(example.answer)
        assert fits(promised, shape(given)), f"the page: {promised}\nthe answer: {given}"
