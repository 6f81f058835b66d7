"""What metrics ask about jobs. Every question reads a bounded number of rows."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Table, func, select

from pipeline.job import State
from pipeline.store.tables import deliveries, jobs, webhooks


@dataclass(frozen=True)
class Lengths:
    """What was said and found of the length of one completed recording, seconds."""

    decoded_s: float
    """More than 0."""
    probed_s: float | None
    hinted_s: float | None
    speech_s: float | None
    transcribed_s: float | None
    container: str
    """What it was found to be; empty where that is not known."""
    source: str
    """Who said `probed_s`: one of `recording.DurationSource`; empty where that is not known."""


def newest_lengths(c: Connection, limit: int) -> list[Lengths]:
    """Of the newest completed jobs, by arrival."""
    rows = c.execute(
        select(
            *(jobs.c.duration_s, jobs.c.probed_s, jobs.c.duration_hint_s, jobs.c.speech_s),
            *(jobs.c.transcribed_s, jobs.c.container, jobs.c.probed_source),
        )
        .where(jobs.c.state == State.COMPLETED.value)
        .order_by(jobs.c.id.desc())
        .limit(limit)
    )
    return [
        Lengths(
            *(row.duration_s, row.probed_s, row.duration_hint_s, row.speech_s),
            row.transcribed_s,
            row.container or "",
            row.probed_source or "",
        )
        for row in rows
        if row.duration_s
    ]


def undelivered(c: Connection, limit: int) -> dict[str, int]:
    """Deliveries that wait and that were given up, each counted to `limit` at most."""
    open_ = deliveries.c.delivered_at.is_(None) & deliveries.c.given_up_at.is_(None)
    asked = {"waiting": open_, "given_up": deliveries.c.given_up_at.is_not(None)}
    return {status: _count(c, deliveries, which, limit) for status, which in asked.items()}


def webhooks_paused(c: Connection, limit: int) -> dict[str, int]:
    """Webhooks that are told and that are paused, each counted to `limit` at most."""
    paused = webhooks.c.paused_at.is_not(None)
    return {
        "active": _count(c, webhooks, ~paused, limit),
        "paused": _count(c, webhooks, paused, limit),
    }


def _count(c: Connection, table: Table, which: ColumnElement[bool], limit: int) -> int:
    some = select(table.c.id).where(which).limit(limit).subquery()
    return int(c.execute(select(func.count()).select_from(some)).scalar_one())


def unprobed(c: Connection, limit: int) -> tuple[int, int | None]:
    """(jobs nobody has looked at, `limit` at most; arrival of the first, ms of Postgres time)."""
    here = select(jobs.c.id, jobs.c.arrival_ms).where(jobs.c.state == State.RECEIVED.value)
    some = here.limit(limit).subquery()
    count = c.execute(select(func.count()).select_from(some)).scalar_one()
    first = c.execute(here.order_by(jobs.c.id).limit(1)).first()
    return count, first.arrival_ms if first else None
