"""What a forecast asks of Postgres: who is in hand, where one job stands, how many come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, case, func, select

from pipeline.caller import Caller
from pipeline.job import FINAL, STAGES, State
from pipeline.scheduling.policies import Waiting
from pipeline.store.rows import ago, counted_ms, first_id_since, now, seen_by
from pipeline.store.tables import jobs


@dataclass(frozen=True)
class Standing:
    """How much of a job is left, and where it stands."""

    place: Waiting
    """At the size it was last queued with."""
    state: State
    file_name: str
    worker: str | None
    """Who has or had it."""
    since_s: float
    """Seconds in this state."""
    duration_s: float
    speech_s: float
    windows_total: int
    windows_done: int
    language: str | None
    """As asked for."""


_LIVE = frozenset(state for stage in STAGES for state in (stage.waiting, stage.working))

_COLUMNS = (
    *(jobs.c.id, jobs.c.bucket, jobs.c.arrival_ms, jobs.c.counted_ms),
    *(jobs.c.state, jobs.c.file_name, jobs.c.worker),
    *(jobs.c.duration_s, jobs.c.speech_s, jobs.c.windows_total, jobs.c.windows_done),
    jobs.c.language,
    func.extract("epoch", now - jobs.c.updated_at).label("since_s"),
)


BYTES_A_S = 8_000
"""What a second of a recording is guessed to weigh while nobody has looked: G.711, one channel."""

FETCHED_S = 300.0
"""How long a recording is guessed to last that is not fetched yet: a call."""


def audio_left_s(c: Connection) -> float:
    """Length of all recordings that have not ended, seconds, whatever is done of them.

    As decoded or probed, else as their sender said, else guessed by size.
    """
    guess = case((jobs.c.size_bytes > 0, jobs.c.size_bytes / BYTES_A_S), else_=FETCHED_S)
    length_s = func.coalesce(jobs.c.duration_s, jobs.c.duration_hint_s, guess)
    going = jobs.c.state.in_([state.value for state in State if state not in FINAL])
    return float(c.scalar(select(func.coalesce(func.sum(length_s), 0.0)).where(going)) or 0.0)


def standing(c: Connection, job_id: str) -> tuple[Standing, int] | None:
    """(how the job stands, Postgres time in ms); None when there is none, or it was not probed yet,
    or has ended.
    """
    now_ms = (func.extract("epoch", now) * 1000).label("now_ms")
    row = c.execute(select(*_COLUMNS, now_ms).where(jobs.c.id == UUID(job_id))).first()
    if row is None or State(row.state) not in _LIVE:
        return None
    return _standing(row), int(row.now_ms)


def standings(c: Connection, job_ids: Sequence[str]) -> list[Standing]:
    """How several jobs stand; those that are not live are left out."""
    rows = c.execute(select(*_COLUMNS).where(jobs.c.id.in_([UUID(job_id) for job_id in job_ids])))
    return [found for found in map(_standing, rows) if found.state in _LIVE]


def in_hand(c: Connection) -> list[Standing]:
    """All jobs in workers' hands, of both stages."""
    states = [stage.working.value for stage in STAGES]
    rows = c.execute(select(*_COLUMNS).where(jobs.c.state.in_(states)).order_by(jobs.c.id))
    return [_standing(row) for row in rows]


@dataclass(frozen=True)
class Unprobed:
    """Jobs of a batch, about equally long, that are not probed yet."""

    length_s: float | None
    """As their sender said, else the mean of the batch; None when neither is known."""
    jobs: int
    first_ms: int
    """When the first and the last of them came."""
    last_ms: int


@dataclass(frozen=True)
class RestOfBatch:
    """What of a batch has not ended."""

    waiting: Mapping[State, Sequence[Waiting]]
    """The latest arrival of each size, by state: inside a size it goes last under every policy."""
    in_hand: Sequence[Standing]
    unprobed: Sequence[Unprobed]


