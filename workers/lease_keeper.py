"""Extends the leases of jobs in hand, from a thread that does not need the event loop.

Leases are renewed only while the work makes progress: a heartbeat that only proves that the process
lives would keep a hung job for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from sqlalchemy import Engine

from pipeline.errors import PartDown
from pipeline.job import Stage
from pipeline.logs import log
from pipeline.queue.redis_queue import LOST, REASSERTED, RedisQueue
from pipeline.store import jobs
from pipeline.store.session import transaction


class LeaseKeeper:
    """Keeps the leases of one worker."""

    def __init__(
        self,
        queue: RedisQueue,
        store: Engine,
        stage: Stage,
        *,
        renew_s: float,
        moving: Callable[[], bool],
        on_lost: Callable[[str], None],
    ) -> None:
        self._queue, self._store, self._stage = queue, store, stage
        self._renew_s, self._moving, self._on_lost = renew_s, moving, on_lost
        self._held: dict[str, tuple[str, int]] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease-keeper", daemon=True)

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def stop(self) -> None:
        """Renew no more."""
        self._stopping.set()
        self._thread.join(5.0)

    def hold(self, job_id: str, token: str, attempt: int) -> None:
        """Renew this job's lease from now on."""
        with self._lock:
            self._held[job_id] = (token, attempt)

    def drop(self, job_id: str) -> None:
        """Renew this job's lease no more."""
        with self._lock:
            self._held.pop(job_id, None)

    def renew_once(self) -> None:
        """One round. Raises `PartDown`; work goes on meanwhile, the fence decides at the end."""
        with self._lock:
            held = dict(self._held)
        if not held or not self._moving():
            return
        answers = self._queue.renew([(job_id, token) for job_id, (token, _) in held.items()])
        by_job = dict(zip(held, answers, strict=True))
        for job_id in [j for j, answer in by_job.items() if answer == LOST]:
            self._lose(job_id)
        self._check({j: held[j] for j, answer in by_job.items() if answer == REASSERTED})

    def _check(self, reasserted: dict[str, tuple[str, int]]) -> None:
        """A lease taken up again may belong to a job that ended meanwhile: Postgres knows."""
        if not reasserted:
            return
        with transaction(self._store) as c:
            attempts = {job_id: attempt for job_id, (_, attempt) in reasserted.items()}
            ours = jobs.still_ours(c, self._stage, attempts)
        for job_id, (token, _) in reasserted.items():
            if job_id not in ours:
                self._queue.complete([(job_id, token)])
                self._lose(job_id)

    def _lose(self, job_id: str) -> None:
        with self._lock:
            known = self._held.pop(job_id, None)
        if known is not None:
            log().warning("lease_lost", job_id=job_id, queue=self._queue.name)
            self._on_lost(job_id)

    def _run(self) -> None:
        while not self._stopping.wait(self._renew_s):
            try:
                self.renew_once()
            except PartDown as down:
                log().warning("leases_not_renewed", queue=self._queue.name, why=down.message)
            except Exception:
                # this thread must not end while jobs are held: their leases would run out unseen
                log().exception("lease_keeper_error", queue=self._queue.name)
