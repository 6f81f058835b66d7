"""Of which ended jobs something is kept longer than it should be: pages by when they ended.

The pages are found by partial indexes that hold only jobs of which the thing is still kept, so
what was erased long ago costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Select, delete, func, select, text, update

from pipeline.store.rows import ago, now
from pipeline.store.tables import (
    AUDIO_KEPT,
    ENDED,
    TRANSCRIPT_KEPT,
    accesses,
    jobs,
    transcripts,
    windows,
)

DAY_S = 86_400.0


@dataclass(frozen=True)
class Keep:
    """How long what is kept, days from the end of its job; None: for ever."""

    audio_days: float | None = None
    packed_days: float = 0.0
    transcripts_days: float | None = None
    jobs_days: float | None = None
    """All that is known of a job."""
    accesses_days: float = 400.0
    """From the access itself; tombstones of erased jobs from the erasure."""


@dataclass(frozen=True)
class Due:
    """How many of each are kept longer than they should be."""

    audio: int = 0
    transcripts: int = 0
    jobs: int = 0
    accesses: int = 0


def due(c: Connection, keep: Keep) -> Due:
    """Count what is due now; reads an index from its old end to today's line, no table."""
    return Due(
        audio=_count(c, AUDIO_KEPT, keep.audio_days),
        transcripts=_count(c, TRANSCRIPT_KEPT, keep.transcripts_days),
        jobs=_count(c, ENDED, keep.jobs_days),
        accesses=int(c.execute(_old_accesses(func.count(), keep)).scalar_one()),
    )


@dataclass(frozen=True)
class Old:
    """A job of which something is due."""

    job_id: str
    storage_key: str
    ended_at: datetime


def audio_page(c: Connection, days: float, since: datetime | None, limit: int) -> list[Old]:
    """The jobs that ended first of those whose recording is due.

    `since`: where the page before ended, so that what it erased is not passed over once more. The
    rows are locked, so that nobody begins a job again whose recording is being erased; those
    somebody else has locked are left for the next time.
    """
    page = _page(AUDIO_KEPT, days, since, limit).with_for_update(skip_locked=True)
    return [_old(row) for row in c.execute(page)]


def audio_erased(c: Connection, job_ids: Sequence[str]) -> None:
    """Say that the recordings of these jobs are gone."""
    _mark(c, job_ids, audio_erased_at=now)


def transcripts_page(c: Connection, days: float, since: datetime | None, limit: int) -> list[Old]:
    """The same of transcripts."""
    page = _page(TRANSCRIPT_KEPT, days, since, limit).with_for_update(skip_locked=True)
    return [_old(row) for row in c.execute(page)]


def erase_transcripts(c: Connection, job_ids: Sequence[str]) -> None:
    """Erase the transcripts of these jobs, with all that was heard."""
    for table in (transcripts, windows):
        c.execute(delete(table).where(table.c.job_id.in_(_uuids(job_ids))))
    _mark(c, job_ids, transcript_erased_at=now)


def jobs_page(c: Connection, days: float, since: datetime | None, limit: int) -> list[Old]:
    """The jobs that ended first of those of which nothing is to be kept."""
    return [_old(row) for row in c.execute(_page(ENDED, days, since, limit))]


def drop_accesses(c: Connection, keep: Keep, limit: int) -> int:
    """Forget the oldest accesses that are due; how many that were."""
    old = _old_accesses(accesses.c.id, keep).order_by(accesses.c.at).limit(limit)
    return int(c.execute(delete(accesses).where(accesses.c.id.in_(old))).rowcount)


def _page(which: str, days: float, since: datetime | None, limit: int) -> Select[Any]:
    """`which` stands word for word as in the index: a parameter would not be found by it."""
    page = select(jobs.c.id, jobs.c.storage_key, jobs.c.completed_at).where(
        text(which), jobs.c.completed_at <= ago(days * DAY_S)
    )
    if since is not None:
        page = page.where(jobs.c.completed_at >= since)
    return page.order_by(jobs.c.completed_at, jobs.c.id).limit(limit)


def _old(row: Any) -> Old:
    return Old(str(row.id), row.storage_key, row.completed_at)


def _old_accesses(what: Any, keep: Keep) -> Select[Any]:
    old = accesses.c.at < ago(keep.accesses_days * DAY_S)
    return select(what).select_from(accesses).where(old)


def _count(c: Connection, which: str, days: float | None) -> int:
    if days is None:
        return 0
    query = select(func.count()).select_from(jobs)
    ended = jobs.c.completed_at <= ago(days * DAY_S)
    return int(c.execute(query.where(text(which), ended)).scalar_one())


def _mark(c: Connection, job_ids: Sequence[str], **values: Any) -> None:
    c.execute(update(jobs).where(jobs.c.id.in_(_uuids(job_ids))).values(**values))


def _uuids(job_ids: Sequence[str]) -> list[UUID]:
    return [UUID(job_id) for job_id in job_ids]
