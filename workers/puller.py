"""Wires one puller together and runs it on a thread of its own inside a Celery worker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any

from celery import Celery

from pipeline.job import Ticket
from pipeline.logs import log
from pipeline.parts import Parts
from pipeline.steps.cancel import cancel
from workers.caretaker import Caretaker
from workers.claims import Claims
from workers.endings import Endings
from workers.flower_events import FlowerEvents, JobRequest
from workers.hands import Hands
from workers.held import Work
from workers.lease_keeper import LeaseKeeper
from workers.pull_loop import PullLoop
from workers.ready import say_ready, still_ready
from workers.speed_report import SpeedReport

EXIT_PULLER_DIED = 70
"""Exit code of a worker whose puller ended by an error, or hung."""


class Puller:
    """Everything a pulling worker runs besides Celery itself."""

    def __init__(self, app: Celery, hostname: str, work: Work, parts: Parts) -> None:
        self._work, self._parts, self._hostname = work, parts, hostname
        self._queue = parts.queues[work.stage.name]
        self._flower = FlowerEvents(app, hostname)
        self._caretaker = Caretaker(parts, on_tick=self._show_progress)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pulling: PullLoop | None = None
        self._hands: Hands | None = None
        self._thread = threading.Thread(target=self._main, name="puller", daemon=True)
        self.ended = threading.Event()
        self.error: BaseException | None = None
        """Why it ended, when not by draining."""

    def start(self) -> None:
        """Return at once; the engine loads on the puller's own thread."""
        self._caretaker.start()
        self._thread.start()

    def drain(self) -> None:
        """Start no more work; `ended` is set once what is in flight is done."""
        if self._pulling is None:
            self.ended.set()
        else:
            self._on_loop(self._pulling.drain)

    def hurry(self) -> None:
        """Give back now what is in hand, whatever runs."""
        if self._pulling is not None:
            self._on_loop(self._pulling.hurry)

    def stop(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` for the end, then close what is left."""
        self.ended.wait(timeout_s)
        self._caretaker.stop()
        self._flower.close()

    def facts(self) -> dict[str, Any]:
        """What `celery inspect stats` shows of it."""
        in_flight = self._hands.in_flight if self._hands else 0
        counts = {"queue": self._queue.name, "slots": self._work.slots, "in_flight": in_flight}
        speed = self._hands.speedometer.speed() if self._hands else None
        return {**counts, "speed": speed, **self._work.facts()}

    def _main(self) -> None:
        try:
            asyncio.run(self._pull())
        except BaseException as error:
            self.error = error
            log().exception("puller_ended", queue=self._queue.name)
        finally:
            self.ended.set()

    async def _pull(self) -> None:
        self._loop = asyncio.get_running_loop()
        settings, store = self._parts.settings, self._parts.store
        keeper = LeaseKeeper(
            self._queue,
            store,
            self._work.stage,
            renew_s=settings.renew_s,
            moving=lambda: self._pulling is None or self._pulling.moving(),
            on_lost=self._lose,
        )
        endings = Endings(
            self._work.stage, self._queue, store, keeper, self._flower, settings.max_crashes
        )
        wake = asyncio.Event()
        self._hands = hands = Hands(self._work, endings, make_request=self._request, wake=wake.set)
        self._work.on_lost = hands.lose
        claims = Claims(self._work, self._queue, store, self._hostname)
        self._pulling = PullLoop(
            self._work,
            self._queue,
            claims,
            hands,
            wake,
            tick_s=settings.tick_s,
            on_ready=say_ready,
        )
        keeper.start()
        wanted = self._work.slots_wanted
        report = SpeedReport(self._queue.board, self._hostname, hands.speedometer, wanted)
        try:
            async with report.running():
                await self._pulling.run()
        finally:
            keeper.stop()

    def _request(self, ticket: Ticket) -> JobRequest:
        facts = {
            "job_id": ticket.job_id,
            "attempt": ticket.attempt,
            "duration_s": round(ticket.duration_s, 2),
        }
        return JobRequest(
            self._work.task_id(ticket.job_id),
            self._work.task_name,
            facts,
            self._hostname,
            on_terminate=lambda: self._cancel(ticket.job_id),
        )

    def _cancel(self, job_id: str) -> None:
        """Somebody pressed Terminate in Flower. Runs on Celery's own thread."""
        if cancel(self._parts.store, self._parts.queues, job_id):
            self._lose(job_id)

    def _show_progress(self) -> None:
        """Renew the sign of life, on the loop itself: one that hangs, stalls or has no engine shows
        none.
        """
        self._end_if_hung()
        if self._pulling is not None and self._pulling.well():
            self._on_loop(still_ready)

    def _end_if_hung(self) -> None:
        """A hung thread cannot be ended, and would keep the process from ending in order. The
        engine dies with the process, and the jobs in hand are left to their leases.
        """
        why = self._pulling.pulse.hangs() if self._pulling is not None else None
        if why is not None and not self.ended.is_set():
            log().error("worker_hangs", queue=self._queue.name, why=why)
            os._exit(EXIT_PULLER_DIED)

    def _lose(self, job_id: str) -> None:
        if self._hands is not None:
            self._on_loop(self._hands.lose, job_id)

    def _on_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        """Ask the loop from another thread; a loop that has ended has nothing left to do."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(call, *arguments)
