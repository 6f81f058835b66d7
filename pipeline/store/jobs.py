"""Every question asked of jobs. One function each; a move names the states it starts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Select, func, select, update
from sqlalchemy.dialects.postgresql import insert

from pipeline.job import MOVES, JobView, Stage, State, Ticket
from pipeline.recording import Plan, Probe, Transcript
from pipeline.scheduling.policies import Policy, Waiting, parse_policy
from pipeline.store.tables import jobs, policies, transcripts

_now = func.clock_timestamp()
_arrival_now = func.floor(func.extract("epoch", func.clock_timestamp()) * 1000)


# -- accept and probe -----------------------------------------------------------------------


def add_job(c: Connection, job_id: str, row: Mapping[str, Any]) -> None:
    """A new job in `received`: its arrival is Postgres' time now."""
    values = {
        **row,
        "id": UUID(job_id),
        "state": State.RECEIVED.value,
        "arrival_ms": _arrival_now,
    }
    c.execute(insert(jobs).values(values))


def recording_of(c: Connection, job_id: str) -> Any:
    """state, storage_key, file_name, language, options of a job; None when there is none."""
    columns = (jobs.c.state, jobs.c.storage_key, jobs.c.file_name, jobs.c.language, jobs.c.options)
    return c.execute(select(*columns).where(jobs.c.id == UUID(job_id))).first()


def keep_probe(c: Connection, job_id: str, probe: Probe, bucket: int) -> Waiting | None:
    """Received -> probed. Returns its place in the survey queue; None if it had moved on."""
    values = {
        "state": State.PROBED.value,
        "duration_s": probe.duration_s,
        "probed_s": probe.duration_s,
        "probed_source": probe.source,
        "duration_source": probe.source,
        "duration_exact": probe.exact,
        "container": probe.container,
        "codec": probe.codec,
        "sample_rate_hz": probe.sample_rate_hz,
        "channels": probe.channels,
        "bucket": bucket,
        "index_pending": True,
    }
    return _place(_move(c, [job_id], (State.RECEIVED,), values).first())


def received_before(c: Connection, age_s: float, limit: int) -> list[str]:
    """Jobs still unprobed after `age_s` seconds: their message was lost, or its worker died."""
    old = _now - func.make_interval(0, 0, 0, 0, 0, 0, age_s)
    rows = c.execute(
        select(jobs.c.id)
        .where(jobs.c.state == State.RECEIVED.value, jobs.c.updated_at < old)
        .order_by(jobs.c.id)
        .limit(limit)
    )
    return [str(row.id) for row in rows]


# -- the fence ------------------------------------------------------------------------------


def grant(
    c: Connection, stage: Stage, job_ids: Sequence[str], worker: str, model: str | None
) -> list[Ticket]:
    """Give claimed jobs to `worker`: only now is a claim worth anything.

    Each gets the next attempt, which ends the right of every earlier one to write. A job that does
    not wait for this stage (cancelled, done, a ghost of an old index) is not granted.
    """
    values: dict[str, Any] = {
        "state": stage.working.value,
        "attempt": jobs.c.attempt + 1,
        "worker": worker,
        "index_pending": False,
    }
    if model is not None:
        values["model"] = model
        values["started_at"] = func.coalesce(jobs.c.started_at, _now)
    return [_ticket(row) for row in _move(c, job_ids, (stage.waiting,), values)]


def still_ours(c: Connection, stage: Stage, held: Mapping[str, int]) -> set[str]:
    """Of {job id: attempt}, the jobs that have not ended and whose newest attempt that is."""
    rows = c.execute(
        select(jobs.c.id, jobs.c.attempt).where(
            jobs.c.id.in_([UUID(job_id) for job_id in held]),
            jobs.c.state.in_([stage.working.value, stage.waiting.value]),
        )
    )
    return {str(row.id) for row in rows if held[str(row.id)] == row.attempt}


def give_back(c: Connection, stage: Stage, ticket: Ticket, bucket: int) -> Waiting | None:
    """Working -> waiting, at the size of what remains. None when the fence does not hold."""
    values = {"state": stage.waiting.value, "bucket": bucket, "index_pending": True}
    moved = _move(c, [ticket.job_id], (stage.working,), values, attempt=ticket.attempt)
    return _place(moved.first())


def charge_crash(c: Connection, ticket: Ticket) -> int:
    """Count an engine's death against the one job that was in it; returns its deaths so far."""
    row = c.execute(
        update(jobs)
        .where(jobs.c.id == UUID(ticket.job_id), jobs.c.attempt == ticket.attempt)
        .values(crashes=jobs.c.crashes + 1)
        .returning(jobs.c.crashes)
    ).first()
    return int(row.crashes) if row else 0