def rest_of_batch(c: Connection, batch_id: str, caller: Caller) -> RestOfBatch:
    """What of a batch, as it exists for `caller`, has not ended."""
    mine = and_(jobs.c.batch_id == batch_id, seen_by(caller))
    latest_ms = func.max(func.coalesce(jobs.c.counted_ms, jobs.c.arrival_ms))
    waiting: dict[State, list[Waiting]] = {stage.waiting: [] for stage in STAGES}
    for row in c.execute(
        select(jobs.c.state, jobs.c.bucket, latest_ms.label("latest_ms"))
        .where(mine, jobs.c.state.in_([state.value for state in waiting]))
        .group_by(jobs.c.state, jobs.c.bucket)
    ):
        waiting[State(row.state)].append(Waiting("", row.bucket or 0, row.latest_ms))
    working = [stage.working.value for stage in STAGES]
    held = c.execute(select(*_COLUMNS).where(mine, jobs.c.state.in_(working)))
    return RestOfBatch(waiting, [_standing(row) for row in held], _unprobed(c, mine))


def _unprobed(c: Connection, mine: ColumnElement[bool]) -> list[Unprobed]:
    mean_s = select(func.avg(jobs.c.duration_s)).where(mine)
    length_s = func.coalesce(jobs.c.duration_hint_s, mean_s.scalar_subquery())
    one = (
        select(length_s.label("length_s"), jobs.c.arrival_ms)
        .where(mine, jobs.c.state == State.RECEIVED.value)
        .subquery()
    )
    rows = c.execute(
        select(
            func.avg(one.c.length_s).label("length_s"),
            func.count().label("jobs"),
            func.min(one.c.arrival_ms).label("first_ms"),
            func.max(one.c.arrival_ms).label("last_ms"),
        ).group_by(func.round(10 * func.ln(func.greatest(one.c.length_s, 0.1))))
    )
    return [Unprobed(row.length_s, row.jobs, row.first_ms, row.last_ms) for row in rows]


def arrivals(c: Connection, now_ms: int, slice_s: float, slices: int) -> Sequence[dict[int, int]]:
    """Jobs that came in the last `slices` times `slice_s` seconds, the newest slice first:
    {bucket: jobs}. Jobs that are not probed yet have no size and are left out.
    """
    slice_ms = int(slice_s * 1000)
    since_ms = now_ms - slices * slice_ms
    at = func.floor((now_ms - jobs.c.arrival_ms) / slice_ms).label("at")
    rows = c.execute(
        select(at, jobs.c.bucket, func.count().label("jobs"))
        .where(
            jobs.c.id >= first_id_since(since_ms),
            jobs.c.arrival_ms > since_ms,
            jobs.c.bucket.is_not(None),
        )
        .group_by(at, jobs.c.bucket)
    )
    found: list[dict[int, int]] = [{} for _ in range(slices)]
    for row in rows:
        counts = found[min(slices - 1, max(0, int(row.at)))]
        counts[row.bucket] = counts.get(row.bucket, 0) + row.jobs
    return found


@dataclass(frozen=True)
class Recorded:
    """A recording that came, as a replay needs it."""

    job_id: str
    arrival_ms: int
    speech_s: float
    windows: int
    language: str | None
    """As asked for."""


def recorded(c: Connection, within_s: float, limit: int) -> list[Recorded]:
    """The newest `limit` recordings that arrived in the last `within_s` seconds and were surveyed,
    whatever became of them, in order of arrival. Those without speech needed no engine.
    """
    since_ms = func.extract("epoch", ago(within_s)) * 1000
    newest = (
        select(jobs.c.id, jobs.c.arrival_ms, jobs.c.speech_s, jobs.c.windows_total, jobs.c.language)
        .where(jobs.c.arrival_ms > since_ms, jobs.c.windows_total > 0)
        .order_by(jobs.c.id.desc())
        .limit(limit)
    )
    return sorted(
        (
            Recorded(
                str(row.id), row.arrival_ms, row.speech_s or 0.0, row.windows_total, row.language
            )
            for row in c.execute(newest)
        ),
        key=lambda job: job.arrival_ms,
    )


def _standing(row: Any) -> Standing:
    return Standing(
        place=Waiting(str(row.id), row.bucket or 0, counted_ms(row)),
        state=State(row.state),
        file_name=row.file_name,
        worker=row.worker,
        since_s=max(0.0, float(row.since_s)),
        duration_s=row.duration_s or 0.0,
        speech_s=row.speech_s or 0.0,
        windows_total=row.windows_total or 0,
        windows_done=row.windows_done,
        language=row.language,
    )
