"""Children end with their parent, and nobody else is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace

import pytest

from workers.die_with_parent import OWNER_VARIABLE, arm, own_engines

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's promise is Linux's")

ROOT = Path(__file__).resolve().parents[2]


def gone_within(seconds: float, pid: int) -> bool:
    """Whether the process ends in time; one nobody collected counts as ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def start_parent(script: str) -> tuple[subprocess.Popen[str], int]:
    """Run a script that prints its child's process id once the child is ready."""
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


def test_a_child_started_with_it_dies_when_the_parent_is_killed() -> None:
    parent, child = start_parent("""
        import signal, subprocess, sys, time
        from workers.die_with_parent import die_with_parent
        child = subprocess.Popen(["sleep", "60"], preexec_fn=die_with_parent(signal.SIGTERM))
        print(child.pid, flush=True)
        time.sleep(60)
    """)
    parent.kill()
    parent.wait()
    assert gone_within(2, child)


def test_a_child_that_asks_too_late_dies_at_once() -> None:
    # Given a child told of a parent that is not its parent any more
    asks = "from workers.die_with_parent import die_after; die_after(1 << 30, 9); print('alive')"
    child = subprocess.run([sys.executable, "-c", asks], cwd=ROOT, capture_output=True, text=True)
    assert (child.returncode, child.stdout) == (-signal.SIGKILL, "")


SPAWNS = """
    import multiprocessing, os, time
    from workers.die_with_parent import OWNER_VARIABLE, arm, own_engines
    {own}
    def live(ready):
        arm()
        ready.send(os.getpid())
        time.sleep(20)
    # fork: a script given as -c has no main module that spawn could import
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    context.Process(target=live, args=(theirs,)).start()
    print(ours.recv(), flush=True)
    time.sleep(60)
"""


def test_an_engines_process_is_armed() -> None:
    parent, child = start_parent(SPAWNS.format(own="own_engines()"))
    parent.kill()
    parent.wait()
    assert gone_within(2, child)


@pytest.mark.parametrize(
    "own",
    ["os.environ.pop(OWNER_VARIABLE, None)", "os.environ[OWNER_VARIABLE] = str(os.getppid())"],
    ids=["no engine anywhere", "an engine in the parent above"],
)
def test_a_process_that_merely_imports_vllm_is_left_alone(own: str) -> None:
    parent, child = start_parent(SPAWNS.format(own=own))
    parent.kill()
    parent.wait()
    assert not gone_within(0.5, child)
    os.kill(child, signal.SIGKILL)


def test_children_of_an_engines_process_die_with_that(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr("workers.die_with_parent.die_after", lambda *call: asked.append(call))
    monkeypatch.setattr("multiprocessing.parent_process", lambda: SimpleNamespace(pid=4710))
    monkeypatch.setattr("os.getppid", lambda: 4711)  # a fork server, started by that parent
    monkeypatch.setenv(OWNER_VARIABLE, "4711")
    arm()
    assert asked == [(4711, signal.SIGKILL)]
    assert os.environ[OWNER_VARIABLE] == str(os.getpid())


def test_a_fork_server_dies_with_its_worker_though_it_is_in_the_middle_of_its_imports() -> None:
    parent, server = start_parent("""
        import time
        from multiprocessing import forkserver
        from workers import fork_server
        fork_server.start()
        print(forkserver._forkserver._forkserver_pid, flush=True)
        time.sleep(60)
    """)
    time.sleep(0.3)
    parent.kill()
    parent.wait()
    assert gone_within(2, server)


def test_a_fork_server_that_is_stopped_is_gone_and_can_be_started_again() -> None:
    _, server = start_parent("""
        from multiprocessing import forkserver
        from workers import fork_server
        for _ in range(2):
            fork_server.stop()
            fork_server.start()
        pid = forkserver._forkserver._forkserver_pid
        fork_server.stop()
        print(pid, flush=True)
    """)
    assert not Path(f"/proc/{server}").exists()


def test_arming_the_owner_itself_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWNER_VARIABLE, "")
    own_engines()
    arm()


def test_vllm_finds_it_by_the_entry_point() -> None:
    found = [e for e in entry_points(group="vllm.general_plugins") if e.value.startswith("workers")]
    assert [e.load() for e in found] == [arm]
