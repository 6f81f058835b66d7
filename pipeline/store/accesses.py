"""Who read, heard or erased what: a row each time, without a word of what was said.

A row is written in the transaction that reads what is then given out, or that erases it. So when it
cannot be written nothing is given out: no transcript is read and no recording heard unrecorded.
Rows outlive their jobs; how long is the setting `keep_accesses_days`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Select, insert, or_, select

from pipeline.caller import Caller
from pipeline.store.rows import now
from pipeline.store.tables import accesses


class Action(StrEnum):
    """What somebody did."""

    READ = "read"
    """A transcript, in any format, whole or as far as it was heard."""
    LISTENED = "listened"
    """The recording itself."""
    ERASED = "erased"
    EXPIRED = "expired"
    """Erased because its days were over."""
    KEY_ADDED = "key_added"
    KEY_REVOKED = "key_revoked"


@dataclass(frozen=True)
class Access:
    """One time somebody did something."""

    id: int
    """Grows with time."""
    at: datetime
    tenant: str | None
    key_id: str | None
    """Who; None where keys were off, and for this machine's command line."""
    action: str
    job_id: str | None
    detail: str | None
    """The transcript's format, or the id of the key that was added or revoked."""


def record(
    c: Connection,
    caller: Caller,
    action: Action,
    job_id: str | None = None,
    detail: str | None = None,
) -> None:
    """Write down that `caller` does this to `job_id`, if the transaction of `c` is committed."""
    record_all(c, caller, action, [job_id], detail)


def record_all(
    c: Connection,
    caller: Caller,
    action: Action,
    job_ids: Sequence[str | None],
    detail: str | None = None,
) -> None:
    """The same for several jobs, in one statement."""
    rows = [
        {
            "tenant": caller.tenant,
            "key_id": caller.key_id,
            "action": action.value,
            "job_id": UUID(job_id) if job_id else None,
            "detail": detail,
            "at": now,
        }
        for job_id in job_ids
    ]
    if rows:
        c.execute(insert(accesses).values(rows))


def found(
    c: Connection,
    *,
    job_id: str | None = None,
    key_id: str | None = None,
    since: datetime | None = None,
    after: int | None = None,
    limit: int = 100,
) -> list[Access]:
    """Accesses, the newest first, older than the one with id `after`.

    `key_id`: what this key did, and what was done to it.
    """
    query: Select[Any] = select(accesses)
    if job_id is not None:
        query = query.where(accesses.c.job_id == UUID(job_id))
    if key_id is not None:
        query = query.where(or_(accesses.c.key_id == key_id, accesses.c.detail == key_id))
    if since is not None:
        query = query.where(accesses.c.at >= since)
    if after is not None:
        query = query.where(accesses.c.id < after)
    rows = c.execute(query.order_by(accesses.c.id.desc()).limit(limit))
    return [_access(row) for row in rows]


def _access(row: Any) -> Access:
    same = {name: getattr(row, name) for name in ("id", "at", "tenant", "key_id", "action")}
    job_id = str(row.job_id) if row.job_id else None
    return Access(**same, job_id=job_id, detail=row.detail)
