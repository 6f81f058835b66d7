"""How a worker's process ends when its puller does, and what one keeps of what it has done."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from typing import Any

import psutil
import pytest

from pipeline.job import TRANSCRIBE, State
from pipeline.parts import Parts
from pipeline.steps.transcribe import OpenJob
from tests.lines import eventually, pulling, states, surveyed_job
from workers.command_lines import command_line
from workers.echo_engine import EchoEngine
from workers.held import Held
from workers.puller import EXIT_PULLER_DIED
from workers.transcribe import TranscribeWork

FALLS_OVER = """
    from workers.pull_loop import PullLoop
    pause = PullLoop._pause
    async def fall(self):
        if self._hands.in_flight:
            raise RuntimeError("the loop fell over")
        await pause(self)
    PullLoop._pause = fall
"""

HANGS = """
    import time
    from workers import pull_loop, pulse
    pulse.HANG_LIMIT_S = 1.0
    pause = pull_loop.PullLoop._pause
    async def hang(self):
        if self._hands.in_flight:
            time.sleep(1000)
        await pause(self)
    pull_loop.PullLoop._pause = hang
"""

HEARS_NOTHING = """
    from dataclasses import replace
    from workers.echo_engine import EchoEngine
    hear = EchoEngine.transcribe
    async def mishear(self, window, **asked):
        return replace(await hear(self, window, **asked), utterances=())
    EchoEngine.transcribe = mishear
"""


def transcribe_worker(parts: Parts, environ: dict[str, str], ill: str) -> tuple[int, str]:
    """Run a whole transcribe worker with a fault put into it; its exit code and its words."""
    _, *argv = command_line("transcribe", parts.settings)
    assert argv[:2] == ["-m", "celery"]
    script = f"""
        import sys
        {textwrap.indent(textwrap.dedent(ill), " " * 8).strip()}
        from celery.__main__ import main
        sys.argv = ["celery", *{argv[2:]!r}]
        main()
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    return ran.returncode, ran.stdout


@pytest.fixture
def house(environ: dict[str, str]) -> dict[str, str]:
    """The environment of a worker whose engine takes half a minute over a window."""
    return {**os.environ, **environ, "FAIRSCRIBE_ECHO_FIXED_S": "30"}


def test_a_puller_that_dies_gives_its_job_back_and_ends_its_process_with_70(
    parts: Parts, house: dict[str, str]
) -> None:
    surveyed_job(parts, windows=3)
    code, words = transcribe_worker(parts, house, FALLS_OVER)
    assert code == EXIT_PULLER_DIED == 70, words
    assert "the loop fell over" in words
    assert states(parts) == {State.SURVEYED: 1}
    assert parts.queues[TRANSCRIBE.name].counts() == (1, 0)


def test_a_worker_whose_loop_hangs_ends_and_leaves_its_job_to_the_lease(
    parts: Parts, house: dict[str, str]
) -> None:
    surveyed_job(parts, windows=3)
    code, words = transcribe_worker(parts, house, HANGS)
    assert code == EXIT_PULLER_DIED, words
    assert "its loop does not turn" in words
    assert states(parts) == {State.RUNNING: 1}
    assert parts.queues[TRANSCRIBE.name].counts() == (0, 1)


def test_a_worker_that_does_not_hear_the_known_second_ends_with_70_and_says_why(
    parts: Parts, house: dict[str, str]
) -> None:
    surveyed_job(parts)
    hearing = {"FAIRSCRIBE_HEALTH_CHECK_S": "60", "FAIRSCRIBE_ECHO_FIXED_S": "0"}
    code, words = transcribe_worker(parts, house | hearing, HEARS_NOTHING)
    assert code == EXIT_PULLER_DIED, words
    assert "said '' where 'How can I help you today?' was said" in words
    assert states(parts) == {State.SURVEYED: 1}  # it took nothing it could not hear


def alive(*kinds: type[Any]) -> int:
    gc.collect()
    return sum(isinstance(thing, kinds) for thing in gc.get_objects())


def hear_all(parts: Parts, jobs: int, windows: int) -> None:
    """So many more jobs, heard to their end; a window is 64 kB."""
    count = states(parts).get(State.COMPLETED, 0) + jobs
    for _ in range(jobs):
        surveyed_job(parts, windows=windows, hollow=True)
    eventually(lambda: states(parts) == {State.COMPLETED: count}, 120)


@pytest.mark.slow
def test_2000_windows_leave_nothing_behind_in_the_worker_that_heard_them(parts: Parts) -> None:
    before = alive(Held, OpenJob)
    me, work = psutil.Process(), TranscribeWork(parts, EchoEngine(slots=8, fixed_s=0.0))
    with pulling(parts, work=work) as puller:
        hear_all(parts, jobs=25, windows=20)
        warm_bytes = me.memory_info().rss
        hear_all(parts, jobs=75, windows=20)
        hands = puller._hands
        assert hands is not None
        eventually(lambda: not hands.held and hands.in_flight == 0, 10)
        assert work._ready == {}
        assert work._saver._unsaved == []
        assert len(hands.suspects) == 0
        eventually(lambda: alive(Held, OpenJob) <= before + 1, 10)  # a task that ended may hold one
        grown_mb = (me.memory_info().rss - warm_bytes) / 1e6
    # 1,500 windows of 64 kB are 96 MB
    assert grown_mb < 30, grown_mb
