"""What an erasure asks and leaves behind in Postgres: whose jobs, and who did it.

What the jobs were chosen by is personal and is kept nowhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    cast,
    delete,
    false,
    func,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, array

from pipeline.caller import ANYONE, Caller
from pipeline.errors import Erased
from pipeline.store.accesses import Action, record_all
from pipeline.store.tables import jobs, plans, submissions

ERASED_NAME = "erased"
"""What a recording is called in a kept answer once it was erased."""

Wanted = str | int | float


@dataclass(frozen=True)
class Whose:
    """Which jobs to erase: those of a caller's tenant that fulfil all of it."""

    caller: Caller
    metadata: dict[str, Wanted] = field(default_factory=dict, repr=False)
    """Fields and their values. A number matches its text too, and a list that holds the value."""
    batch_id: str | None = None


def page(
    c: Connection, whose: Whose, after: str | None, limit: int
) -> tuple[list[str], str | None]:
    """Look at the next `limit` jobs by id: (ids of those it is about, where to go on or None).

    No index knows metadata: it would cost every upload for what is asked once in a while. So the
    jobs of the tenant, or of the batch, are read page by page.
    """
    fits = and_(
        true(), *(_fits(jobs.c.metadata[name], value) for name, value in whose.metadata.items())
    )
    looked = select(jobs.c.id, func.coalesce(fits, false()).label("fits"))
    if whose.caller.key_id is not None:
        looked = looked.where(jobs.c.tenant.is_not_distinct_from(whose.caller.tenant))
    if whose.batch_id is not None:
        looked = looked.where(jobs.c.batch_id == whose.batch_id)
    if after is not None:
        looked = looked.where(jobs.c.id > UUID(after))
    rows = c.execute(looked.order_by(jobs.c.id).limit(limit)).all()
    found = [str(row.id) for row in rows if row.fits]
    return found, str(rows[-1].id) if len(rows) == limit else None


def _fits(kept: ColumnElement[Any], value: Wanted) -> ColumnElement[bool]:
    """Equal to the value, to the number or text that reads like it, or a list with one of these."""
    spelled = {json.dumps(value), json.dumps(str(value))}
    if isinstance(value, str):
        try:
            number = json.loads(value)
        except ValueError:
            number = None
        # JSON, as Postgres reads it, knows neither NaN nor a number as large as 1e999
        if type(number) is int or (isinstance(number, float) and math.isfinite(number)):
            spelled.add(json.dumps(number))
    return or_(*(kept.contains(cast(json.loads(one), JSONB)) for one in sorted(spelled)))


def storage_keys(c: Connection, job_ids: Sequence[str]) -> dict[str, set[str]]:
    """Of those of these jobs that exist: what of them lies in storage, as far as rows tell."""
    ids = [UUID(job_id) for job_id in job_ids]
    kept = {
        str(row.id): {row.storage_key}
        for row in c.execute(select(jobs.c.id, jobs.c.storage_key).where(jobs.c.id.in_(ids)))
    }
    packed = select(plans.c.job_id, plans.c.artefact_key).where(plans.c.job_id.in_(ids))
    for row in c.execute(packed):
        kept[str(row.job_id)].add(row.artefact_key)
    return kept


def erase(c: Connection, job_ids: Sequence[str], caller: Caller | None, action: Action) -> int:
    """Delete these jobs and all that hangs on them; write down who did it. How many were there:
    somebody else may have been at it.

    Answers that are kept for their senders forget what the recordings were called.
    """
    ids = [UUID(job_id) for job_id in job_ids]
    gone = delete(jobs).where(jobs.c.id.in_(ids)).returning(jobs.c.id)
    erased = sorted(str(row.id) for row in c.execute(gone))
    scrub(c, job_ids)
    record_all(c, caller or ANYONE, action, erased)
    return len(erased)


def scrub(c: Connection, job_ids: Sequence[str]) -> int:
    """Take names and URLs of these jobs out of the answers to keyed requests; of how many."""
    gone, scrubbed = set(job_ids), 0
    if not gone:
        return 0
    naming = submissions.c.job_ids.has_any(array(sorted(gone)))
    query = select(submissions.c.key, submissions.c.answer).where(
        naming, submissions.c.answer.is_not(None)
    )
    for row in c.execute(query.order_by(submissions.c.key).with_for_update()).all():
        lines = row.answer.get("jobs", [])
        clean = [_scrubbed(line) if line.get("id") in gone else line for line in lines]
        if clean != lines:
            answer = {**row.answer, "jobs": clean}
            c.execute(update(submissions).where(submissions.c.key == row.key).values(answer=answer))
            scrubbed += 1
    return scrubbed


def _scrubbed(line: dict[str, Any]) -> dict[str, Any]:
    error = {"code": Erased.code, "message": "It was erased."}
    return {
        **line,
        "file_name": ERASED_NAME,
        "source_url": None,
        "status": "failed",
        "error": error,
    }
