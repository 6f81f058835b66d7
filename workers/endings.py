"""How a job leaves a worker: each ending tells Postgres, then Redis, then Flower, in that order.

Postgres first, because it decides; Redis after, because a lease dropped too early would let another
worker begin; Flower last, because it only shows. An outage in the middle is left to the lease: it
runs out, and the reclaimer settles the job from what Postgres says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from sqlalchemy import Engine

from pipeline.crash_points import reach
from pipeline.errors import FairscribeError, PartDown
from pipeline.job import Stage, State
from pipeline.logs import log
from pipeline.queue.redis_queue import RedisQueue
from pipeline.store import jobs, views
from pipeline.store.session import transaction
from workers.flower_events import FlowerEvents
from workers.held import Held
from workers.lease_keeper import LeaseKeeper

Ending = Callable[[], None]


def _outlives_anything(end: Ending) -> Ending:
    """A job that leaves must be gone from this worker whatever else goes wrong."""

    @wraps(end)
    def guarded() -> None:
        try:
            end()
        except Exception:
            log().exception("ending_error")

    return guarded


class Endings:
    """The ends of one worker's jobs. An `Ending` is run in a thread and never raises."""

    def __init__(
        self,
        stage: Stage,
        queue: RedisQueue,
        store: Engine,
        keeper: LeaseKeeper,
        flower: FlowerEvents,
        max_crashes: int,
    ) -> None:
        self._stage, self._queue, self._store = stage, queue, store
        self._keeper, self._flower, self._max_crashes = keeper, flower, max_crashes

    def begin(self, held: Held) -> None:
        """The job was granted: keep its lease, show it."""
        self._keeper.hold(held.job_id, held.token, held.ticket.attempt)
        self._flower.started(held.request, held.ticket.tries)

    def succeed(self, held: Held, result: str) -> Ending:
        """Its result is committed already."""

        def end() -> None:
            self._forget(held)
            reach("after_complete")
            self._flower.succeeded(held.request, result)

        return _outlives_anything(end)

    def fail(self, held: Held, why: FairscribeError) -> Ending:
        """It can not be done; the reason goes to whoever asked for it."""

        def end() -> None:
            try:
                with transaction(self._store) as c:
                    failed = jobs.fail(c, held.job_id, why.code, why.message, held.ticket.attempt)
            except PartDown as down:
                self._leave_to_lease(held, down)
                return
            self._forget(held)
            if failed:
                log().info("job_failed", job_id=held.job_id, code=why.code)
                self._flower.failed(held.request, why.code)
            else:
                self._flower.given_back(held.request, "lease lost")

        return _outlives_anything(end)

    def give_back(self, held: Held, bucket: int, why: str) -> Ending:
        """It waits again, at the size of what is left and with its first arrival."""

        def end() -> None:
            self._keeper.drop(held.job_id, held.token)
            try:
                with transaction(self._store) as c:
                    place = jobs.give_back(c, self._stage, held.ticket, bucket)
                reach("give_back_after_postgres")
                if place is not None:
                    self._queue.release([(held.job_id, held.token, place)])
            except PartDown as down:
                self._leave_to_lease(held, down)
                return
            if place is None:
                self.lose(held)()
            else:
                self._flower.given_back(held.request, why)

        return _outlives_anything(end)

    def lose(self, held: Held) -> Ending:
        """The fence refused a write: find out what became of it, for Flower's sake."""

        def end() -> None:
            try:
                with transaction(self._store) as c:
                    view = views.view(c, held.job_id)
            except PartDown as down:
                self._leave_to_lease(held, down)
                return
            self._forget(held)
            if view is not None and view.state is State.CANCELLED:
                self._flower.revoked(held.request)
            elif view and view.state is State.COMPLETED and view.attempt == held.ticket.attempt:
                # the commit went through although its answer was lost
                self._flower.succeeded(held.request, "committed")
            else:
                self._flower.given_back(held.request, "lease lost")

        return _outlives_anything(end)

    def leave_to_lease(self, held: Held, down: PartDown) -> Ending:
        """Nothing can be written now: the lease runs out, and somebody else goes on."""
        return _outlives_anything(lambda: self._leave_to_lease(held, down))

    def renew_no_more(self, held: Held) -> None:
        """Let the lease of a job run out, whatever else can still be said of it; at once."""
        self._keeper.drop(held.job_id, held.token)

    def charge_crash(self, held: Held) -> bool:
        """The engine died while this job was alone in it. True when that was once too often."""
        try:
            with transaction(self._store) as c:
                crashes = jobs.charge_crash(c, held.ticket)
        except PartDown:
            return False
        log().error("engine_crashed_on_job", job_id=held.job_id, crashes=crashes)
        return crashes >= self._max_crashes

    def _forget(self, held: Held) -> None:
        self._keeper.drop(held.job_id, held.token)
        try:
            self._queue.complete([(held.job_id, held.token)])
        except PartDown as down:
            log().info("lease_left_behind", job_id=held.job_id, why=down.message)

    def _leave_to_lease(self, held: Held, down: PartDown) -> None:
        self._keeper.drop(held.job_id, held.token)
        self._flower.given_back(held.request, "left to its lease")
        log().warning("left_to_lease", job_id=held.job_id, why=down.message)
