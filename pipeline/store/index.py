"""What Redis should hold, by Postgres: who waits, who is in work, whose lease ran out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import BindParameter, ColumnElement, Connection, bindparam, func, select, update

from pipeline.job import FINAL, Stage, State
from pipeline.scheduling.policies import Waiting
from pipeline.store.rows import ago, move, place_of, places
from pipeline.store.tables import jobs, plans


def outbox(c: Connection, stage: Stage, limit: int) -> list[Waiting]:
    """Waiting jobs that Redis may not have heard of yet."""
    rows = c.execute(
        places()
        .where(jobs.c.index_pending, jobs.c.state == stage.waiting.value)
        .order_by(jobs.c.id)
        .limit(limit)
    )
    return [place for row in rows if (place := place_of(row))]


def needed_keys(
    c: Connection, keys: Sequence[str], packed_days: float = 0.0
) -> tuple[set[str], set[str]]:
    """Of storage keys: (those a row still needs, those whose job has ended).

    A recording is needed as long as its row stands and does not say it was erased, packed speech
    until its job has ended and `packed_days` more.
    """
    # both are named after their job: found by its id, for no index knows their keys
    owners = {key: job_id for key in keys if (job_id := job_of_key(key))}
    of_jobs = _any_of(list(owners.values()))
    recordings = c.execute(
        select(jobs.c.storage_key).where(of_jobs, jobs.c.audio_erased_at.is_(None))
    )
    planned = c.execute(
        select(plans.c.artefact_key).where(
            plans.c.job_id.in_([UUID(job_id) for job_id in owners.values()])
        )
    )
    over = c.execute(
        select(jobs.c.id).where(
            of_jobs,
            jobs.c.state.in_([state.value for state in FINAL]),
            jobs.c.completed_at <= ago(packed_days * 86_400),
        )
    )
    final = {str(row.id) for row in over}
    # one that no plan names belongs to a survey cut short
    ended = {key for key in owners if key.startswith("packed/") and owners[key] in final}
    needed = {r.storage_key for r in recordings} | {p.artefact_key for p in planned}
    return needed - ended, ended


def job_of_key(key: str) -> str | None:
    """The job a storage key is named after: recordings/<job id>, packed/<job id>-...; else None."""
    name = key.partition("/")[2][:36]
    try:
        return str(UUID(name)) if len(name) == 36 else None
    except ValueError:
        return None


def indexed(c: Connection, stage: Stage, job_ids: Sequence[str]) -> None:
    """Say that Redis has these jobs, unless they moved in between."""
    c.execute(
        update(jobs)
        .where(
            _any_of(job_ids),
            jobs.c.index_pending,
            jobs.c.state == stage.waiting.value,
        )
        .values(index_pending=False)
    )


def settle_expired(
    c: Connection, stage: Stage, job_ids: Sequence[str], bucket_left: Callable[[Any], int]
) -> tuple[list[Waiting], set[str]]:
    """Jobs whose lease ran out: (places of all that wait now, ids that have no business here).

    Those in work wait again, at the size `bucket_left` tells of their row. A row that somebody has
    locked is in neither answer: it is settled when its lease has run out once more.
    """
    free = (
        select(jobs.c.id)
        .where(_any_of(job_ids), jobs.c.state == stage.working.value)
        .order_by(jobs.c.id)
        .with_for_update(skip_locked=True)
    )
    values = {"state": stage.waiting.value, "index_pending": True}
    settled = move(c, [str(row.id) for row in c.execute(free)], (stage.working,), values).all()
    if settled:
        resize = update(jobs).where(jobs.c.id == bindparam("of")).values(bucket=bindparam("to"))
        c.execute(resize, [{"of": row.id, "to": bucket_left(row)} for row in settled])
    rows = c.execute(places().add_columns(jobs.c.state).where(_any_of(job_ids))).all()
    waiting = [p for r in rows if r.state == stage.waiting.value and (p := place_of(r))]
    here = {str(row.id) for row in rows if row.state in (stage.waiting, stage.working)}
    return waiting, set(job_ids) - here


def page_of_stage(
    c: Connection, stage: Stage, after: str | None, limit: int
) -> tuple[list[Waiting], list[str], str | None]:
    """The next jobs by id: (those that wait, ids of those in work, last id or None at the end)."""
    # as literals, so that even a generic plan knows the partial index of live jobs fits
    states: BindParameter[list[str]] = bindparam(
        "states", [stage.waiting.value, stage.working.value], expanding=True, literal_execute=True
    )
    query = places().add_columns(jobs.c.state).where(jobs.c.state.in_(states))
    if after is not None:
        query = query.where(jobs.c.id > UUID(after))
    rows = c.execute(query.order_by(jobs.c.id).limit(limit)).all()
    waiting = [
        place for row in rows if row.state == stage.waiting.value and (place := place_of(row))
    ]
    working = [str(row.id) for row in rows if row.state == stage.working.value]
    return waiting, working, str(rows[-1].id) if len(rows) == limit else None


def standing(c: Connection, job_ids: Sequence[str]) -> dict[str, State]:
    """The state of each of these jobs; one that is erased is left out."""
    rows = c.execute(select(jobs.c.id, jobs.c.state).where(_any_of(job_ids)))
    return {str(row.id): State(row.state) for row in rows}


def waiting_among(c: Connection, stage: Stage, job_ids: Sequence[str]) -> list[Waiting]:
    """The places of those of these jobs that wait for `stage`."""
    rows = c.execute(places().where(_any_of(job_ids), jobs.c.state == stage.waiting.value))
    return [place for row in rows if (place := place_of(row))]


def surveyed_speech_h(c: Connection) -> float:
    """Hours of packed speech that wait for an engine."""
    query = select(func.coalesce(func.sum(jobs.c.speech_s), 0.0)).where(
        jobs.c.state == State.SURVEYED.value
    )
    return float(c.execute(query).scalar_one()) / 3600.0


def place(c: Connection, job_id: str) -> Waiting | None:
    """Where the job stands or stood in its queue; None when there is none."""
    return place_of(c.execute(places().where(jobs.c.id == UUID(job_id))).first())


def _any_of(job_ids: Sequence[str]) -> ColumnElement[bool]:
    return jobs.c.id.in_([UUID(job_id) for job_id in job_ids])
