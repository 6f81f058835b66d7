"""Which waiting jobs may be late: those with a deadline or a wait budget, a sample of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, select, text

from pipeline.scheduling.policies import Waiting
from pipeline.store.rows import place_of
from pipeline.store.tables import WISHING, jobs


@dataclass(frozen=True)
class Wishing:
    """A waiting job that can be late."""

    place: Waiting
    start_by_ms: float
    """Its wait budget ends, ms of Postgres time; infinite without one."""
    end_by_ms: float
    """Its deadline, ms of Postgres time; infinite without one."""


def wishing(c: Connection, look_at: int, limit: int) -> tuple[Sequence[Wishing], int]:
    """(at most `limit` waiting jobs with a wish, taken at random; of how many).

    No more than `look_at` are looked at, those that came first: the query stays short whatever
    waits.
    """
    columns = (
        jobs.c.id,
        jobs.c.bucket,
        jobs.c.arrival_ms,
        jobs.c.counted_ms,
        jobs.c.deadline,
        jobs.c.wait_budget_s,
    )
    first = select(*columns).where(text(WISHING)).order_by(jobs.c.id).limit(look_at).subquery()
    rows = c.execute(
        select(first, func.count().over().label("looked_at")).order_by(func.random()).limit(limit)
    ).all()
    found = []
    for row in rows:
        place = place_of(row)
        assert place is not None
        start_by_ms = row.arrival_ms + 1000 * (row.wait_budget_s or float("inf"))
        found.append(Wishing(place, start_by_ms, _ms(row.deadline)))
    return found, rows[0].looked_at if rows else 0


def _ms(moment: datetime | None) -> float:
    return float("inf") if moment is None else moment.timestamp() * 1000
