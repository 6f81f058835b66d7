"""A part of `fairscribe up`: one process, described and watched.

`Part` says how one is started, how to tell that it is ready, and how it is ended. `Watched` is one
while it runs: it notices readiness and death, says so, and starts it again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.clock import Clock
from pipeline.errors import FairscribeError, PartDown
from workers.child import cause, ended, last_lines, spawn
from workers.state_folder import StateFolder

DEATHS_ALLOWED = 5
"""A part is given up at this many deaths within `DEATHS_WITHIN_S`, or in a row, never ready."""

DEATHS_WITHIN_S = 60.0


@dataclass(frozen=True)
class Part:
    """How one process of `fairscribe up` is started, known to be ready, and ended."""

    name: str
    launch: Callable[[], subprocess.Popen[bytes]]
    """Starts it without waiting; raises `PartDown` when that cannot be done."""
    ready: Callable[[], bool]
    """Asked some times a second until true: cheap, never raises."""
    log: Path
    ready_within_s: float
    """Not ready after this long is the same as dead."""
    stop_rank: int
    """Parts of a lower rank are ended first; those of one rank together."""
    stop_within_s: float
    """Time from `stop_signal` to SIGKILL."""
    stop_signal: signal.Signals = signal.SIGTERM
    hurry_signal: signal.Signals | None = signal.SIGKILL
    """Sent when the person at the keyboard asks again; None: it takes its time all the same."""
    once: bool = False
    """It runs to its end (exit code 0) and is never started again, as migrations."""


def command(
    name: str,
    argv: Sequence[str],
    folder: StateFolder,
    *,
    env: Mapping[str, str] | None = None,
    ready: Callable[[], bool] | None = None,
    ready_within_s: float = 90.0,
    stop_rank: int = 0,
    stop_within_s: float = 10.0,
    hurry_signal: signal.Signals | None = signal.SIGKILL,
    once: bool = False,
) -> Part:
    """A part that is a command line, with `env` on top of our environment.

    Without a `ready` it is ready once it has made the file that FAIRSCRIBE_READY_FILE names.
    """
    ready_file = folder.run / f"{name}.ready"
    log = folder.logs / f"{name}.log"
    own = {"FAIRSCRIBE_READY_FILE": str(ready_file), "PYTHONUNBUFFERED": "1"}

    def launch() -> subprocess.Popen[bytes]:
        ready_file.unlink(missing_ok=True)
        # what we say goes before the file somebody named
        given = {k: v for k, v in os.environ.items() if k.removesuffix("_FILE") not in (env or {})}
        return spawn(argv, log, env={**given, **(env or {}), **own})

    return Part(
        name=name,
        launch=launch,
        ready=ready or ready_file.exists,
        log=log,
        ready_within_s=ready_within_s,
        stop_rank=stop_rank,
        stop_within_s=stop_within_s,
        hurry_signal=hurry_signal,
        once=once,
    )


class Watched:
    """One part while it runs. `say` takes the lines a person should read."""

    def __init__(self, part: Part, say: Callable[[str], None], clock: Clock) -> None:
        self.part = part
        self.ready = False
        self.process: subprocess.Popen[bytes] | None = None
        self._say = say
        self._clock = clock
        self._launched_s = 0.0
        self._again_at_s = 0.0
        self._deaths_s: list[float] = []
        self._never_ready = 0

    @property
    def done(self) -> bool:
        """Whether it was to run once and has."""
        return self.part.once and self.ready

    def launch(self) -> None:
        """Start it. Raises what `Part.launch` raises."""
        self._launched_s = self._clock.monotonic_s()
        self.process = self.part.launch()

    def look(self) -> None:
        """Notice what has happened since the last look, and do what it calls for.

        Raises `PartDown` when the part has died so often that it is given up.
        """
        now_s = self._clock.monotonic_s()
        if self.process is None:
            if now_s >= self._again_at_s and not self.done:
                self._launch_again()
        elif ended(self.process):
            self._note_end(self.process.returncode)
        elif not self.ready:
            self._look_for_readiness(now_s - self._launched_s)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; nothing when it does not run."""
        if self.process is not None and not ended(self.process):
            self.process.send_signal(number)

    def kill(self) -> None:
        """End it and its process group at once."""
        if self.process is not None and not ended(self.process):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait()

    def _launch_again(self) -> None:
        try:
            self.launch()
        except FairscribeError as error:
            self._note_death(f"cannot be started: {error.message}")

    def _look_for_readiness(self, age_s: float) -> None:
        if not self.part.once and self.part.ready():
            self._note_ready()
        elif age_s > self.part.ready_within_s:
            self.kill()
            self._note_death(f"was not ready within {self.part.ready_within_s:g} s")

    def _note_ready(self) -> None:
        age_s = self._clock.monotonic_s() - self._launched_s
        self.ready, self._never_ready = True, 0
        word = "done" if self.part.once else "ready again" if self._deaths_s else "ready"
        self._say(f"{self.part.name:<11} {word} {age_s:6.1f} s")

    def _note_end(self, returncode: int) -> None:
        if self.part.once and returncode == 0:
            self.process = None
            self._note_ready()
        else:
            self._note_death(f"died: {cause(returncode)}")

    def _note_death(self, what: str) -> None:
        """Say it, and set the time of the next start. Raises `PartDown` at one death too many."""
        now_s = self._clock.monotonic_s()
        name = self.part.name
        self._say(f"{name} {what}. Last lines of {self.part.log}:\n{last_lines(self.part.log)}")
        self._deaths_s = [s for s in self._deaths_s if now_s - s < DEATHS_WITHIN_S] + [now_s]
        self._never_ready += not self.ready
        self.ready, self.process = False, None
        if self.part.once:
            raise PartDown(f"{name} failed: giving up")
        if len(self._deaths_s) >= DEATHS_ALLOWED:
            times = f"{DEATHS_ALLOWED} times within {DEATHS_WITHIN_S:g} s"
            raise PartDown(f"{name} died {times}: giving up")
        if self._never_ready >= DEATHS_ALLOWED:
            raise PartDown(f"{name} did not become ready in {DEATHS_ALLOWED} starts: giving up")
        delay_s = 2 ** (len(self._deaths_s) - 1)
        self._again_at_s = now_s + delay_s
        self._say(f"{name} is started again in {delay_s} s")