def keep_survey(
    c: Connection, ticket: Ticket, plan: Plan, bucket: int, degraded: str | None = None
) -> Waiting | None:
    """Surveying -> surveyed, with what the decode found. None when the fence does not hold."""
    values = {
        "state": State.SURVEYED.value,
        **_surveyed(plan, degraded),
        "windows_total": len(plan.windows),
        "windows_done": 0,
        "bucket": bucket,
        "index_pending": True,
    }
    allowed = (State.SURVEYING, State.PROBED)
    return _place(_move(c, [ticket.job_id], allowed, values, attempt=ticket.attempt).first())


def keep_transcript(
    c: Connection,
    ticket: Ticket,
    transcript: Transcript,
    plan: Plan | None = None,
    degraded: str | None = None,
) -> bool:
    """-> completed with its transcript, once. False when the fence does not hold: write nothing.

    With `plan`: a recording without speech, completed straight from the survey.
    """
    values: dict[str, Any] = {
        "state": State.COMPLETED.value,
        "completed_at": _now,
        "no_speech": transcript.no_speech,
        "index_pending": False,
    }
    allowed = (State.RUNNING, State.SURVEYED)
    if plan is not None:
        values |= {**_surveyed(plan, degraded), "windows_total": 0}
        allowed = (State.SURVEYING, State.PROBED)
    if _move(c, [ticket.job_id], allowed, values, attempt=ticket.attempt).first() is None:
        return False
    row = {
        "job_id": UUID(ticket.job_id),
        "attempt": ticket.attempt,
        "body": transcript.to_json(),
    }
    c.execute(insert(transcripts).values(row))
    return True


def _surveyed(plan: Plan, degraded: str | None) -> dict[str, Any]:
    return {
        "degraded": degraded,
        "duration_s": plan.duration_s,
        "duration_source": "decode",
        "duration_exact": True,
        "speech_s": plan.speech_s,
        "plan_hash": plan.plan_hash,
    }


# -- ends -----------------------------------------------------------------------------------


def fail(c: Connection, job_id: str, code: str, message: str, attempt: int | None = None) -> bool:
    """-> failed, with a reason a person can act on. False when it had ended or is not ours."""
    values = {
        "state": State.FAILED.value,
        "error_code": code,
        "error_message": message,
        "completed_at": _now,
        "index_pending": False,
    }
    allowed = [state for state in State if State.FAILED in MOVES[state]]
    return _move(c, [job_id], allowed, values, attempt=attempt).first() is not None


def cancel(c: Connection, job_id: str) -> State | None:
    """-> cancelled, whoever works on it. Returns the state it had, None when it had ended."""
    before = c.execute(
        select(jobs.c.state).where(jobs.c.id == UUID(job_id)).with_for_update()
    ).scalar_one_or_none()
    values = {"state": State.CANCELLED.value, "completed_at": _now, "index_pending": False}
    allowed = [state for state in State if State.CANCELLED in MOVES[state]]
    moved = _move(c, [job_id], allowed, values).first()
    return State(before) if moved and before else None


# -- the index ------------------------------------------------------------------------------


def outbox(c: Connection, stage: Stage, limit: int) -> list[Waiting]:
    """Waiting jobs that Redis may not have heard of yet."""
    rows = c.execute(
        _places()
        .where(jobs.c.index_pending, jobs.c.state == stage.waiting.value)
        .order_by(jobs.c.id)
        .limit(limit)
    )
    return [place for row in rows if (place := _place(row))]


def indexed(c: Connection, stage: Stage, job_ids: Sequence[str]) -> None:
    """Say that Redis has these jobs, unless they moved in between."""
    c.execute(
        update(jobs)
        .where(
            jobs.c.id.in_([UUID(j) for j in job_ids]),
            jobs.c.index_pending,
            jobs.c.state == stage.waiting.value,
        )
        .values(index_pending=False)
    )


def settle_expired(
    c: Connection, stage: Stage, job_ids: Sequence[str], bucket_left: Callable[[Any], int]
) -> list[Waiting]:
    """Jobs whose lease ran out: those in work wait again; returns the places of all that wait.

    `bucket_left` tells the size of what remains of a row. What is not returned has ended or is at
    another stage: its lease is to be dropped.
    """
    values = {"state": stage.waiting.value, "index_pending": True}
    for row in _move(c, job_ids, (stage.working,), values).all():
        c.execute(update(jobs).where(jobs.c.id == row.id).values(bucket=bucket_left(row)))
    rows = c.execute(
        _places().where(
            jobs.c.id.in_([UUID(j) for j in job_ids]), jobs.c.state == stage.waiting.value
        )
    )
    return [place for row in rows if (place := _place(row))]


