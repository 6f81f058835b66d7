"""What every question about jobs is made of: one way to move them, one way to read their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Select, func, select, true, update

from pipeline.caller import Caller
from pipeline.job import FINAL, MOVES, State
from pipeline.scheduling.policies import Waiting
from pipeline.store import outbox
from pipeline.store.tables import jobs

now = func.clock_timestamp()
"""Postgres' time at this moment, not at the transaction's begin."""


def ago(seconds: float) -> ColumnElement[datetime]:
    """Postgres' time so many seconds before `now`."""
    # make_interval takes years, months, weeks, days, hours, minutes, seconds
    return now - func.make_interval(0, 0, 0, 0, 0, 0, seconds)


def ahead(seconds: float) -> ColumnElement[datetime]:
    """Postgres' time so many seconds after `now`."""
    return ago(-seconds)


def first_id_since(moment_ms: int) -> UUID:
    """Below the id of every job made at this moment (ms) or later. Ids grow with time, so a query
    that asks for larger ones reads new rows only. A minute is left for clocks that differ.
    """
    return UUID(int=max(0, moment_ms - 60_000) << 80)


def seen_by(caller: Caller) -> ColumnElement[bool]:
    """Jobs that exist for `caller`: its tenant's; all of them where keys are off."""
    return true() if caller.key_id is None else jobs.c.tenant == caller.tenant


def move(
    c: Connection,
    job_ids: Sequence[str],
    allowed: Sequence[State],
    values: Mapping[str, Any],
    attempt: int | None = None,
    returning: Sequence[ColumnElement[Any]] = tuple(jobs.c),
) -> Any:
    """UPDATE jobs that stand in `allowed` (and at `attempt`, if given), RETURNING whole rows or
    some columns, `id` among them. Where that ends them, what webhooks are told of it is written
    in the same transaction.
    """
    target = State(values["state"])
    if illegal := [state for state in allowed if target not in MOVES[state] and state != target]:
        raise AssertionError(f"{illegal} may not become {target}: see pipeline/job.py")
    where: list[ColumnElement[bool]] = [
        jobs.c.id.in_([UUID(j) for j in job_ids]),
        jobs.c.state.in_([state.value for state in allowed]),
    ]
    if attempt is not None:
        where.append(jobs.c.attempt == attempt)
    moving = update(jobs).where(*where).values(**values, updated_at=now)
    if target not in FINAL:
        return c.execute(moving.returning(*returning))
    moved = c.execute(moving.returning(*returning, outbox.HEARD)).freeze()
    if heard := [row.id for row in moved() if row.heard]:
        outbox.tell(c, heard)
    return moved()


def places() -> Select[Any]:
    """SELECT the columns `place_of` reads."""
    return select(jobs.c.id, jobs.c.bucket, jobs.c.arrival_ms, jobs.c.counted_ms)


def place_of(row: Any) -> Waiting | None:
    """Where the job of a row stands in its queue; None for no row."""
    return Waiting(str(row.id), row.bucket or 0, counted_ms(row)) if row is not None else None


def counted_ms(row: Any) -> int:
    """When a job of a tenant is taken to have come, by which it is ranked; what people are told is
    arrival_ms, when it did.
    """
    return int(row.arrival_ms if row.counted_ms is None else row.counted_ms)
