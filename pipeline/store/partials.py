"""Finished windows of unfinished jobs: saved as they come, so that a job taken up again resumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, bindparam, select, text, update
from sqlalchemy.dialects.postgresql import JSONB, insert

from pipeline.errors import LeaseLost
from pipeline.job import FINAL, State, Ticket
from pipeline.recording import Plan
from pipeline.store.tables import jobs, plans, windows

_FENCED = (State.RUNNING.value, State.SURVEYED.value)
"""States in which the newest attempt may still write: `surveyed` is a lease that ran out without
anyone being granted since."""


@dataclass(frozen=True)
class HeardWindow:
    """A window's answer on its way to Postgres."""

    ticket: Ticket
    index: int
    heard: dict[str, Any]


_SAVE = text("""
    WITH given AS (
        SELECT * FROM jsonb_to_recordset(:rows) AS g(
            job_id uuid, attempt int, plan_hash text, model text, "index" int, heard jsonb)
    ), held AS (
        SELECT id FROM jobs
        WHERE (id, attempt) IN (SELECT job_id, attempt FROM given) AND state IN :fenced
        ORDER BY id FOR UPDATE
    ), added AS (
        INSERT INTO windows (job_id, plan_hash, model, "index", attempt, heard, busy_s)
        SELECT job_id, plan_hash, model, "index", attempt, heard, (heard->>'busy_s')::real
        FROM given JOIN held ON id = job_id
        ON CONFLICT DO NOTHING
        RETURNING job_id
    )
    UPDATE jobs SET
        windows_done = windows_done + (SELECT count(*) FROM added WHERE job_id = jobs.id),
        first_text_at = coalesce(first_text_at, clock_timestamp())
    WHERE id IN (SELECT id FROM held)
    RETURNING id
""").bindparams(bindparam("rows", type_=JSONB), bindparam("fenced", _FENCED, expanding=True))
# One statement for any number of windows: the lock keeps a cancellation or a newer grant from
# slipping in, and lasts no longer than a commit, whatever becomes of this process.


def save_windows(c: Connection, windows: Sequence[HeardWindow]) -> set[str]:
    """Keep what was heard in these windows, of each job whose newest attempt is its ticket's.

    Saving the same window twice keeps the first. Returns the jobs whose fence did not hold.
    """
    rows = [
        {
            "job_id": one.ticket.job_id,
            "attempt": one.ticket.attempt,
            "plan_hash": one.ticket.plan_hash,
            "model": one.ticket.model,
            "index": one.index,
            "heard": one.heard,
        }
        for one in windows
    ]
    kept = {str(row.id) for row in c.execute(_SAVE, {"rows": rows})}
    return {one.ticket.job_id for one in windows} - kept


def keep_languages(c: Connection, ticket: Ticket, main: str, by_channel: Sequence[str]) -> None:
    """Keep the languages that were heard out: the call's, and that of each channel of its plan.

    Raises `LeaseLost` when the fence does not hold.
    """
    values = {"detected_language": main, "channel_languages": list(by_channel)}
    kept = update(jobs).where(_fence(ticket)).values(values)
    if c.execute(kept.returning(jobs.c.id)).first() is None:
        raise LeaseLost


def _fence(ticket: Ticket) -> ColumnElement[bool]:
    return and_(
        jobs.c.id == UUID(ticket.job_id),
        jobs.c.attempt == ticket.attempt,
        jobs.c.state.in_(_FENCED),
    )


def saved_windows(c: Connection, ticket: Ticket) -> dict[int, dict[str, Any]]:
    """What is saved of the job under its plan and model, by window index."""
    rows = c.execute(
        select(windows.c.index.label("at"), windows.c.heard).where(
            windows.c.job_id == UUID(ticket.job_id),
            windows.c.plan_hash == ticket.plan_hash,
            windows.c.model == ticket.model,
        )
    )
    return {row.at: row.heard for row in rows}


def windows_so_far(c: Connection, job_id: str) -> dict[int, dict[str, Any]]:
    """What is saved of the job under its present plan and model, by window index, in order."""
    rows = c.execute(
        select(windows.c.index.label("at"), windows.c.heard)
        .join(jobs, jobs.c.id == windows.c.job_id)
        .where(
            jobs.c.id == UUID(job_id),
            windows.c.plan_hash == jobs.c.plan_hash,
            windows.c.model == jobs.c.model,
        )
        .order_by(windows.c.index)
    )
    return {row.at: row.heard for row in rows}


def count_saved(c: Connection, ticket: Ticket, saved: int) -> None:
    """Set the job's progress to what is `saved` under its present plan and model."""
    c.execute(
        update(jobs)
        .where(jobs.c.id == UUID(ticket.job_id), jobs.c.attempt == ticket.attempt)
        .values(windows_done=saved)
    )


def drop_windows(c: Connection, job_id: str) -> None:
    """Forget the windows of a job whose transcript is kept."""
    c.execute(windows.delete().where(windows.c.job_id == UUID(job_id)))


def drop_plan(c: Connection, job_id: str) -> str | None:
    """Forget the job's plan; returns the key of its packed speech, None when it had none."""
    dropped = plans.delete().where(plans.c.job_id == UUID(job_id)).returning(plans.c.artefact_key)
    return c.execute(dropped).scalar_one_or_none()


def drop_windows_of_ended(c: Connection) -> None:
    """Forget the windows of jobs that ended without a transcript of them."""
    ended = select(jobs.c.id).where(jobs.c.state.in_([state.value for state in FINAL]))
    c.execute(windows.delete().where(windows.c.job_id.in_(ended)))


def plan_of(c: Connection, job_id: str) -> tuple[Plan, str] | None:
    """The job's plan and the key of its packed speech; None when it has none."""
    row = c.execute(
        select(plans.c.plan, plans.c.artefact_key).where(plans.c.job_id == UUID(job_id))
    ).first()
    return (Plan.from_json(row.plan), row.artefact_key) if row else None


def keep_plan(c: Connection, job_id: str, plan: Plan, artefact_key: str) -> None:
    """Store the job's plan, replacing an older one."""
    row = {
        "job_id": UUID(job_id),
        "plan_hash": plan.plan_hash,
        "artefact_key": artefact_key,
        "plan": plan.to_json(),
    }
    statement = insert(plans).values(row)
    c.execute(statement.on_conflict_do_update(index_elements=["job_id"], set_=row))
