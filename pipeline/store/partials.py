"""Finished windows of unfinished jobs: saved as they come, so that a job taken up again resumes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import Connection, func, select, update
from sqlalchemy.dialects.postgresql import insert

from pipeline.errors import LeaseLost
from pipeline.job import State, Ticket
from pipeline.recording import Plan
from pipeline.store.tables import jobs, plans, windows

_FENCED = (State.RUNNING.value, State.SURVEYED.value)
"""States in which the newest attempt may still write: `surveyed` is a lease that ran out without
anyone being granted since."""


def save_window(c: Connection, ticket: Ticket, index: int, heard: dict[str, Any]) -> None:
    """Keep what was heard in one window, if `ticket` is still the job's newest attempt.

    Saving the same window twice keeps the first. Raises `LeaseLost` when the fence does not hold.
    """
    job_id = UUID(ticket.job_id)
    fence = (jobs.c.id == job_id) & (jobs.c.attempt == ticket.attempt) & jobs.c.state.in_(_FENCED)
    # the lock keeps a cancellation or a newer grant from slipping between the check and the insert
    if c.execute(select(jobs.c.id).where(fence).with_for_update()).first() is None:
        raise LeaseLost
    row = {
        "job_id": job_id,
        "plan_hash": ticket.plan_hash,
        "model": ticket.model,
        "index": index,
        "attempt": ticket.attempt,
        "heard": heard,
        "busy_s": heard["busy_s"],
    }
    fresh = insert(windows).values(row).on_conflict_do_nothing().returning(windows.c.job_id)
    added = c.execute(fresh).first()
    c.execute(
        update(jobs)
        .where(jobs.c.id == job_id)
        .values(
            windows_done=jobs.c.windows_done + (1 if added else 0),
            first_text_at=func.coalesce(jobs.c.first_text_at, func.clock_timestamp()),
        )
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


def artefact_keys(c: Connection, job_id: str) -> list[str]:
    """Keys of packed speech that may be erased once the job has ended."""
    rows = c.execute(select(plans.c.artefact_key).where(plans.c.job_id == UUID(job_id)))
    return [row.artefact_key for row in rows]