def page_of_stage(
    c: Connection, stage: Stage, after: str | None, limit: int
) -> tuple[list[Waiting], list[str], str | None]:
    """The next jobs by id: (those that wait, ids of those in work, last id or None at the end)."""
    states = [stage.waiting.value, stage.working.value]
    query = _places().add_columns(jobs.c.state).where(jobs.c.state.in_(states))
    if after is not None:
        query = query.where(jobs.c.id > UUID(after))
    rows = c.execute(query.order_by(jobs.c.id).limit(limit)).all()
    waiting = [place for row in rows if row.state == stage.waiting.value and (place := _place(row))]
    working = [str(row.id) for row in rows if row.state == stage.working.value]
    return waiting, working, str(rows[-1].id) if len(rows) == limit else None


def surveyed_speech_h(c: Connection) -> float:
    """Hours of packed speech that wait for an engine."""
    query = select(func.coalesce(func.sum(jobs.c.speech_s), 0.0)).where(
        jobs.c.state == State.SURVEYED.value
    )
    return float(c.execute(query).scalar_one()) / 3600.0


# -- policy ---------------------------------------------------------------------------------


def change_policy(c: Connection, policy: Policy, reason: str) -> None:
    """Record a new order of work and why."""
    c.execute(insert(policies).values(policy=str(policy), reason=reason))


def newest_policy(c: Connection) -> Policy | None:
    """The order of work last decided; None when nobody ever changed it."""
    query = select(policies.c.policy).order_by(policies.c.id.desc()).limit(1)
    written = c.execute(query).scalar_one_or_none()
    return parse_policy(written) if written else None


# -- people's questions ---------------------------------------------------------------------


def view(c: Connection, job_id: str) -> JobView | None:
    """The job as people read it; None when there is none."""
    row = c.execute(select(jobs).where(jobs.c.id == UUID(job_id))).first()
    return _view(row) if row else None


def views(c: Connection, job_ids: Sequence[str]) -> dict[str, JobView]:
    """Several jobs at once, by id; unknown ids are left out."""
    rows = c.execute(select(jobs).where(jobs.c.id.in_([UUID(j) for j in job_ids])))
    return {str(row.id): _view(row) for row in rows}


def place(c: Connection, job_id: str) -> Waiting | None:
    """Where the job stands or stood in its queue; None when there is none."""
    return _place(c.execute(_places().where(jobs.c.id == UUID(job_id))).first())


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


# -- shared pieces --------------------------------------------------------------------------


def _move(
    c: Connection,
    job_ids: Sequence[str],
    allowed: Sequence[State],
    values: Mapping[str, Any],
    attempt: int | None = None,
) -> Any:
    """UPDATE jobs that stand in `allowed` (and at `attempt`, if given), RETURNING whole rows."""
    target = State(values["state"])
    if illegal := [state for state in allowed if target not in MOVES[state] and state != target]:
        raise AssertionError(f"{illegal} may not become {target}: see pipeline/job.py")
    where: list[ColumnElement[bool]] = [
        jobs.c.id.in_([UUID(j) for j in job_ids]),
        jobs.c.state.in_([state.value for state in allowed]),
    ]
    if attempt is not None:
        where.append(jobs.c.attempt == attempt)
    statement = update(jobs).where(*where).values(**values, updated_at=_now).returning(*jobs.c)
    return c.execute(statement)


def _places() -> Select[Any]:
    return select(jobs.c.id, jobs.c.bucket, jobs.c.arrival_ms)


def _place(row: Any) -> Waiting | None:
    return Waiting(str(row.id), row.bucket or 0, row.arrival_ms) if row is not None else None


def _ticket(row: Any) -> Ticket:
    return Ticket(
        job_id=str(row.id),
        attempt=row.attempt,
        arrival_ms=row.arrival_ms,
        bucket=row.bucket or 0,
        crashes=row.crashes,
        storage_key=row.storage_key,
        file_name=row.file_name,
        language=row.language,
        options=row.options,
        duration_s=row.duration_s or 0.0,
        plan_hash=row.plan_hash,
        model=row.model,
    )


_VIEWED = (
    *("batch_id", "file_name", "duration_s", "duration_source", "duration_exact", "channels"),
    *("container", "codec", "language", "model", "created_at", "started_at", "first_text_at"),
    *(
        "probed_s",
        "probed_source",
        "completed_at",
        "error_code",
        "error_message",
        "degraded",
        "no_speech",
        "metadata",
    ),
)
"""Fields a view takes from the row as they are."""


def _view(row: Any) -> JobView:
    state = State(row.state)
    planned = row.windows_total or 0
    progress = 1.0 if state is State.COMPLETED else row.windows_done / planned if planned else 0.0
    fields = {name: getattr(row, name) for name in _VIEWED}
    return JobView(
        id=str(row.id), state=state, progress=min(1.0, progress), attempts=row.attempt, **fields
    )
