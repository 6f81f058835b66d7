"""People's questions: how does a job stand, which jobs are there, what was said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Select, func, select

from pipeline.job import JobView, State
from pipeline.store.tables import jobs, transcripts


def view(c: Connection, job_id: str) -> JobView | None:
    """The job as people read it; None when there is none."""
    row = c.execute(select(jobs).where(jobs.c.id == UUID(job_id))).first()
    return _view(row) if row else None


def views(c: Connection, job_ids: Sequence[str]) -> dict[str, JobView]:
    """Several jobs at once, by id; unknown ids are left out."""
    rows = c.execute(select(jobs).where(jobs.c.id.in_([UUID(j) for j in job_ids])))
    return {str(row.id): _view(row) for row in rows}


def list_jobs(
    c: Connection,
    *,
    states: Sequence[State] = (),
    batch_id: str | None = None,
    after: str | None = None,
    limit: int = 100,
) -> list[JobView]:
    """Jobs by id (oldest first), after `after`, of these states and this batch if given."""
    query: Select[Any] = select(jobs)
    if states:
        query = query.where(jobs.c.state.in_([state.value for state in states]))
    if batch_id is not None:
        query = query.where(jobs.c.batch_id == batch_id)
    if after is not None:
        query = query.where(jobs.c.id > UUID(after))
    return [_view(row) for row in c.execute(query.order_by(jobs.c.id).limit(limit))]


def counts(c: Connection) -> dict[State, int]:
    """How many jobs there are in each state."""
    rows = c.execute(select(jobs.c.state, func.count()).group_by(jobs.c.state)).all()
    return dict.fromkeys(State, 0) | {State(state): number for state, number in rows}


def transcript_body(c: Connection, job_id: str) -> dict[str, Any] | None:
    """The transcript's document; None while there is none."""
    query = select(transcripts.c.body).where(transcripts.c.job_id == UUID(job_id))
    body: dict[str, Any] | None = c.execute(query).scalar_one_or_none()
    return body


_VIEWED = (
    *("batch_id", "file_name", "duration_s", "duration_source", "duration_exact", "probed_s"),
    *("probed_source", "channels", "container", "codec", "language", "detected_language"),
    *("source_url", "options", "model", "attempt"),
    *("created_at", "started_at", "first_text_at", "completed_at", "error_code"),
    *("error_message", "degraded", "no_speech", "metadata"),
)
"""Fields a view takes from the row as they are."""


def _view(row: Any) -> JobView:
    state = State(row.state)
    planned = row.windows_total or 0
    progress = 1.0 if state is State.COMPLETED else row.windows_done / planned if planned else 0.0
    fields = {name: getattr(row, name) for name in _VIEWED}
    return JobView(
        id=str(row.id),
        state=state,
        progress=min(1.0, progress),
        attempts=row.attempt - row.survey_attempts,
        **fields,
    )
