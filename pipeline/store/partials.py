"""Finished windows of unfinished jobs: saved as they come, so that a job taken up again resumes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, func, literal, select, update
from sqlalchemy.dialects.postgresql import JSONB, insert

from pipeline.errors import LeaseLost
from pipeline.job import FINAL, State, Ticket
from pipeline.recording import Plan
from pipeline.store.tables import jobs, plans, windows

_FENCED = (State.RUNNING.value, State.SURVEYED.value)
"""States in which the newest attempt may still write: `surveyed` is a lease that ran out without
anyone being granted since."""


def save_window(c: Connection, ticket: Ticket, index: int, heard: dict[str, Any]) -> None:
    """Keep what was heard in one window, if `ticket` is still the job's newest attempt.

    Saving the same window twice keeps the first. Raises `LeaseLost` when the fence does not hold.
    """
    fence = _fence(ticket)
    # One statement: the lock keeps a cancellation or a newer grant from slipping in, and lasts no
    # longer than a commit, whatever becomes of this process.
    held = select(jobs.c.id).where(fence).with_for_update().cte("held")
    row = {
        "job_id": held.c.id,
        "plan_hash": literal(ticket.plan_hash),
        "model": literal(ticket.model),
        "index": literal(index),
        "attempt": literal(ticket.attempt),
        "heard": literal(heard, JSONB),
        "busy_s": literal(heard["busy_s"]),
    }
    fresh = insert(windows).from_select(list(row), select(*row.values())).on_conflict_do_nothing()
    added = fresh.returning(windows.c.job_id).cte("added")
    counted = (
        update(jobs)
        .where(jobs.c.id.in_(select(held.c.id)))
        .values(
            windows_done=jobs.c.windows_done
            + select(func.count()).select_from(added).scalar_subquery(),
            first_text_at=func.coalesce(jobs.c.first_text_at, func.clock_timestamp()),
        )
        .returning(jobs.c.id)
    )
    if c.execute(counted).first() is None:
        raise LeaseLost


def keep_language(c: Connection, ticket: Ticket, language: str) -> None:
    """Keep the language that was heard out. Raises `LeaseLost` when the fence does not hold."""
    kept = update(jobs).where(_fence(ticket)).values(detected_language=language)
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
