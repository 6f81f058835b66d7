"""Which jobs are the legs of one call: what their metadata says, by an index of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Text, literal_column, select

from pipeline.caller import Caller
from pipeline.job import JobView
from pipeline.store.rows import seen_by
from pipeline.store.tables import CALL_ID, jobs, transcripts
from pipeline.store.views import as_view

_named = literal_column(CALL_ID.text, Text)
"""In the words of the index: a key that is a parameter would not be found by it."""


def recordings_of(c: Connection, call_id: str, limit: int, caller: Caller) -> list[JobView]:
    """The jobs that name this call and exist for `caller`, the oldest first, `limit` at most."""
    query = select(jobs).where(_named == call_id, seen_by(caller))
    return [as_view(row) for row in c.execute(query.order_by(jobs.c.id).limit(limit))]


def transcripts_of(c: Connection, job_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The transcripts' documents of these jobs, by id; those without one are left out."""
    ids = [UUID(job_id) for job_id in job_ids]
    rows = c.execute(
        select(transcripts.c.job_id, transcripts.c.body).where(transcripts.c.job_id.in_(ids))
    )
    return {str(row.job_id): row.body for row in rows}
