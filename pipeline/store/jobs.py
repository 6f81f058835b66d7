"""A job's life, one function a move: each names the states it starts from.

Every write by a worker carries its attempt and does nothing when the job's attempt is another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, func, select, update
from sqlalchemy.dialects.postgresql import insert

from pipeline.job import MOVES, Stage, State, Ticket
from pipeline.recording import Plan, Probe, Transcript
from pipeline.scheduling.policies import Waiting
from pipeline.store.rows import ago, counted_ms, move, now, place_of
from pipeline.store.tables import jobs, transcripts

_arrival_now = func.floor(func.extract("epoch", func.clock_timestamp()) * 1000)


# -- accept and probe -----------------------------------------------------------------------


def add_job(c: Connection, job_id: str, row: Mapping[str, Any]) -> bool:
    """A new job in `received`: its arrival is Postgres' time now. False when it is there."""
    return add_jobs(c, {job_id: row}) == {job_id}


def add_jobs(c: Connection, rows: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Several at once, all with the same columns; the ids of those that were not there already."""
    values = [
        {**row, "id": UUID(job_id), "state": State.RECEIVED.value} for job_id, row in rows.items()
    ]
    fresh = insert(jobs).values(arrival_ms=_arrival_now).on_conflict_do_nothing()
    return {str(row.id) for row in c.execute(fresh.returning(jobs.c.id), values)}


def recording_of(c: Connection, job_id: str) -> Any:
    """What is known of a job's recording and wishes, as a row; None when there is no such job.

    state, attempt, storage_key, sha256 (empty until it is stored), source_url, file_name,
    language, options, audio_erased_at, tenant, arrival_ms.
    """
    columns = (
        *(jobs.c.state, jobs.c.attempt, jobs.c.storage_key, jobs.c.sha256, jobs.c.source_url),
        *(jobs.c.file_name, jobs.c.language, jobs.c.options, jobs.c.audio_erased_at),
        *(jobs.c.tenant, jobs.c.arrival_ms),
    )
    return c.execute(select(*columns).where(jobs.c.id == UUID(job_id))).first()


def keep_probe(
    c: Connection, job_id: str, probe: Probe, bucket: int, counted_ms: int | None = None
) -> Waiting | None:
    """Received -> probed. Returns its place in the survey queue; None if it had moved on.

    `counted_ms`: when it counts as arrived, Postgres time; None: when it did.
    """
    values = {
        "state": State.PROBED.value,
        "duration_s": probe.duration_s,
        "probed_s": probe.duration_s,
        "probed_source": probe.source,
        "probe_reason": probe.reason or None,
        "degraded": probe.cut_off,
        "duration_source": probe.source,
        "duration_exact": probe.exact,
        "container": probe.container,
        "codec": probe.codec,
        "sample_rate_hz": probe.sample_rate_hz,
        "channels": probe.channels,
        "bucket": bucket,
        "counted_ms": counted_ms,
        "index_pending": True,
    }
    return place_of(move(c, [job_id], (State.RECEIVED,), values).first())


def forgotten(c: Connection, age_s: float, limit: int) -> list[str]:
    """Jobs still unprobed after `age_s` seconds: their message was lost, or its worker died.

    Each is told again only after another `age_s`: a long line of probes is not doubled.
    """
    old = ago(age_s)
    due = (
        select(jobs.c.id)
        .where(
            jobs.c.state == State.RECEIVED.value,
            jobs.c.source_url.is_(None) | (jobs.c.sha256 != ""),  # else see `fetches.forgotten`
            jobs.c.updated_at < old,
        )
        .order_by(jobs.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    told = update(jobs).where(jobs.c.id.in_(due)).values(updated_at=now).returning(jobs.c.id)
    return sorted(str(row.id) for row in c.execute(told))


def senders(c: Connection, job_ids: Sequence[str]) -> dict[str | None, list[str]]:
    """These jobs by who sent them: the tenant, else the batch."""
    found: dict[str | None, list[str]] = {}
    sender = func.coalesce(jobs.c.tenant, jobs.c.batch_id)
    ids = [UUID(job_id) for job_id in job_ids]
    for row in c.execute(select(jobs.c.id, sender).where(jobs.c.id.in_(ids)).order_by(jobs.c.id)):
        found.setdefault(row[1], []).append(str(row.id))
    return found


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
        values["started_at"] = func.coalesce(jobs.c.started_at, now)
    return [_ticket(row) for row in move(c, job_ids, (stage.waiting,), values)]


def still_ours(c: Connection, stage: Stage, held: Mapping[str, int]) -> set[str]:
    """Of {job id: attempt}, the jobs that have not ended and whose newest attempt that is."""
    return _under(c, held, (stage.working, stage.waiting))


def in_work(c: Connection, stage: Stage, held: Mapping[str, int]) -> set[str]:
    """Of {job id: attempt}, the jobs that are in work under that attempt."""
    return _under(c, held, (stage.working,))


def _under(c: Connection, held: Mapping[str, int], states: Sequence[State]) -> set[str]:
    rows = c.execute(
        select(jobs.c.id, jobs.c.attempt).where(
            jobs.c.id.in_([UUID(job_id) for job_id in held]),
            jobs.c.state.in_([state.value for state in states]),
        )
    )
    return {str(row.id) for row in rows if held[str(row.id)] == row.attempt}


def taken_away(c: Connection, held: Mapping[str, int]) -> set[str]:
    """Of {job id: attempt}, the jobs cancelled, erased or granted anew since.

    Not those that ended otherwise: that was this attempt's own doing.
    """
    ids = [UUID(job_id) for job_id in held]
    rows = c.execute(
        select(jobs.c.id, jobs.c.attempt).where(
            jobs.c.id.in_(ids), jobs.c.state != State.CANCELLED.value
        )
    )
    return set(held) - {str(row.id) for row in rows if held[str(row.id)] == row.attempt}


def give_back(c: Connection, stage: Stage, ticket: Ticket, bucket: int) -> Waiting | None:
    """Working -> waiting, at the size of what remains. None when the fence does not hold."""
    values = {"state": stage.waiting.value, "bucket": bucket, "index_pending": True}
    moved = move(c, [ticket.job_id], (stage.working,), values, attempt=ticket.attempt)
    return place_of(moved.first())


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
        "survey_attempts": jobs.c.attempt,
        "crashes": 0,
        "bucket": bucket,
        "index_pending": True,
    }
    allowed = (State.SURVEYING, State.PROBED)
    return place_of(move(c, [ticket.job_id], allowed, values, attempt=ticket.attempt).first())


def keep_transcript(
    c: Connection,
    ticket: Ticket,
    transcript: Transcript,
    plan: Plan | None = None,
    degraded: str | None = None,
) -> bool:
    """-> completed with its transcript, once. False when the fence does not hold: write nothing.

    With `plan`: a recording without speech, completed straight from the survey. `degraded`: why it
    is worth less than usual, beside what the survey found.
    """
    values: dict[str, Any] = {
        "state": State.COMPLETED.value,
        "completed_at": now,
        "first_text_at": func.coalesce(jobs.c.first_text_at, now if transcript.text else None),
        "no_speech": transcript.no_speech,
        "transcribed_s": transcript.lengths.transcribed_s if transcript.lengths else None,
        "index_pending": False,
    }
    allowed = (State.RUNNING, State.SURVEYED)
    if plan is not None:
        values |= {**_surveyed(plan, degraded), "windows_total": 0}
        allowed = (State.SURVEYING, State.PROBED)
    elif degraded is not None:
        values["degraded"] = func.concat_ws("; ", jobs.c.degraded, degraded)
    moved = move(c, [ticket.job_id], allowed, values, attempt=ticket.attempt, returning=[jobs.c.id])
    if moved.first() is None:
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
        # beside what the probe found missing
        "degraded": func.nullif(func.concat_ws("; ", jobs.c.degraded, degraded), ""),
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
        "completed_at": now,
        "index_pending": False,
    }
    allowed = [state for state in State if State.FAILED in MOVES[state]]
    return move(c, [job_id], allowed, values, attempt=attempt).first() is not None


def cancel(c: Connection, job_id: str) -> State | None:
    """-> cancelled, whoever works on it. Returns the state it had, None when it had ended."""
    before = c.execute(
        select(jobs.c.state).where(jobs.c.id == UUID(job_id)).with_for_update()
    ).scalar_one_or_none()
    values = {"state": State.CANCELLED.value, "completed_at": now, "index_pending": False}
    allowed = [state for state in State if State.CANCELLED in MOVES[state]]
    moved = move(c, [job_id], allowed, values).first()
    return State(before) if moved and before else None


def retry(c: Connection, job_id: str, attempt: int, *, fetch: bool) -> bool:
    """Failed or cancelled -> received, as if it had just come. False when it moved meanwhile.

    `attempt` is the one it ended with; the next one fences whoever still works on it. With
    `fetch` its recording is fetched again.
    """
    values: dict[str, Any] = {
        "state": State.RECEIVED.value,
        "attempt": jobs.c.attempt + 1,
        "survey_attempts": jobs.c.attempt + 1,
        "crashes": 0,
        "worker": None,
        "arrival_ms": _arrival_now,
        "counted_ms": None,
        "index_pending": fetch,
        "plan_hash": None,
        "windows_total": None,
        "windows_done": 0,
        **dict.fromkeys(("error_code", "error_message", "degraded")),
        **dict.fromkeys(("started_at", "first_text_at", "completed_at", "audio_erased_at")),
    }
    if fetch:
        values["sha256"] = ""
    allowed = (State.FAILED, State.CANCELLED)
    return move(c, [job_id], allowed, values, attempt=attempt).first() is not None


def _ticket(row: Any) -> Ticket:
    return Ticket(
        job_id=str(row.id),
        attempt=row.attempt,
        tries=row.attempt - row.survey_attempts,
        arrival_ms=counted_ms(row),
        bucket=row.bucket or 0,
        storage_key=row.storage_key,
        file_name=row.file_name,
        language=row.language,
        detected_language=row.detected_language,
        options=row.options,
        duration_s=row.duration_s or 0.0,
        plan_hash=row.plan_hash,
        model=row.model,
        channel_languages=row.channel_languages,
        probed_s=row.probed_s,
    )
