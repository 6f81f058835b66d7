"""reclaim: leases that ran out go back to the queue, and a lost index is rebuilt from Postgres.

One `Reclaimer` a queue, ticked each second in every worker process, without a leader: everything it
does is safe to do twice and at the same time elsewhere.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine

from pipeline.clock import Clock
from pipeline.crash_points import reach
from pipeline.job import TRANSCRIBE, Stage
from pipeline.logs import log
from pipeline.queue.redis_queue import RedisQueue
from pipeline.queue.roll import Identity
from pipeline.scheduling.policies import Policy
from pipeline.scheduling.work import bucket_of, predicted_work_s
from pipeline.store import index, policies
from pipeline.store.session import clock_ms, transaction

PAGE = 500
"""Jobs looked at in one go; keeps every script and query short."""

GAP_S = 3.0
"""A longer pause between two ticks may have been Redis' own: no lease of that time is trusted to
have really run out, because its worker could not renew it."""


class Reclaimer:
    """Keeps one queue true to Postgres."""

    def __init__(
        self,
        store: Engine,
        queue: RedisQueue,
        stage: Stage,
        clock: Clock,
        *,
        lease_s: float,
        start_policy: Policy,
        default_language: str,
    ) -> None:
        self._store, self._queue, self._stage, self._clock = store, queue, stage, clock
        self._lease_s, self._start_policy = lease_s, start_policy
        self._default_language = default_language
        self._identity: Identity | None = None
        self._last_tick_s: float | None = None
        self._last_redis_ms: int | None = None
        self._no_reaping_before_s = 0.0
        self._cursor: str | None = None
        self._waiting_from = self._leased_from = 0

    def tick(self) -> None:
        """One round. Raises `PartDown` when Postgres or Redis does not answer; tick again later."""
        self._notice_gaps()
        self._set_clock()
        self._set_policy()
        identity = self._queue.roll.identity()
        if self._index_lost(identity):
            self.audit()
            self._identity = identity  # not before: an audit cut short is made again
        else:
            self._drain_outbox()
            self._audit_next_page()
            self._audit_back()
        if self._clock.monotonic_s() >= self._no_reaping_before_s:
            self._reap()
        # a tick made slow by Postgres is no pause of Redis: only the time between ticks counts
        self._last_tick_s, self._last_redis_ms = self._clock.monotonic_s(), self._queue.time_ms()

    def audit(self) -> None:
        """Compare the whole queue with Postgres, then say that the index is whole."""
        cursor, waiting, working = None, 0, 0
        self._queue.shorten()  # the clock of a server that came in another's place may be behind
        while True:
            waits, works, cursor = self._audit_page(cursor)
            waiting, working = waiting + waits, working + works
            if cursor is None:
                break
        self._queue.begin_epoch()
        log().info("index_rebuilt", queue=self._queue.name, added=waiting, seeded=working)

    # -- the parts of a tick ----------------------------------------------------------------

    def _notice_gaps(self) -> None:
        """No reaping for one lease after a pause, of ours or of Redis': see GAP_S.

        The first tick counts as one: what happened before it is unknown.
        """
        now_s, redis_ms = self._clock.monotonic_s(), self._queue.time_ms()
        paused = (
            self._last_tick_s is None
            or self._last_redis_ms is None
            or now_s - self._last_tick_s > GAP_S
            or redis_ms - self._last_redis_ms > GAP_S * 1000
        )
        if self._last_redis_ms is not None and redis_ms < self._last_redis_ms:
            self._queue.shorten()
        if paused:
            self._no_reaping_before_s = now_s + self._lease_s

    def _set_clock(self) -> None:
        # arrivals are Postgres' time, waits are measured by Redis': keep the difference
        before_ms = self._queue.time_ms()
        with transaction(self._store) as c:
            postgres_ms = clock_ms(c)
        redis_ms = (before_ms + self._queue.time_ms()) // 2
        self._queue.clock_offset_ms = postgres_ms - redis_ms

    def _index_lost(self, identity: Identity) -> bool:
        changed = self._identity is not None and identity != self._identity
        if changed:
            self._no_reaping_before_s = self._clock.monotonic_s() + self._lease_s
        if self._identity is None:
            self._identity = identity
        return changed or not self._queue.roll.is_whole()

    def _set_policy(self) -> None:
        """Redis may have forgotten the policy, or been away when it was changed.

        Redis is read first: a change made between the two readings is then seen, not undone.
        """
        in_force = self._queue.policy()
        with transaction(self._store) as c:
            decided = policies.newest_policy(c) or self._start_policy
        if in_force != decided:
            self._queue.set_policy(decided)

    def _drain_outbox(self) -> None:
        with transaction(self._store) as c:
            places = index.outbox(c, self._stage, PAGE)
        if places:
            self._queue.enqueue(places)
            reach("outbox_after_enqueue")
            with transaction(self._store) as c:
                index.indexed(c, self._stage, [place.job_id for place in places])

    def _audit_next_page(self) -> None:
        # rolling: an entry lost without a trace is missed for one round of all ids at most
        *_, self._cursor = self._audit_page(self._cursor)

    def _audit_page(self, cursor: str | None) -> tuple[int, int, str | None]:
        with transaction(self._store) as c:
            waiting, working, cursor = index.page_of_stage(c, self._stage, cursor, PAGE)
        return self._queue.enqueue(waiting), self._seed(working), cursor

    def _seed(self, working: list[str]) -> int:
        seeded = self._queue.seed(working)
        if seeded:
            with transaction(self._store) as c:
                standing = index.standing(c, seeded)
            # ended while we looked: nobody is left to drop the lease it was just given
            ended = [j for j in seeded if standing.get(j) is not self._stage.working]
            self._queue.complete([(job_id, "") for job_id in ended])
        return len(seeded)

    def _audit_back(self) -> None:
        """Some of what Redis holds, against Postgres: who has no business here is taken out.

        Redis is asked first: whatever it held then and Postgres does not know now is a ghost, and
        no job on its way in. One that came back to wait in between is put in again.
        """
        roll, stage = self._queue.roll, self._stage
        waiting, self._waiting_from = roll.some_waiting(self._waiting_from, PAGE)
        leased, self._leased_from = roll.some_leased(self._leased_from, PAGE)
        if not waiting and not leased:
            return
        with transaction(self._store) as c:
            standing = index.standing(c, [*waiting, *leased])
        ghosts = [job_id for job_id in waiting if standing.get(job_id) is not stage.waiting]
        if ghosts:
            self._queue.withdraw(ghosts)
            with transaction(self._store) as c:
                again = index.waiting_among(c, stage, ghosts)
            self._queue.enqueue(again)
        here = (stage.waiting, stage.working)  # waiting: claimed, and about to be granted
        gone = [(j, token) for j, token in leased.items() if standing.get(j) not in here]
        self._queue.complete(gone)

    def _reap(self) -> None:
        expired = self._queue.reap(PAGE)
        if not expired:
            return
        reach("reap_after_takeover")
        job_ids = [job_id for job_id, _ in expired]
        with transaction(self._store) as c:
            settled, gone = index.settle_expired(c, self._stage, job_ids, self._bucket_left)
        reach("reap_after_postgres")
        places = {place.job_id: place for place in settled}
        self._queue.release([(j, token, places[j]) for j, token in expired if j in places])
        self._queue.complete([(j, token) for j, token in expired if j in gone])
        log().info("leases_ran_out", queue=self._queue.name, back=len(places), of=len(expired))

    def _bucket_left(self, row: Any) -> int:
        """Saved windows need no second hearing: rank the job by what remains."""
        if self._stage is not TRANSCRIBE or not row.windows_total:
            return int(row.bucket or 0)
        left = max(0, row.windows_total - row.windows_done)
        speech_s = (row.speech_s or 0.0) * left / row.windows_total
        language = row.language or self._default_language
        return bucket_of(predicted_work_s(speech_s, max(1, left), language))
