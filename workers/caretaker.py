"""A thread in every worker: each second it keeps the queues true to Postgres. No leader."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pipeline.clock import SystemClock
from pipeline.errors import PartDown
from pipeline.job import STAGES
from pipeline.logs import log
from pipeline.parts import Parts
from pipeline.steps.reclaim import Reclaimer

TICK_S = 1.0
"""Seconds between two rounds; a lease that ran out waits at most this long to be noticed."""


class Caretaker:
    """Ticks one `Reclaimer` a queue, and `on_tick` with them."""

    def __init__(self, parts: Parts, on_tick: Callable[[], None] = lambda: None) -> None:
        settings = parts.settings
        self._on_tick = on_tick
        self._reclaimers = [
            Reclaimer(
                parts.store,
                parts.queues[stage.name],
                stage,
                SystemClock(),
                lease_s=settings.lease_s,
                start_policy=settings.start_policy,
                default_language=settings.language,
            )
            for stage in STAGES
        ]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="caretaker", daemon=True)

    def start(self) -> None:
        """Begin to tick."""
        self._thread.start()

    def stop(self) -> None:
        """Tick no more."""
        self._stopping.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        while not self._stopping.wait(TICK_S):
            self._on_tick()
            for reclaimer in self._reclaimers:
                try:
                    reclaimer.tick()
                except PartDown as down:
                    log().warning("caretaker_waits", why=down.message)
                except Exception:
                    log().exception("caretaker_error")
