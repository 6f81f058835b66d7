"""What Redis should hold, by Postgres: who waits, who is in work, whose lease ran out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, func, select, update

from pipeline.job import Stage, State
from pipeline.scheduling.policies import Waiting
from pipeline.store.rows import move, place_of, places
from pipeline.store.tables import jobs


def outbox(c: Connection, stage: Stage, limit: int) -> list[Waiting]:
    """Waiting jobs that Redis may not have heard of yet."""
    rows = c.execute(
        places()
        .where(jobs.c.index_pending, jobs.c.state == stage.waiting.value)
        .order_by(jobs.c.id)
        .limit(limit)
    )
    return [place for row in rows if (place := place_of(row))]


def indexed(c: Connection, stage: Stage, job_ids: Sequence[str]) -> None:
    """Say that Redis has these jobs, unless they moved in between."""
    c.execute(
        update(jobs)
        .where(
            jobs.c.id.in_([UUID(j) for j in job_ids]),
            jobs.c.index_pending,
            jobs.c.state == stage.waiting.value,
        )
        .values(index_pending=False)
    )


def settle_expired(
    c: Connection, stage: Stage, job_ids: Sequence[str], bucket_left: Callable[[Any], int]
) -> list[Waiting]:
    """Jobs whose lease ran out: those in work wait again; returns the places of all that wait.

    `bucket_left` tells the size of what remains of a row. What is not returned has ended or is at
    another stage: its lease is to be dropped.
    """
    values = {"state": stage.waiting.value, "index_pending": True}
    for row in move(c, job_ids, (stage.working,), values).all():
        c.execute(update(jobs).where(jobs.c.id == row.id).values(bucket=bucket_left(row)))
    rows = c.execute(
        places().where(
            jobs.c.id.in_([UUID(j) for j in job_ids]), jobs.c.state == stage.waiting.value
        )
    )
    return [place for row in rows if (place := place_of(row))]


def page_of_stage(
    c: Connection, stage: Stage, after: str | None, limit: int
) -> tuple[list[Waiting], list[str], str | None]:
    """The next jobs by id: (those that wait, ids of those in work, last id or None at the end)."""
    states = [stage.waiting.value, stage.working.value]
    query = places().add_columns(jobs.c.state).where(jobs.c.state.in_(states))
    if after is not None:
        query = query.where(jobs.c.id > UUID(after))
    rows = c.execute(query.order_by(jobs.c.id).limit(limit)).all()
    waiting = [
        place for row in rows if row.state == stage.waiting.value and (place := place_of(row))
    ]
    working = [str(row.id) for row in rows if row.state == stage.working.value]
    return waiting, working, str(rows[-1].id) if len(rows) == limit else None


def surveyed_speech_h(c: Connection) -> float:
    """Hours of packed speech that wait for an engine."""
    query = select(func.coalesce(func.sum(jobs.c.speech_s), 0.0)).where(
        jobs.c.state == State.SURVEYED.value
    )
    return float(c.execute(query).scalar_one()) / 3600.0


def place(c: Connection, job_id: str) -> Waiting | None:
    """Where the job stands or stood in its queue; None when there is none."""
    return place_of(c.execute(places().where(jobs.c.id == UUID(job_id))).first())
