"""Real parts for tests that kill many of them: each begins in a process that has imported it all.

A part is what `workers.run` becomes: its own command line, its own process, its own environment.
Only the second it takes to import Python code is spent once, before, in a process that forks. As a
program, `python -m tests.forked_parts`, it is that process: an order is a line of JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.servers import is_alive, wait_until
from workers.die_with_parent import die_after, die_with_parent

IMPORTED = (
    *("celery.__main__", "celery.bin.worker", "celery.apps.worker", "celery.worker.consumer"),
    *("celery.worker.components", "celery.concurrency.solo", "celery.concurrency.thread"),
    *("celery.app.events", "celery.app.control", "celery.events.state", "celery.beat"),
    *("kombu.transport.redis", "kombu.asynchronous.hub", "uvicorn", "uvicorn.protocols.http.auto"),
    *("pipeline.api.app", "pipeline.intake.prober", "pipeline.steps.survey", "psycopg"),
    *("sqlalchemy.dialects.postgresql.psycopg", "workers.app", "workers.engines"),
    *("workers.pull_step", "workers.saver", "workers.command_lines"),
)
"""Not the workers' own modules: importing one puts its step into every worker forked here."""

START_S = 90.0


@dataclass
class Part:
    """A part that was started."""

    pid: int
    folder: Path
    url: str = ""
    """Where it listens, if it does."""

    def alive(self) -> bool:
        return is_alive(self.pid)

    def ended(self, within_s: float) -> int:
        """Its exit code once it has ended; that of a signal is negative."""
        code = self.folder / "code"
        self.until(code.exists, within_s, "ends")
        return int(code.read_text())

    def until(self, holds: Callable[[], bool], within_s: float, what: str) -> None:
        """Return once `holds()`; fails with what it said."""
        try:
            wait_until(holds, within_s, f"{self.folder.name} {what}")
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.said()}") from None

    def kill(self) -> None:
        """Kill -9; returns once it is dead."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.ended(10)

    def terminate(self) -> None:
        """SIGTERM."""
        os.kill(self.pid, signal.SIGTERM)

    def ready(self) -> bool:
        """Whether it works."""
        assert self.alive(), f"it ended before it was ready:\n{self.said()}"
        if not self.url:
            return (self.folder / "ready").exists()
        host, port = self.url.removeprefix("http://").split(":")
        with contextlib.suppress(OSError):
            socket.create_connection((host, int(port)), 1).close()
            return True
        return False

    def said(self) -> str:
        """The end of what it wrote."""
        return (self.folder / "log").read_text()[-4_000:]


class ForkedParts:
    """Starts parts, and ends those that are left."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder, self._environ = folder, dict(environ)
        self._parts: list[Part] = []
        rest = {k: v for k, v in os.environ.items() if not k.startswith("FAIRSCRIBE_")}
        self._forker = subprocess.Popen(
            [sys.executable, "-m", "tests.forked_parts"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # libraries must start no thread before the fork
            env={**rest, **self._environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            text=True,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        assert self._forker.stdout is not None
        assert self._forker.stdout.readline() == "ready\n"

    def start(
        self,
        name: str,
        *,
        wait: bool = True,
        also: Mapping[str, str] | None = None,
        **settings: str,
    ) -> Part:
        """Start a part of `workers.run`, or `caretaker` (see `_caretaker`), with these FAIRSCRIBE_
        settings besides; returns once it works, unless told not to wait.

        `also`: other variables. TEST_LAUNCHER names a module to import before it begins.
        """
        folder = self._folder / f"{len(self._parts)}-{name}"
        folder.mkdir(parents=True)
        (folder / "log").touch()
        environ = {f"FAIRSCRIBE_{k}": v for k, v in settings.items()}
        environ["FAIRSCRIBE_READY_FILE"] = str(folder / "ready")
        url = ""
        if name == "api":
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            environ["FAIRSCRIBE_API_PORT"], url = str(port), f"http://127.0.0.1:{port}"
        given = {**self._environ, **environ, **(also or {})}
        order = {"part": name, "folder": str(folder), "environ": given}
        assert self._forker.stdin is not None
        self._forker.stdin.write(json.dumps(order) + "\n")
        self._forker.stdin.flush()
        wait_until((folder / "pid").exists, START_S, f"{name} is forked")
        part = Part(int((folder / "pid").read_text()), folder, url)
        self._parts.append(part)
        if wait:
            part.until(part.ready, START_S, "works")
        return part

    def close(self) -> None:
        """Kill what is left."""
        for part in self._parts:
            if part.alive():
                part.kill()
        assert self._forker.stdin is not None
        self._forker.stdin.close()
        self._forker.wait(10)


@contextlib.contextmanager
def forked_parts(folder: Path, environ: Mapping[str, str]) -> Iterator[ForkedParts]:
    """Parts whose settings are `environ` (FAIRSCRIBE_ and all)."""
    parts = ForkedParts(folder, environ)
    try:
        yield parts
    finally:
        parts.close()


# -- in the process that forks ------------------------------------------------------------------


def main() -> None:
    for module in IMPORTED:
        importlib.import_module(module)
    print("ready", flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever watches a part says how it ended
    for line in sys.stdin:
        owner = os.getpid()
        if os.fork() == 0:
            die_after(owner, signal.SIGKILL)
            _watch(json.loads(line))


def _watch(order: dict[str, object]) -> None:
    """Fork the part, write down its process id and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    folder, owner = Path(str(order["folder"])), os.getpid()
    pid = os.fork()
    if pid == 0:
        die_after(owner, signal.SIGKILL)
        _become(str(order["part"]), folder, dict(order["environ"]))  # type: ignore[call-overload]
    _write(folder / "pid", pid)
    _, status = os.waitpid(pid, 0)
    _write(folder / "code", os.waitstatus_to_exitcode(status))
    os._exit(0)


def _write(path: Path, number: int) -> None:
    path.with_suffix(".new").write_text(str(number))
    path.with_suffix(".new").rename(path)


def _become(part: str, folder: Path, environ: dict[str, str]) -> None:
    """Become the part: the command line is the one `workers.run` executes."""
    log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.environ.update(environ)
    importlib.reload(importlib.import_module("pipeline.crash_points"))  # it read another environ
    if launcher := os.environ.get("TEST_LAUNCHER"):
        importlib.import_module(launcher)
    if part == "caretaker":
        _caretaker(folder)
    from pipeline.settings import read_settings
    from workers.command_lines import command_line

    _, _, module, *words = command_line(part, read_settings())
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit(0)


def _caretaker(folder: Path) -> None:
    """Every worker's thread that keeps the queues true, and no worker.

    It counts its ticks in `ticks`, and waits between two while there is a file `pause`.
    """
    from pipeline.parts import open_parts
    from pipeline.settings import read_settings
    from workers.caretaker import Caretaker

    ticks = 0

    def on_tick() -> None:
        nonlocal ticks
        ticks += 1
        _write(folder / "ticks", ticks)
        while (folder / "pause").exists():
            time.sleep(0.01)

    Caretaker(open_parts(read_settings()), on_tick).start()
    (folder / "ready").touch()
    signal.pause()


if __name__ == "__main__":
    main()
