"""Recordings that have a URL and are not here yet: who is fetched next, and how it goes.

Such a job stands in `received` with an empty `sha256`. What the columns mean until it is here:
`index_pending`, that nobody fetches it or was asked to; `updated_at`, when somebody last did or
was; `crashes`, how often that went wrong.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, select, update

from pipeline.job import State
from pipeline.store.rows import ago, now
from pipeline.store.tables import jobs

_UNFETCHED = (
    (jobs.c.state == State.RECEIVED.value) & jobs.c.source_url.is_not(None) & (jobs.c.sha256 == "")
)


def begin(c: Connection, job_id: str) -> Any:
    """Take the job in hand: its source_url, file_name and attempt; None: nothing to fetch."""
    taken = (
        update(jobs)
        .where(jobs.c.id == UUID(job_id), _UNFETCHED)
        .values(index_pending=False, updated_at=now)
        .returning(jobs.c.source_url, jobs.c.file_name, jobs.c.attempt)
    )
    return c.execute(taken).first()


def beat(c: Connection, job_id: str, attempt: int) -> bool:
    """Say that it is being fetched. False when nobody waits for it any more."""
    told = update(jobs).where(_ours(job_id, attempt)).values(updated_at=now)
    return bool(c.execute(told).rowcount)


def keep(
    c: Connection, job_id: str, attempt: int, *, key: str, size: int, sha256: str, name: str
) -> bool:
    """It is here, `size` bytes under `key`. False when the fence does not hold: erase it."""
    values = {
        "storage_key": key,
        "size_bytes": size,
        "sha256": sha256,
        "file_name": name,
        "crashes": 0,
        "updated_at": now,
    }
    return bool(c.execute(update(jobs).where(_ours(job_id, attempt)).values(values)).rowcount)


def count_failure(c: Connection, job_id: str, attempt: int) -> int | None:
    """It went wrong and may go better later. How often by now; None when it is not ours."""
    values = {"crashes": jobs.c.crashes + 1, "updated_at": now}
    counted = update(jobs).where(_ours(job_id, attempt)).values(values).returning(jobs.c.crashes)
    return c.execute(counted).scalar_one_or_none()


def wait(c: Connection, job_id: str) -> None:
    """Nobody is free to fetch it: it waits until somebody is."""
    c.execute(update(jobs).where(jobs.c.id == UUID(job_id), _UNFETCHED).values(index_pending=True))


def take_waiting(c: Connection) -> str | None:
    """Take the oldest that nobody fetches, to ask for it: two who take at once get two."""
    oldest = (
        select(jobs.c.id)
        .where(_UNFETCHED, jobs.c.index_pending)
        .order_by(jobs.c.id)
        .limit(1)
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )
    values = {"index_pending": False, "updated_at": now}
    taken = update(jobs).where(jobs.c.id == oldest).values(values).returning(jobs.c.id)
    found = c.execute(taken).scalar_one_or_none()
    return str(found) if found else None


def forgotten(c: Connection, age_s: float, limit: int) -> list[str]:
    """Those nobody has touched for `age_s` seconds: the message was lost, or its worker died.

    They wait again, and are told once in `age_s`.
    """
    old = ago(age_s)
    due = (
        select(jobs.c.id)
        .where(_UNFETCHED, jobs.c.updated_at < old)
        .order_by(jobs.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    values = {"updated_at": now, "index_pending": True}
    told = update(jobs).where(jobs.c.id.in_(due)).values(values).returning(jobs.c.id)
    return sorted(str(row.id) for row in c.execute(told))


def _ours(job_id: str, attempt: int) -> ColumnElement[bool]:
    return (jobs.c.id == UUID(job_id)) & (jobs.c.attempt == attempt) & _UNFETCHED
