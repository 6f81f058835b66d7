"""The jobs in a worker's hands: opened, their units run, and ended, one way or another.

Whatever goes wrong with one job ends here with that job and nothing else.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine
from typing import Any

from pipeline.errors import (
    EngineDead,
    EngineFull,
    EngineHung,
    FairscribeError,
    JobFailed,
    JobStuck,
    LeaseLost,
    PartDown,
    RecordingRefused,
    RecordingUnreadable,
    SoundUnreadable,
    UnexpectedError,
    WindowLate,
    WindowRefused,
)
from pipeline.job import Ticket
from pipeline.logs import log
from workers.endings import Ending, Endings
from workers.flower_events import JobRequest
from workers.held import Held, Work
from workers.speedometer import Speedometer
from workers.suspects import Suspects
from workers.unreadable import Done, Unreadable

OPEN_PATIENCE_S = 5.0
"""A job that opens no faster than this does not keep others from being claimed."""

RETRY_S = 0.5
"""Pause after an outage of Postgres, Redis or storage."""


class Hands:
    """What one worker holds. Everything runs on one event loop."""

    def __init__(
        self,
        work: Work,
        endings: Endings,
        *,
        make_request: Callable[[Ticket], JobRequest],
        wake: Callable[[], None],
    ) -> None:
        self._work, self._endings = work, endings
        self._make_request, self._wake = make_request, wake
        self._background: set[asyncio.Task[Any]] = set()
        self._numbers = itertools.count()
        self.held: dict[str, Held] = {}
        self.suspects = Suspects()
        self.speedometer = Speedometer(work.slots)
        self.death: EngineDead | None = None
        """What the engine died of; None while it lives."""
        self.leaving = False
        """The worker stops: an outage is not waited out any more."""
        self.in_flight = 0
        """Units running now. Read from other threads."""
        self.moved_s = time.monotonic()
        """When a unit last ended, or the first of several began. Read from other threads."""
        self.done = Done()
        self.unreadable = Unreadable(self.done)

    # -- in ---------------------------------------------------------------------------------

    async def take(self, granted: tuple[tuple[Ticket, str], ...]) -> None:
        """Hold these jobs: first all leases, then what each needs, side by side. One that takes
        long to open is not waited for.
        """
        fresh = [await self._begin(ticket, token) for ticket, token in granted]
        opening = [self.spawn(self._open(held)) for held in fresh]
        await asyncio.wait(opening, timeout=OPEN_PATIENCE_S)

    async def _begin(self, ticket: Ticket, token: str) -> Held:
        if old := self.held.get(ticket.job_id):
            # it was lost while this process stood still, and came back before anyone said so
            await self._end(old, self._endings.lose(old))
        held = Held(ticket, token, self._make_request(ticket), number=next(self._numbers))
        self.held[ticket.job_id] = held
        self._endings.begin(held)
        return held

    async def _open(self, held: Held) -> None:
        try:
            held.opened = await asyncio.to_thread(self._work.open, held.ticket)
        except (JobFailed, RecordingRefused) as refused:
            await self._end(held, self._endings.fail(held, refused))
        except PartDown as down:
            await self._end(held, self._endings.give_back(held, held.ticket.bucket, down.message))
        except Exception:
            log().exception("open_error", job_id=held.job_id)
            await self._end(held, self._endings.fail(held, UnexpectedError()))
        else:
            held.moved_s = time.monotonic()
            self._go_on(held)

    # -- work -------------------------------------------------------------------------------

    def start_unit(self, held: Held, unit: int) -> None:
        """Run a unit that waits no longer."""
        self._note_passed_over(held)
        if not self.in_flight:
            self.moved_s = time.monotonic()
        if not held.running:
            held.moved_s = time.monotonic()
        self.in_flight += 1
        since_s = self.speedometer.start()
        task = held.running[unit] = self.spawn(self._run_unit(held, unit, since_s))
        # not in the coroutine: one that is cancelled before its first step runs no line of it
        task.add_done_callback(lambda _: self._unit_ended(held, unit))

    def _note_passed_over(self, served: Held) -> None:
        """A job starves when one that was taken later got a slot, not when no slot was free."""
        served.starved_since_s = None
        for held in self.held.values():
            idle = held.waiting and not held.running and held.starved_since_s is None
            if idle and held.unreadable_since_s is None and held.number < served.number:
                held.starved_since_s = time.monotonic()

    async def _run_unit(self, held: Held, unit: int, since_s: float) -> None:
        try:
            await self._work.run(held.opened, unit)
        except LeaseLost:
            self.spawn(self._lost(held))
        except EngineDead as dead:
            self.engine_died(dead)
            self._again(held, unit)
        except WindowLate as late:
            self._late(held, unit, late)
        except SoundUnreadable as why:
            log().warning("unit_unreadable", job_id=held.job_id, why=why.message)
            held.waiting.appendleft(unit)
            self.unreadable.note(held)
            self.suspects.drop(held.job_id)  # it would keep all others waiting
            self.moved_s = time.monotonic()  # not the engine's fault
        except PartDown as down:
            log().warning("unit_waits", job_id=held.job_id, why=down.message)
            held.waiting.appendleft(unit)
            held.not_before_s = time.monotonic() + RETRY_S
            self.moved_s = time.monotonic()  # not the engine's fault
        except (RecordingRefused, JobFailed, WindowRefused) as refused:
            self.spawn(self._fail(held, refused))
        except Exception:
            log().exception("unit_error", job_id=held.job_id, unit=unit)
            self.spawn(self._fail(held, UnexpectedError()))
        else:
            self.suspects.clear_unit(held.job_id, unit)
            self.moved_s = held.moved_s = time.monotonic()
            held.unreadable_since_s, held.unreadable_times = None, 0
            self.done.add(held.job_id)
            work = self._work.unit_work(held.opened, unit)
            self.speedometer.note(work, self.moved_s - since_s)

    def _unit_ended(self, held: Held, unit: int) -> None:
        self.in_flight -= 1
        self.speedometer.end()
        held.running.pop(unit, None)
        if not held.running and not held.waiting and not held.ended:
            self._go_on(held)
        self._wake()

    def _go_on(self, held: Held) -> None:
        """Nothing of the job runs or waits: what may be begun next, or its end.

        An end that a unit itself asked for was asked for earlier and comes first.
        """
        held.waiting.extend(self._work.units(held.opened))
        if not held.waiting:
            self.spawn(self._finish(held))

    def engine_died(self, death: EngineDead) -> None:
        """The engine can answer nothing any more; the first to tell says why."""
        self.death = self.death or death

    def _again(self, held: Held, unit: int) -> None:
        """A unit that was in an engine which died waits again. With more than one slot nobody is
        suspected of having filled the memory: they all did.
        """
        held.waiting.appendleft(unit)
        if not (isinstance(self.death, EngineFull) and self._work.slots > 1):
            self.suspects.add(held.job_id, unit)

    def _late(self, held: Held, unit: int, late: WindowLate) -> None:
        """A unit was given up. Beside others of unknown guilt it is tried again alone; alone, the
        engine is taken for dead.
        """
        others = any(other.running for other in self.held.values() if other is not held)
        alone = not others and (self.in_flight == 1 or held.job_id in self.suspects)
        log().error("window_late", job_id=held.job_id, unit=unit, alone=alone, why=late.message)
        self.moved_s = time.monotonic()  # what is beside it has a time of its own
        if alone:
            self.engine_died(EngineHung())
            self._again(held, unit)
        else:
            held.waiting.appendleft(unit)
            self.suspects.add_late(held.job_id, unit)

    async def let_go_of_unreadable(self) -> None:
        """What could not be read for long fails, if others could; else another worker may try."""
        for held, others_heard in self.unreadable.overdue(list(self.held.values())):
            if others_heard:
                log().error("job_unreadable", job_id=held.job_id)
                await self._fail(held, RecordingUnreadable())
            else:
                await self.give_back(held, "it cannot be read here")

    async def empty_engine(self, patience_s: float) -> None:
        """After `patience_s` no unit runs: those that did not notice the death are suspects too."""
        running = [(h, u, t) for h in self.held.values() for u, t in h.running.items()]
        if not running:
            return
        _, stuck = await asyncio.wait([task for *_, task in running], timeout=patience_s)
        for held, unit, task in running:
            if task in stuck:
                task.cancel()
                self._again(held, unit)
        if stuck:
            await asyncio.wait(stuck)

    # -- out --------------------------------------------------------------------------------

    def lose(self, job_id: str) -> None:
        """The job is no longer ours (lease gone, cancelled): drop it and write nothing."""
        if held := self.held.get(job_id):
            self.spawn(self._lost(held))

    async def _finish(self, held: Held) -> None:
        """Commit. An outage is waited out: the lease is renewed meanwhile."""
        if held.ended:
            return
        held.ended, held.moved_s = True, time.monotonic()
        self._work.let_go(held.opened)
        while True:
            try:
                result = await asyncio.to_thread(self._work.finish, held.opened)
                ending = self._endings.succeed(held, result)
            except PartDown as down:
                log().warning("finish_waits", job_id=held.job_id, why=down.message)
                held.moved_s = time.monotonic()  # what answers that it cannot does not hang
                if not self.leaving:
                    await asyncio.sleep(RETRY_S)
                    continue
                ending = self._endings.leave_to_lease(held, down)
            except LeaseLost:
                ending = self._endings.lose(held)
            except (JobFailed, RecordingRefused) as refused:
                ending = self._endings.fail(held, refused)
            except Exception:
                log().exception("finish_error", job_id=held.job_id)
                ending = self._endings.fail(held, UnexpectedError())
            await self._end(held, ending)
            return

    async def _fail(self, held: Held, refused: FairscribeError) -> None:
        if not held.ended:
            await self._end(held, self._endings.fail(held, refused))

    async def _lost(self, held: Held) -> None:
        if not held.ended:
            await self._end(held, self._endings.lose(held))

    async def _end(self, held: Held, ending: Ending) -> None:
        """Stop what the job still runs, then tell Postgres, Redis and Flower, in a thread."""
        held.ended = True
        if self.held.get(held.job_id) is held:
            del self.held[held.job_id]
            self.suspects.drop(held.job_id)
        for task in held.running.values():
            task.cancel()
        if held.opened is not None:
            self._work.let_go(held.opened)
        await asyncio.to_thread(ending)
        self._wake()

    async def give_back(self, held: Held, why: str) -> None:
        """It waits again, with what is left of it."""
        held.ended, held.moved_s = True, time.monotonic()
        if held.opened is not None:
            await self._work.settle(held.opened)
        bucket = self._work.bucket_left(held.opened) if held.opened else held.ticket.bucket
        await self._end(held, self._endings.give_back(held, bucket, why))

    async def charge(self, held: Held, why: JobFailed) -> None:
        """It was this job's fault, for nothing else was there: once too often and it fails."""
        if await asyncio.to_thread(self._endings.charge_crash, held):
            await self._end(held, self._endings.fail(held, why))

    def let_go_of_stuck(self) -> None:
        """Keep no job for ever: one none of whose steps ends is left to its lease.

        While windows of others ended it is charged, for then neither the engine nor storage nor
        Postgres was the reason; while nothing ended at all, nobody is.
        """
        now_s = time.monotonic()
        for held in list(self.held.values()):
            busy = held.opened is None or held.running or held.ended or held.not_before_s > now_s
            if busy and now_s - held.moved_s > self._work.stuck_s:
                others = self.done.since(now_s - self._work.stuck_s / 2, held.job_id)
                log().error("job_stuck", job_id=held.job_id, others_went_on=others)
                self.spawn(self._leave_stuck(held, charged=others))

    async def _leave_stuck(self, held: Held, *, charged: bool) -> None:
        held.ended, held.moved_s = True, time.monotonic()
        self._endings.renew_no_more(held)  # all threads may hang, and what follows needs one
        if charged and await asyncio.to_thread(self._endings.charge_crash, held):
            await self._end(held, self._endings.fail(held, JobStuck()))
        else:
            stuck = PartDown("it did not move any more")
            await self._end(held, self._endings.leave_to_lease(held, stuck))

    async def give_all_back(self, patience_s: float) -> None:
        """The worker stops: nothing is held afterwards, or only by its lease."""
        mine = [held for held in self.held.values() if not held.ended]
        await asyncio.gather(*(self.give_back(held, "worker stops") for held in mine))
        if self._background:
            await asyncio.wait(self._background, timeout=patience_s)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run beside everything else; what goes wrong in it is logged."""
        task = asyncio.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log().error("puller_task_error", stage=self._work.stage.name, why=repr(error))
