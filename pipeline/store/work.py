"""What finished jobs took of the engine, and the work models learned from it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import Connection, func, insert, select

from pipeline.scheduling.learning import Done
from pipeline.scheduling.work import WorkModel
from pipeline.store.rows import ago
from pipeline.store.tables import work_done, work_models

_LEARNING = 0x6C6561726E
"""Names the advisory lock of whoever learns ("learn")."""


# -- work done ------------------------------------------------------------------------------


def keep_done(c: Connection, job_id: str, model: str, done: Done) -> None:
    """What a job took, in the transaction that completes it: its fence is this row's too."""
    row = {
        "job_id": UUID(job_id),
        "model": model,
        "language": done.language,
        "speech_s": done.speech_s,
        "windows": done.windows,
        "tokens": done.tokens,
        "busy_s": done.busy_s,
        "predicted_s": done.predicted_s,
    }
    c.execute(insert(work_done).values(row))


def newest_done(c: Connection, model: str, limit: int) -> list[Done]:
    """What the newest jobs took that `model` heard, the newest first."""
    rows = c.execute(
        select(work_done)
        .where(work_done.c.model == model)
        .order_by(work_done.c.ended_at.desc())
        .limit(limit)
    )
    return [
        Done(row.language, row.speech_s, row.windows, row.tokens, row.busy_s, row.predicted_s)
        for row in rows
    ]


def models_that_worked(c: Connection, within_s: float | None = None) -> list[str]:
    """The models that finished a job, by name; only in the last `within_s` seconds, if given."""
    query = select(work_done.c.model).distinct().order_by(work_done.c.model)
    if within_s is not None:
        query = query.where(work_done.c.ended_at > ago(within_s))
    return [row.model for row in c.execute(query)]


def prune(c: Connection, model: str, kept: int) -> None:
    """Forget all but the newest `kept` jobs of a model."""
    oldest = (
        select(work_done.c.ended_at)
        .where(work_done.c.model == model)
        .order_by(work_done.c.ended_at.desc())
        .offset(kept)
        .limit(1)
        .scalar_subquery()
    )
    c.execute(work_done.delete().where(work_done.c.model == model, work_done.c.ended_at <= oldest))


# -- work models ----------------------------------------------------------------------------


def newest_model(c: Connection, model: str) -> WorkModel | None:
    """How fast engine `model` is, as last learned; None while nothing was.

    Its `predicted_s` is in the engine's busy seconds: work of the reference over it is the speed of
    a whole engine, all slots together, at the load it was learned under.
    """
    row = c.execute(
        select(work_models)
        .where(work_models.c.model == model)
        .order_by(work_models.c.id.desc())
        .limit(1)
    ).first()
    return _model(row) if row else None


def keep_model(c: Connection, model: str, learned: WorkModel) -> None:
    """Let `learned` hold for engine `model` from now on."""
    row = {
        "model": model,
        "job_s": learned.job_s,
        "window_s": learned.window_s,
        "token_s": learned.token_s,
        "kappa": dict(learned.kappa),
        "jobs": learned.jobs,
        "r2": learned.r2,
    }
    c.execute(insert(work_models).values(row))


def may_learn(c: Connection) -> bool:
    """True for one transaction at a time: two that learn at once would write the same twice."""
    return bool(c.execute(select(func.pg_try_advisory_xact_lock(_LEARNING))).scalar_one())


def _model(row: Any) -> WorkModel:
    return WorkModel(row.job_s, row.window_s, row.token_s, row.kappa, row.jobs, row.r2)
