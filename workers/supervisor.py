"""What `fairscribe up` runs: starts every part, watches them, ends them in order.

    python -m workers.supervisor [--json]

In: settings. Out: a line a part as it becomes ready, then the addresses; with --json one line of
JSON on stdout and all else on stderr. Ctrl-C, SIGTERM or a closed terminal ends all parts in order
(exit code 0); asked a second time, they hurry. A part that dies is named with its last words and
started again; one that keeps dying ends all (exit code 1). Killed by SIGKILL, it leaves nothing:
the kernel ends its children (see workers/child.py).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from types import FrameType

from pipeline.clock import Clock, SystemClock
from pipeline.errors import FairscribeError
from workers.child import ended
from workers.part import Part, Watched

STARTING_TICK_S, RUNNING_TICK_S, STOPPING_TICK_S = 0.05, 0.2, 0.02
STILL_STARTING_S = 20.0
"""How often it is said which parts are not ready yet: loading a model takes a minute."""

HURRY_WITHIN_S = 5.0
"""Time a hurried part gets before SIGKILL."""

STOP_REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Say = Callable[[str], None]


class Supervisor:
    """Runs parts in stages: a stage begins when every part of the one before is ready.

    `say` takes lines for a person; `on_ready` gets {name: pid}, once, when all are ready. Run it in
    the main thread: signals arrive there, and children live as long as the thread that forked.
    """

    def __init__(
        self,
        stages: Sequence[Sequence[Part]],
        say: Say,
        on_ready: Callable[[dict[str, int]], None],
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._stages = [[Watched(part, say, self._clock) for part in stage] for stage in stages]
        self._say = say
        self._on_ready = on_ready
        self._begun: list[Watched] = []
        self._requests = 0

    def run(self) -> int:
        """Start, watch and end all parts. Returns the exit code: 0 asked to stop, 1 given up."""
        with self._counting_requests():
            try:
                self._start()
                while not self._requests:
                    self._look(RUNNING_TICK_S)
                return 0
            except FairscribeError as error:
                self._say(error.message)
                return 1
            finally:
                self._stop()

    def _start(self) -> None:
        for stage in self._stages:
            for watched in stage:
                self._begun.append(watched)
                watched.launch()
            told_s = self._clock.monotonic_s()
            while late := [watched.part.name for watched in self._begun if not watched.ready]:
                self._look(STARTING_TICK_S)
                if self._requests:
                    return
                if self._clock.monotonic_s() - told_s > STILL_STARTING_S:
                    told_s = self._clock.monotonic_s()
                    self._say(f"still starting: {', '.join(late)}")
        running = ((w.part.name, w.process) for w in self._begun)
        self._on_ready({name: process.pid for name, process in running if process})

    def _look(self, tick_s: float) -> None:
        for watched in self._begun:
            watched.look()
        # A request ends this late by one tick: a plain counter in the handler, nothing to deadlock.
        self._clock.sleep(tick_s)

    def _stop(self) -> None:
        self._say("stopping: workers end what is in flight; Ctrl-C again hurries them")
        heeded = min(self._requests, 1)
        by_rank = sorted(self._begun, key=lambda watched: watched.part.stop_rank)
        for _, rank in groupby(by_rank, key=lambda watched: watched.part.stop_rank):
            self._stop_together(list(rank), heeded)
        self._say("stopped")

    def _stop_together(self, rank: list[Watched], heeded: int) -> None:
        """End the parts of one rank; more requests than `heeded` make them hurry."""
        begun_s = self._clock.monotonic_s()
        deadline_s = {w: begun_s + w.part.stop_within_s for w in rank}
        for watched in rank:
            watched.send(watched.part.stop_signal)
        hurried = False
        while live := [w for w in rank if w.process and not ended(w.process)]:
            now_s = self._clock.monotonic_s()
            if self._requests > heeded and not hurried:
                hurried = True
                for watched in (w for w in live if w.part.hurry_signal):
                    watched.send(watched.part.hurry_signal or signal.SIGKILL)
                    deadline_s[watched] = min(deadline_s[watched], now_s + HURRY_WITHIN_S)
            for watched in live:
                impatient = self._requests > heeded + 1 and watched.part.hurry_signal
                if impatient or now_s > deadline_s[watched]:
                    self._say(f"{watched.part.name} did not end in {now_s - begun_s:.0f} s: killed")
                    watched.kill()
            self._clock.sleep(STOPPING_TICK_S)

    @contextlib.contextmanager
    def _counting_requests(self) -> Iterator[None]:
        def count(_number: int, _frame: FrameType | None) -> None:
            self._requests += 1

        before = {number: signal.signal(number, count) for number in STOP_REQUESTS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `fairscribe up`; returns its exit code."""
    from pipeline.settings import read_settings
    from workers.parts_table import draw_up
    from workers.state_folder import StateFolder

    parser = argparse.ArgumentParser(prog="workers.supervisor", description="Start every part.")
    parser.add_argument("--json", action="store_true", help="print one line of JSON when ready")
    as_json = parser.parse_args(argv).json
    os.umask(0o077)  # recordings are nobody else's business
    try:
        settings = read_settings()
        with StateFolder(settings.home) as folder:
            table = draw_up(settings, folder)
            say = _saying_to(sys.stderr.fileno() if as_json else sys.stdout.fileno())

            def announce(pids: dict[str, int]) -> None:
                table.write_addresses(pids)
                _saying_to(sys.stdout.fileno())(table.as_json(pids) if as_json else table.as_text())

            # before all is ready: the API is, long before the engine, and takes recordings
            table.write_addresses({})
            try:
                return Supervisor(table.stages, say, announce).run()
            finally:
                table.forget_addresses()
    except FairscribeError as error:
        print(error.message, file=sys.stderr)
        return 1


def _saying_to(descriptor: int) -> Say:
    def say(text: str) -> None:
        # Whoever read us may have gone (`up --json | head -1`): no reason to stop working.
        with contextlib.suppress(OSError):
            os.write(descriptor, f"{text}\n".encode())

    return say


if __name__ == "__main__":
    sys.exit(main())
