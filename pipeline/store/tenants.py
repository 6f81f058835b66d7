"""Tenants' virtual clocks: when a job counts as arrived. The rule: scheduling/shares.py."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sqlalchemy import Connection, func, select, update
from sqlalchemy.dialects.postgresql import insert

from pipeline.job import STAGES
from pipeline.scheduling.shares import ahead_ms, caught_up, equal_share, virtual_arrival
from pipeline.scheduling.work import bucket_work_s
from pipeline.store.rows import now
from pipeline.store.tables import jobs, tenants

KEPT_S = 2.0
"""How long what was found to be left of each tenant's work is used."""

UNKNOWN_CAPACITY = 8.0
"""Reference slot seconds a second, while no worker has said how fast it is."""


class Clocks:
    """The clocks of all tenants. Safe to use from several threads.

    `capacity` tells what all workers do, reference slot seconds a second; None while nobody knows.
    """

    def __init__(self, capacity: Callable[[], float | None]) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._left_s: dict[str, float] = {}
        self._good_until_s = 0.0

    def count(self, c: Connection, tenant: str, arrival_ms: int, work_s: float) -> int:
        """When a job of `tenant` counts as arrived, ms of Postgres time; moves the tenant's clock.

        Its row stays locked until the transaction ends, so its jobs are counted one by one.
        """
        capacity = self._capacity() or UNKNOWN_CAPACITY
        c.execute(insert(tenants).values(name=tenant).on_conflict_do_nothing())
        now_ms = (func.extract("epoch", now) * 1000).label("now_ms")
        own = select(tenants.c.share, tenants.c.clock_ms, now_ms).where(tenants.c.name == tenant)
        row = c.execute(own.with_for_update()).one()
        waits_s, others = self._left(c, tenant, work_s)
        share = row.share or equal_share(capacity, others + 1)
        clock_ms = caught_up(row.clock_ms, int(row.now_ms), waits_s, share)
        counted_ms, clock_ms = virtual_arrival(
            arrival_ms, clock_ms, work_s, share, ahead_ms(capacity, share)
        )
        c.execute(update(tenants).where(tenants.c.name == tenant).values(clock_ms=clock_ms))
        return counted_ms

    def _left(self, c: Connection, tenant: str, work_s: float) -> tuple[float, int]:
        """(work of the tenant that has not ended, how many others have some), a moment ago."""
        with self._lock:
            now_s = time.monotonic()
            if now_s >= self._good_until_s:
                self._left_s = left_s(c)
                self._good_until_s = now_s + KEPT_S
            found_s = self._left_s.get(tenant, 0.0)
            self._left_s[tenant] = found_s + work_s
            return found_s, len(self._left_s) - 1


def left_s(c: Connection) -> dict[str, float]:
    """Predicted work that is probed and has not ended, reference slot seconds by tenant."""
    live = [state.value for stage in STAGES for state in (stage.waiting, stage.working)]
    counts = (
        select(jobs.c.tenant, jobs.c.bucket, func.count().label("jobs"))
        .where(jobs.c.tenant.is_not(None), jobs.c.state.in_(live))
        .group_by(jobs.c.tenant, jobs.c.bucket)
    )
    found: dict[str, float] = {}
    for row in c.execute(counts):
        work_s = row.jobs * bucket_work_s(row.bucket or 0)
        found[row.tenant] = found.get(row.tenant, 0.0) + work_s
    return found
