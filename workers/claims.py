"""Gets work for free slots: a claim from Redis that counts once Postgres has granted it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine

from pipeline.crash_points import reach
from pipeline.job import Ticket
from pipeline.logs import log
from pipeline.queue.redis_queue import Floor, Promotion, RedisQueue
from pipeline.store import jobs
from pipeline.store.session import transaction
from workers.held import Work


@dataclass(frozen=True)
class Taken:
    """What a worker got."""

    jobs: tuple[tuple[Ticket, str], ...]
    """Granted jobs, each with the token of its claim."""
    now_ms: int | None
    """Postgres time at the claim; None when nobody waited."""


class Claims:
    """Takes work for one worker. Called in a thread, one call at a time."""

    def __init__(self, work: Work, queue: RedisQueue, store: Engine, worker: str) -> None:
        self._work, self._queue, self._store, self._worker = work, queue, store, worker
        self._index_lost = False

    def take(self, windows: int, floor: Floor | None, promotion: Promotion | None) -> Taken:
        """Jobs worth about `windows` windows that outrank `floor`, or without one the stage's own;
        with a promotion overdue ones besides, which need not outrank it.

        Raises `PartDown`. If Postgres does not answer, whether the grant was made is unknown: the
        claim is left to its lease, after which the job waits again.
        """
        if not self._queue.waiting():
            # most of an idle worker's ticks: a tenth of the cost of a claim
            return Taken((), None)
        claim = self._queue.claim(windows, floor or self._work.floor(), promotion)
        self._tell(claim.index_lost)
        if not claim.jobs:
            return Taken((), claim.now_ms)
        reach("after_claim")
        tokens = {job.job_id: job.token for job in claim.jobs}
        with transaction(self._store) as c:
            tickets = jobs.grant(c, self._work.stage, list(tokens), self._worker, self._work.model)
        reach("after_grant")
        granted = tuple((ticket, tokens.pop(ticket.job_id)) for ticket in tickets)
        self._queue.complete(list(tokens.items()))  # ghosts: cancelled, ended, or long elsewhere
        return Taken(granted, claim.now_ms)

    def _tell(self, index_lost: bool) -> None:
        if index_lost and not self._index_lost:
            log().warning("index_lost", queue=self._queue.name)
        self._index_lost = index_lost
