"""The queue as people see it: who waits and why there, who is in hand, how fast it goes."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import Connection

from pipeline.api.bodies import p50_s, p90_s
from pipeline.api.described import problems
from pipeline.api.given import GivenOnlooker, GivenParts
from pipeline.api.queue_bodies import (
    Counts,
    JobInHand,
    QueuedJob,
    QueueView,
    RatiosView,
    StageRatios,
    WorkerSpeedView,
)
from pipeline.caller import ANYONE, Caller, Scope
from pipeline.errors import BadRequest, PartDown
from pipeline.job import SURVEY, TRANSCRIBE, JobView, Stage
from pipeline.parts import Parts
from pipeline.queue.board import Ratios
from pipeline.scheduling.policies import Waiting
from pipeline.scheduling.reasons import why
from pipeline.scheduling.work import bucket_work_s
from pipeline.steps.forecast import look
from pipeline.steps.forecast.outlook import HEAD, Outlook
from pipeline.steps.forecast.told import Times
from pipeline.steps.ratio import ratio
from pipeline.store import policies, views
from pipeline.store.load import Standing
from pipeline.store.session import transaction

router = APIRouter(tags=["queue"])

SHOWN = (TRANSCRIBE, SURVEY)
"""In this order: what is nearest its end comes first."""


@router.get("/v1/queue", summary="Read the queue", responses=problems(BadRequest, PartDown))
def read_queue(
    caller: GivenOnlooker,
    parts: GivenParts,
    limit: Annotated[
        int, Query(ge=1, le=1000, description="Jobs of each stage in `head` and in `in_hand`")
    ] = 20,
) -> QueueView:
    """How many jobs wait and are in work at each stage, who goes first and when it will be done.

    Whoever may not `operate` sees its own jobs only, at their places among all, and the counts.
    What a file is called is told to those only who may `read` its job: people are named in it.
    """
    all_of_it = caller.may(Scope.OPERATE)
    outlook = look(parts)
    with transaction(parts.store) as c:
        decided = policies.newest(c)
    mode = decided.mode if decided else parts.settings.start_mode
    all_done = outlook.all_done()
    counts = {name: queue.counts() for name, queue in parts.queues.items()}
    ratios = {name: _ratios(queue.board.ratios()) for name, queue in parts.queues.items()}
    return QueueView(
        policy=str(outlook.policies[TRANSCRIBE.name]),
        mode=mode.value,
        waiting=Counts(**{name: waiting for name, (waiting, _) in counts.items()}),
        working=Counts(**{name: working for name, (_, working) in counts.items()}),
        head=[job for stage in SHOWN for job in _head(parts, stage, outlook, limit, caller)],
        in_hand=[job for stage in SHOWN for job in _in_hand(parts, stage, outlook, limit, caller)],
        workers=[
            WorkerSpeedView(worker=w.worker, stage=stage.name, speed=w.speed, slots=w.slots)  # type: ignore[arg-type]
            for stage in SHOWN
            for w in outlook.measures.speeds[stage.name]
            if all_of_it  # names of machines
        ],
        ratios=StageRatios(**ratios),
        all_done_s=p50_s(all_done),
        all_done_p90_s=p90_s(all_done),
    )


def _head(
    parts: Parts, stage: Stage, outlook: Outlook, limit: int, caller: Caller
) -> list[QueuedJob]:
    """Who goes first at `stage`. What the index still holds but has moved on is left out, and so
    are jobs that are not shown to `caller`.
    """
    policy = outlook.policies[stage.name]
    places = parts.queues[stage.name].order.head(limit, policy, outlook.now_ms)
    found_times = outlook.head_times(stage, places)
    with transaction(parts.store) as c:
        ids = [place.job_id for place in places]
        found = views.views(c, ids, ANYONE if caller.may(Scope.OPERATE) else caller)
        readable = _readable(c, ids, caller)
    return [
        _queued(number, place, found[place.job_id], stage, outlook, times, readable)
        for number, (place, times) in enumerate(zip(places, found_times, strict=True), 1)
        if place.job_id in found and found[place.job_id].state is stage.waiting
    ]


def _queued(
    number: int,
    place: Waiting,
    view: JobView,
    stage: Stage,
    outlook: Outlook,
    times: Times | None,
    readable: Collection[str],
) -> QueuedJob:
    wait_s = max(0, outlook.now_ms - place.arrival_ms) / 1000
    work_s = bucket_work_s(place.bucket)
    return QueuedJob(
        position=number,
        id=place.job_id,
        file_name=view.file_name if view.id in readable else None,
        stage=stage.name,  # type: ignore[arg-type]
        wait_s=round(wait_s, 3),
        work_s=round(work_s, 3),
        ratio=round(ratio(place, outlook.now_ms), 3),
        duration_s=view.duration_s,
        eta_s=p50_s(times),
        eta_p90_s=p90_s(times),
        why=why(outlook.policies[stage.name], wait_s, work_s, number),
    )


def _in_hand(
    parts: Parts, stage: Stage, outlook: Outlook, limit: int, caller: Caller
) -> list[JobInHand]:
    """Jobs workers have at `stage`, the nearest to its end first, those without forecast last."""
    held = [job for job in outlook.in_hand if job.state is stage.working]
    with transaction(parts.store) as c:
        readable = _readable(c, [job.place.job_id for job in held], caller)
    if not caller.may(Scope.OPERATE):
        held = [job for job in held if job.place.job_id in readable]
    # forecasts cost: they are made for those with least left, who are nearly always the next to end
    held = sorted(held, key=lambda job: job.windows_total - job.windows_done)[:limit]
    times = [outlook.times(job) if n < HEAD else None for n, job in enumerate(held)]
    order = sorted(
        zip(held, times, strict=True),
        key=lambda row: (row[1].p50_s if row[1] else math.inf, row[0].place.job_id),
    )
    return [_held(stage, job, its, readable) for job, its in order]


def _readable(c: Connection, job_ids: Sequence[str], caller: Caller) -> Collection[str]:
    """Those of these jobs that `caller` may read."""
    if caller.key_id is None:
        return set(job_ids)
    return views.views(c, job_ids, caller).keys() if caller.may(Scope.READ) else set()


def _held(stage: Stage, job: Standing, times: Times | None, readable: Collection[str]) -> JobInHand:
    return JobInHand(
        id=job.place.job_id,
        file_name=job.file_name if job.place.job_id in readable else None,
        stage=stage.name,  # type: ignore[arg-type]
        worker=job.worker,
        since_s=round(job.since_s, 3),
        progress=min(1.0, job.windows_done / job.windows_total) if job.windows_total else 0.0,
        eta_s=p50_s(times),
        eta_p90_s=p90_s(times),
    )


def _ratios(found: Ratios | None) -> RatiosView | None:
    if found is None:
        return None
    return RatiosView(
        highest=round(found.highest, 3),
        median=round(found.median, 3),
        of=found.of,
        as_of=datetime.fromtimestamp(found.as_of_ms / 1000, UTC),
    )
