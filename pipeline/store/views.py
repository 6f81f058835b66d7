"""People's questions: how does a job stand, which jobs are there, what was said."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Select, select, text

from pipeline.caller import ANYONE, Caller
from pipeline.job import FINAL, JobView, State
from pipeline.store.rows import seen_by
from pipeline.store.tables import jobs, transcripts


def view(c: Connection, job_id: str) -> JobView | None:
    """The job as people read it; None when there is none."""
    row = c.execute(select(jobs).where(jobs.c.id == UUID(job_id))).first()
    return as_view(row) if row else None


def views(c: Connection, job_ids: Sequence[str], caller: Caller = ANYONE) -> dict[str, JobView]:
    """Several jobs at once, by id; those that do not exist for `caller` are left out."""
    wanted = jobs.c.id.in_([UUID(j) for j in job_ids])
    rows = c.execute(select(jobs).where(wanted, seen_by(caller)))
    return {str(row.id): as_view(row) for row in rows}


def exists_for(c: Connection, job_id: str, caller: Caller) -> bool:
    """Whether there is such a job, for this caller."""
    query = select(jobs.c.id).where(jobs.c.id == UUID(job_id), seen_by(caller))
    return c.execute(query).first() is not None


def over(c: Connection, job_ids: Sequence[str]) -> list[str]:
    """Of these, the jobs that have ended and those that are not there any more.

    One question for thousands: what it reads grows with them, what it answers with those that end.
    """
    return list(c.scalars(_OVER, {"ids": list(job_ids), "final": [state.value for state in FINAL]}))


_OVER = text(
    "SELECT watched.id FROM unnest(CAST(:ids AS text[])) AS watched(id)"
    " LEFT JOIN jobs ON jobs.id = CAST(watched.id AS uuid)"
    " WHERE jobs.id IS NULL OR jobs.state = ANY(CAST(:final AS text[]))"
)


def list_jobs(
    c: Connection,
    *,
    caller: Caller = ANYONE,
    states: Sequence[State] = (),
    batch_id: str | None = None,
    created: tuple[datetime | None, datetime | None] = (None, None),
    after: str | None = None,
    newest_first: bool = False,
    limit: int = 100,
) -> list[JobView]:
    """Jobs by id, which is by age, after the one with id `after`; of these states and this batch,
    those that exist for `caller`.

    `created`: only those that came at or after the first and before the second moment.
    """
    query: Select[Any] = select(jobs).where(seen_by(caller))
    if states:
        query = query.where(jobs.c.state.in_([state.value for state in states]))
    if batch_id is not None:
        query = query.where(jobs.c.batch_id == batch_id)
    since, until = created
    if since is not None:
        query = query.where(jobs.c.created_at >= since)
    if until is not None:
        query = query.where(jobs.c.created_at < until)
    if after is not None:
        beyond = jobs.c.id < UUID(after) if newest_first else jobs.c.id > UUID(after)
        query = query.where(beyond)
    order = jobs.c.id.desc() if newest_first else jobs.c.id
    return [as_view(row) for row in c.execute(query.order_by(order).limit(limit))]


def recording_of(c: Connection, job_id: str) -> Any:
    """Where a job's recording is and what it is, as a row; None when there is no such job.

    storage_key, sha256 (empty until it is stored), file_name, container, audio_erased_at.
    """
    columns = (
        *(jobs.c.storage_key, jobs.c.sha256, jobs.c.file_name, jobs.c.container),
        jobs.c.audio_erased_at,
    )
    return c.execute(select(*columns).where(jobs.c.id == UUID(job_id))).first()


def transcript_body(c: Connection, job_id: str) -> dict[str, Any] | None:
    """The transcript's document; None while there is none."""
    query = select(transcripts.c.body).where(transcripts.c.job_id == UUID(job_id))
    body: dict[str, Any] | None = c.execute(query).scalar_one_or_none()
    return body


_VIEWED = (
    *("batch_id", "file_name", "duration_s", "duration_source", "duration_exact", "probed_s"),
    *("probed_source", "probe_reason", "transcribed_s", "channels", "container", "codec"),
    *("language", "detected_language", "channel_languages"),
    *("source_url", "options", "model", "attempt", "deadline", "wait_budget_s"),
    *("created_at", "started_at", "first_text_at", "completed_at", "error_code"),
    *("error_message", "degraded", "no_speech", "metadata"),
    *("audio_erased_at", "transcript_erased_at"),
)
"""Fields a view takes from the row as they are."""


HINT = "hint"
"""As the source of a length: the sender says so, and nobody has looked."""


def as_view(row: Any) -> JobView:
    """A whole row of `jobs` as people read it."""
    state = State(row.state)
    planned = row.windows_total or 0
    progress = 1.0 if state is State.COMPLETED else row.windows_done / planned if planned else 0.0
    fields = {name: getattr(row, name) for name in _VIEWED}
    if state is State.RECEIVED and row.duration_hint_s is not None:
        # nobody has looked at it (again, after a retry): what its sender says stands in
        fields |= {"duration_s": row.duration_hint_s, "duration_source": HINT}
        fields |= {"duration_exact": False}
    return JobView(
        id=str(row.id),
        state=state,
        progress=min(1.0, progress),
        attempts=row.attempt - row.survey_attempts,
        **fields,
    )
