"""Claims jobs, runs their units in free slots, ends them: a puller's life, on one event loop.

A free slot goes to the best of {jobs in hand, the queue's head}. So a newcomer that outranks what
is in hand gets the next free slot, and a long job fills whatever is left. A job in hand that got no
slot for a while is given back with its remaining work, so that an idle worker can take it.

When the engine dies, the jobs that had a unit in it are suspects: their units run again one job at
a time, so that the next death names its cause. Only a job that was alone is charged for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from sqlalchemy import Engine

from pipeline.errors import (
    EngineDead,
    FairscribeError,
    JobFailed,
    LeaseLost,
    PartDown,
    RecordingRefused,
    UnexpectedError,
    WindowRefused,
)
from pipeline.job import Ticket
from pipeline.logs import log
from pipeline.queue.redis_queue import Claimed, Floor, RedisQueue
from pipeline.store import jobs
from pipeline.store.session import transaction
from workers.endings import Endings
from workers.flower_events import JobRequest
from workers.held import Held, Work, first
from workers.suspects import Suspects

STARVED_S = 2.0
"""A job in hand without a slot for this long is given back."""

RETRY_S = 0.5
"""Pause after an outage of Postgres, Redis or storage."""


class PullLoop:
    """One worker's loop. Everything runs on the event loop that calls `run`."""

    def __init__(
        self,
        work: Work,
        queue: RedisQueue,
        store: Engine,
        endings: Endings,
        *,
        worker: str,
        tick_s: float,
        stall_s: float,
        make_request: Callable[[Ticket], JobRequest],
        on_ready: Callable[[], None],
    ) -> None:
        self._work, self._queue, self._store, self._endings = work, queue, store, endings
        self._worker, self._tick_s, self._stall_s = worker, tick_s, stall_s
        self._make_request, self._on_ready = make_request, on_ready
        self._held: dict[str, Held] = {}
        self._suspects = Suspects()
        self._wake = asyncio.Event()
        self._draining = False
        self._engine_dead = False
        self._moved_s = time.monotonic()
        self._clock_ms = (0, 0.0)
        self._background: set[asyncio.Task[None]] = set()

    # -- asked from outside (on the loop) ---------------------------------------------------

    def drain(self) -> None:
        """Start nothing more; units in flight end, then every job is given back."""
        self._draining = True
        self._wake.set()

    def lose(self, job_id: str) -> None:
        """The job is no longer ours (lease gone, cancelled): drop it and write nothing."""
        if held := self._held.get(job_id):
            self._spawn(self._lost(held))

    def moving(self) -> bool:
        """Whether the work makes progress: leases are renewed only while it does."""
        return not self._in_flight or time.monotonic() - self._moved_s < self._stall_s

    @property
    def in_flight(self) -> int:
        """Units running now."""
        return len(self._in_flight)

    # -- the loop ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until drained. Raises when the engine cannot be started."""
        try:
            await self._work.start()
            self._on_ready()
            while not (self._draining and not self._in_flight):
                try:
                    await self._turn()
                except PartDown as down:
                    log().warning("puller_waits", queue=self._queue.name, why=down.message)
                    await asyncio.sleep(RETRY_S)
                await self._pause()
        finally:
            await self._leave()

    async def _turn(self) -> None:
        if self._stalled():
            log().error("engine_stalled", queue=self._queue.name, stall_s=self._stall_s)
            self._engine_dead = True
        if self._engine_dead and not self._draining:
            await self._recover()
        await self._give_back_starved()
        if self._draining:
            return
        if not self._suspects:
            await self._claim()
        self._start_units()

    async def _pause(self) -> None:
        """Until something ends, or the next tick when a slot is free."""
        limit_s = self._tick_s if self._free_slots() else 1.0
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), limit_s)
        self._wake.clear()

    # -- claiming ---------------------------------------------------------------------------

    async def _claim(self) -> None:
        """Fill free slots from the queue with jobs that outrank those in hand."""
        free = self._free_slots()
        if free == 0:
            return
        best = self._first()
        if best is not None:
            place = best.place(self._work)
            floor: Floor | None = Floor(place.bucket, place.arrival_ms)
        else:
            floor = await asyncio.to_thread(self._work.floor)
        claim = await asyncio.to_thread(self._queue.claim, free, floor)
        self._clock_ms = (claim.now_ms, time.monotonic())
        if claim.jobs:
            await self._take(claim.jobs)

    async def _take(self, claimed: tuple[Claimed, ...]) -> None:
        by_id = {job.job_id: job for job in claimed}
        try:
            tickets = await asyncio.to_thread(self._grant, list(by_id))
        except PartDown:
            # not granted as far as we know; if it was, the lease runs out and the job waits again
            await asyncio.to_thread(self._endings.return_claims, claimed)
            raise
        ghosts = [job for job in claimed if job.job_id not in {t.job_id for t in tickets}]
        if ghosts:
            pairs = [(job.job_id, job.token) for job in ghosts]
            await asyncio.to_thread(self._queue.complete, pairs)
        for ticket in tickets:
            await self._open(ticket, by_id[ticket.job_id].token)

    def _grant(self, job_ids: list[str]) -> list[Ticket]:
        with transaction(self._store) as c:
            return jobs.grant(c, self._work.stage, job_ids, self._worker, self._work.model)

    async def _open(self, ticket: Ticket, token: str) -> None:
        held = Held(ticket, token, None, self._make_request(ticket), deque())
        self._held[ticket.job_id] = held
        self._endings.begin(held)
        try:
            held.opened = await asyncio.to_thread(self._work.open, ticket)
        except (JobFailed, RecordingRefused) as refused:
            await self._end(held, self._endings.fail(held, refused))
            return
        except PartDown as down:
            await self._end(held, self._endings.give_back(held, ticket.bucket, down.message))
            return
        held.waiting.extend(self._work.units(held.opened))
        if not held.waiting:  # all was heard before, only the end was missing
            await self._finish(held)

    # -- running units ----------------------------------------------------------------------

    def _start_units(self) -> None:
        while self._free_slots() > 0 and (held := self._next_to_run()) is not None:
            unit = self._suspects.take(held) if self._suspects else held.waiting.popleft()
            held.starved_since_s = None
            if not self._in_flight:
                self._moved_s = time.monotonic()
            held.running[unit] = asyncio.create_task(self._run_unit(held, unit))

    def _next_to_run(self) -> Held | None:
        if self._suspects:
            return self._suspects.next(self._held, alone=self._only_in_flight())
        return self._first()

    async def _run_unit(self, held: Held, unit: int) -> None:
        try:
            await self._work.run(held.opened, unit)
        except LeaseLost:
            self._spawn(self._lost(held))
        except EngineDead:
            held.waiting.appendleft(unit)
            self._suspects.add(held.job_id, unit)
            self._engine_dead = True
        except PartDown as down:
            log().warning("unit_waits", job_id=held.job_id, why=down.message)
            held.waiting.appendleft(unit)
            held.not_before_s = time.monotonic() + RETRY_S
        except (RecordingRefused, JobFailed, WindowRefused) as refused:
            self._spawn(self._fail(held, refused))
        except Exception:
            log().exception("unit_error", job_id=held.job_id, unit=unit)
            self._spawn(self._fail(held, UnexpectedError()))
        else:
            self._suspects.clear_unit(held.job_id, unit)
            self._moved_s = time.monotonic()
            if not held.waiting and len(held.running) == 1:
                self._spawn(self._finish(held))
        finally:
            held.running.pop(unit, None)
            self._wake.set()

    # -- ends -------------------------------------------------------------------------------

    async def _finish(self, held: Held) -> None:
        if held.ended:
            return
        held.ended = True
        while True:
            try:
                result = await asyncio.to_thread(self._work.finish, held.opened)
                await self._end(held, self._endings.succeed(held, result))
            except LeaseLost:
                await self._end(held, self._endings.lose(held))
            except (JobFailed, RecordingRefused) as refused:
                await self._end(held, self._endings.fail(held, refused))
            except PartDown as down:
                if held.job_id in self._held and not self._draining:
                    log().warning("finish_waits", job_id=held.job_id, why=down.message)
                    await asyncio.sleep(RETRY_S)
                    continue
            return

    async def _fail(self, held: Held, refused: FairscribeError) -> None:
        if not held.ended:
            held.ended = True
            await self._end(held, self._endings.fail(held, refused))

    async def _lost(self, held: Held) -> None:
        if not held.ended:
            held.ended = True
            await self._end(held, self._endings.lose(held))

    async def _end(self, held: Held, ending: Callable[[], None]) -> None:
        """Stop what the job still runs, then tell Postgres, Redis and Flower, in a thread."""
        held.ended = True
        self._held.pop(held.job_id, None)
        self._suspects.drop(held.job_id)
        for task in held.running.values():
            task.cancel()
        await asyncio.to_thread(ending)
        self._wake.set()

    async def _give_back_starved(self) -> None:
        now_s = time.monotonic()
        for held in list(self._held.values()):
            if held.running or not held.waiting or held.ended or self._suspects:
                held.starved_since_s = None
            elif held.starved_since_s is None:
                held.starved_since_s = now_s
            elif now_s - held.starved_since_s > STARVED_S:
                await self._give_back(held, "no slot free")

    async def _give_back(self, held: Held, why: str) -> None:
        bucket = self._work.bucket_left(held.opened) if held.opened else held.ticket.bucket
        await self._end(held, self._endings.give_back(held, bucket, why))

    async def _leave(self) -> None:
        """Give back whatever is held, end what runs, free the engine."""
        for held in list(self._held.values()):
            if not held.ended:
                await self._give_back(held, "worker stops")
        if self._background:
            await asyncio.wait(self._background, timeout=5.0)
        await self._work.stop()

    # -- the engine's death -----------------------------------------------------------------

    async def _recover(self) -> None:
        """All units in flight are lost with the engine: start it again, look for the culprit."""
        running = [task for held in self._held.values() for task in held.running.values()]
        if running:
            _, stuck = await asyncio.wait(running, timeout=2.0)
            for held in self._held.values():
                for unit, task in list(held.running.items()):
                    if task in stuck:  # a stalled engine answers nothing, not even that it is dead
                        task.cancel()
                        held.running.pop(unit, None)
                        held.waiting.appendleft(unit)
                        self._suspects.add(held.job_id, unit)
        self._engine_dead = False
        culprit = self._held.get(self._suspects.take_culprit() or "")
        if culprit is not None and await asyncio.to_thread(self._endings.charge_crash, culprit):
            await self._end(culprit, self._endings.fail_as_culprit(culprit))
        log().error("engine_died", queue=self._queue.name, suspects=len(self._suspects))
        await self._work.recover()
        self._moved_s = time.monotonic()

    # -- small things -----------------------------------------------------------------------

    @property
    def _in_flight(self) -> list[asyncio.Task[None]]:
        return [task for held in self._held.values() for task in held.running.values()]

    def _only_in_flight(self) -> str | None:
        busy = {held.job_id for held in self._held.values() if held.running}
        return next(iter(busy)) if busy else None

    def _free_slots(self) -> int:
        return self._work.slots - len(self._in_flight)

    def _stalled(self) -> bool:
        return bool(self._in_flight) and time.monotonic() - self._moved_s > self._stall_s

    def _first(self) -> Held | None:
        now_s = time.monotonic()
        read_ms, read_s = self._clock_ms
        now_ms = read_ms + int((now_s - read_s) * 1000)
        return first(self._held.values(), self._work, self._queue.policy_seen, now_ms, now_s)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
