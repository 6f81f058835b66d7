"""Questions about a batch: how far it is, which of its jobs have ended, which can still be stopped.

A batch is nothing but the jobs that carry its id: it begins with its first and has ended when all
have. Each question is asked for a caller: the same id used by two tenants is two batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, Select, case, func, select, tuple_

from pipeline.caller import Caller
from pipeline.job import FINAL, MOVES, JobView, State, states_of
from pipeline.store.rows import move, now, seen_by
from pipeline.store.tables import jobs
from pipeline.store.views import as_view

_final = jobs.c.state.in_([state.value for state in FINAL])


@dataclass(frozen=True)
class BatchView:
    """A batch as people read it."""

    batch_id: str
    created_at: datetime
    completed_at: datetime | None
    """When its last job ended; None while one has not."""
    counts: dict[str, int]
    """Jobs by public status."""
    duration_s: float
    """Of all its recordings, as far as known."""
    duration_done_s: float
    """Of those with a transcript."""
    progress: float
    """Part of the work that is done, 0..1: jobs weigh as long as they last."""

    @property
    def jobs(self) -> int:
        """How many there are."""
        return sum(self.counts.values())


def batch(c: Connection, batch_id: str, caller: Caller) -> BatchView | None:
    """How the batch stands; None when no job that exists for `caller` carries its id."""
    found = _views(c, [batch_id], caller)
    return found[0] if found else None


def newest(
    c: Connection, before: tuple[datetime, str] | None, limit: int, caller: Caller
) -> list[BatchView]:
    """Batches, the newest first, from the one after `before` = (created_at, batch_id)."""
    began = func.min(jobs.c.created_at)
    named = select(jobs.c.batch_id).where(jobs.c.batch_id.is_not(None), seen_by(caller))
    query = named.group_by(jobs.c.batch_id)
    if before is not None:
        query = query.having(tuple_(began, jobs.c.batch_id) < before)
    page = query.order_by(began.desc(), jobs.c.batch_id.desc()).limit(limit)
    return _views(c, c.execute(page).scalars().all(), caller)


def ended(
    c: Connection, batch_id: str, after: tuple[datetime, str] | None, limit: int, caller: Caller
) -> list[JobView]:
    """Jobs of the batch that have ended, by (completed_at, id), after that place if given."""
    mine = jobs.c.batch_id == batch_id, seen_by(caller)
    query = select(jobs).where(*mine, jobs.c.completed_at.is_not(None))
    if after is not None:
        query = query.where(tuple_(jobs.c.completed_at, jobs.c.id) > (after[0], UUID(after[1])))
    rows = c.execute(query.order_by(jobs.c.completed_at, jobs.c.id).limit(limit))
    return [as_view(row) for row in rows]


def cancel_page(
    c: Connection, batch_id: str, after: str | None, limit: int, caller: Caller
) -> tuple[list[str], str | None]:
    """Cancel the next jobs by id that have not ended: (their ids, where to go on or None)."""
    allowed = [state for state in State if State.CANCELLED in MOVES[state]]
    query = select(jobs.c.id).where(jobs.c.batch_id == batch_id, seen_by(caller), ~_final)
    if after is not None:
        query = query.where(jobs.c.id > UUID(after))
    ids = [str(i) for i in c.scalars(query.order_by(jobs.c.id).limit(limit).with_for_update())]
    values = {"state": State.CANCELLED.value, "completed_at": now, "index_pending": False}
    stopped = [str(row.id) for row in move(c, ids, allowed, values)] if ids else []
    return stopped, ids[-1] if len(ids) == limit else None


def _views(c: Connection, batch_ids: Sequence[str], caller: Caller) -> list[BatchView]:
    """In the order of `batch_ids`."""
    rows = {row.batch_id: row for row in c.execute(_sums(batch_ids, caller))} if batch_ids else {}
    return [_view(rows[batch_id]) for batch_id in batch_ids if batch_id in rows]


_STATUSES = ("queued", "processing", "completed", "failed", "cancelled")


def _sums(batch_ids: Sequence[str], caller: Caller) -> Select[Any]:
    # a length that is not known yet is taken for the batch's mean
    mean_s = func.avg(jobs.c.duration_s).over(partition_by=jobs.c.batch_id)
    weight = func.coalesce(jobs.c.duration_s, mean_s, 1.0)
    heard = func.coalesce(jobs.c.windows_done / func.nullif(jobs.c.windows_total, 0.0), 0.0)
    of = select(
        *(jobs.c.batch_id, jobs.c.state, jobs.c.created_at, jobs.c.completed_at),
        jobs.c.duration_s,
        weight.label("weight"),
        case((_final, 1.0), else_=func.least(1.0, heard)).label("done"),
    )
    one = of.where(jobs.c.batch_id.in_(batch_ids), seen_by(caller)).subquery()
    counts = [
        func.count()
        .filter(one.c.state.in_([state.value for state in states_of(status)]))
        .label(status)
        for status in _STATUSES
    ]
    completed = one.c.state == State.COMPLETED.value
    return select(
        one.c.batch_id,
        func.min(one.c.created_at).label("created_at"),
        func.max(one.c.completed_at).label("completed_at"),
        func.coalesce(func.sum(one.c.duration_s), 0.0).label("duration_s"),
        func.coalesce(func.sum(one.c.duration_s).filter(completed), 0.0).label("duration_done_s"),
        (func.sum(one.c.weight * one.c.done) / func.nullif(func.sum(one.c.weight), 0.0)).label(
            "progress"
        ),
        *counts,
    ).group_by(one.c.batch_id)


def _view(row: Row[Any]) -> BatchView:
    counts = {status: int(getattr(row, status)) for status in _STATUSES}
    going = counts["queued"] + counts["processing"]
    return BatchView(
        batch_id=row.batch_id,
        created_at=row.created_at,
        completed_at=None if going else row.completed_at,
        counts=counts,
        duration_s=round(row.duration_s, 3),
        duration_done_s=round(row.duration_done_s, 3),
        progress=round(row.progress or 0.0, 4) if going else 1.0,
    )
