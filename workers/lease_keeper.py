"""Extends the leases of jobs in hand, from a thread that does not need the event loop.

Leases are renewed only while the work makes progress: a heartbeat that only proves that the process
lives would keep a hung job for ever. More often than it renews it asks Postgres whether the jobs
are still wanted, so that a cancelled one frees its slots soon, however long its windows take.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sqlalchemy import Engine

from pipeline.errors import PartDown
from pipeline.job import Stage
from pipeline.logs import log
from pipeline.queue.redis_queue import LOST, RedisQueue
from pipeline.store import jobs
from pipeline.store.session import transaction

WATCH_S = 0.5
"""How often Postgres is asked whether the jobs in hand are still ours: one question by key."""


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

    def drop(self, job_id: str, token: str) -> None:
        """Renew this claim's lease no more; a newer claim of the same job is not touched."""
        with self._lock:
            if self._held.get(job_id, ("", 0))[0] == token:
                del self._held[job_id]

    def renew_once(self) -> None:
        """One round. Raises `PartDown`; work goes on meanwhile, the fence decides at the end."""
        with self._lock:
            held = dict(self._held)
        if not held or not self._moving():
            return
        answers = self._queue.renew([(job_id, token) for job_id, (token, _) in held.items()])
        lost = [job_id for job_id, answer in zip(held, answers, strict=True) if answer == LOST]
        self._take_back({job_id: held[job_id] for job_id in lost})
        self._check(held)

    def watch_once(self) -> None:
        """Let go of jobs that were cancelled, erased or granted to others. Raises `PartDown`."""
        with self._lock:
            held = dict(self._held)
        if not held:
            return
        with transaction(self._store) as c:
            gone = jobs.taken_away(c, {job_id: attempt for job_id, (_, attempt) in held.items()})
        for job_id in gone:
            self._queue.complete([(job_id, held[job_id][0])])
            self._lose(job_id, held[job_id][0])

    def _take_back(self, lost: dict[str, tuple[str, int]]) -> None:
        """What an audit put in the queue, because it looked just before our grant, is ours all the
        same; the rest is lost.
        """
        if not lost:
            return
        with transaction(self._store) as c:
            attempts = {job_id: attempt for job_id, (_, attempt) in lost.items()}
            ours = sorted(jobs.in_work(c, self._stage, attempts))
        answers = self._queue.retake([(job_id, lost[job_id][0]) for job_id in ours])
        back = {job_id for job_id, taken in zip(ours, answers, strict=True) if taken}
        for job_id in lost.keys() - back:
            self._lose(job_id, lost[job_id][0])

    def _check(self, held: dict[str, tuple[str, int]]) -> None:
        """Postgres decides: a job may have been cancelled, or a lease have been taken up again
        (`renew` answered REASSERTED) of a job that ended meanwhile.
        """
        with transaction(self._store) as c:
            attempts = {job_id: attempt for job_id, (_, attempt) in held.items()}
            ours = jobs.still_ours(c, self._stage, attempts)
        for job_id, (token, _) in held.items():
            if job_id not in ours:
                self._queue.complete([(job_id, token)])
                self._lose(job_id, token)

    def _lose(self, job_id: str, token: str) -> None:
        with self._lock:
            known = self._held.get(job_id, ("", 0))[0] == token
            if known:
                del self._held[job_id]
        if known:
            log().warning("lease_lost", job_id=job_id, queue=self._queue.name)
            self._on_lost(job_id)

    def _run(self) -> None:
        renew_at_s = time.monotonic() + self._renew_s
        while not self._stopping.wait(min(WATCH_S, self._renew_s)):
            try:
                if time.monotonic() < renew_at_s:
                    self.watch_once()
                    continue
                renew_at_s = time.monotonic() + min(1.0, self._renew_s)  # the lease runs meanwhile
                self.renew_once()
                renew_at_s = time.monotonic() + self._renew_s
            except PartDown as down:
                log().warning("leases_not_renewed", queue=self._queue.name, why=down.message)
            except Exception:
                # this thread must not end while jobs are held: their leases would run out unseen
                log().exception("lease_keeper_error", queue=self._queue.name)
