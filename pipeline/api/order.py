"""Who is next and by which rule: the queue as people see it, and its policy."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from pipeline.api.bodies import (
    Counts,
    PolicyChange,
    PolicyHistory,
    PolicyView,
    QueuedJob,
    QueueView,
)
from pipeline.api.given import GivenParts
from pipeline.errors import BadRequest
from pipeline.job import SURVEY, TRANSCRIBE, JobView, Stage
from pipeline.parts import Parts
from pipeline.scheduling.policies import Policy, Waiting, parse_policy
from pipeline.scheduling.work import bucket_work_s
from pipeline.store import policies, views
from pipeline.store.policies import PolicyRow
from pipeline.store.session import clock_ms, transaction

router = APIRouter(tags=["queue"])


@router.get("/v1/queue")
def read_queue(
    parts: GivenParts,
    limit: Annotated[int, Query(ge=1, le=1000, description="Jobs of each stage in `head`")] = 20,
) -> QueueView:
    """How many jobs wait and are in work at each stage, and who goes first."""
    with transaction(parts.store) as c:
        now_ms, policy = clock_ms(c), _decided(parts, policies.newest_policy(c))
    counts = {name: queue.counts() for name, queue in parts.queues.items()}
    return QueueView(
        policy=str(policy),
        waiting=Counts(**{name: waiting for name, (waiting, _) in counts.items()}),
        working=Counts(**{name: working for name, (_, working) in counts.items()}),
        head=[
            job
            for stage in (TRANSCRIBE, SURVEY)
            for job in _head(parts, stage, policy, now_ms, limit)
        ],
    )


@router.get("/v1/policy")
def read_policy(parts: GivenParts) -> PolicyView:
    """The order of work, as last decided, and why."""
    with transaction(parts.store) as c:
        last = policies.changes(c, 1)
    if not last:
        return PolicyView(policy=str(parts.settings.start_policy), reason=None, changed_at=None)
    return _policy_view(last[0])


@router.get("/v1/policy/history")
def read_policy_history(
    parts: GivenParts,
    limit: Annotated[int, Query(ge=1, le=1000, description="Changes in the answer")] = 20,
) -> PolicyHistory:
    """The last changes of the order of work, newest first."""
    with transaction(parts.store) as c:
        found = policies.changes(c, limit)
    return PolicyHistory(changes=[_policy_view(row) for row in found])


@router.put("/v1/policy")
def change_policy(parts: GivenParts, change: PolicyChange) -> PolicyView:
    """Change the order of work, from the next claim on; jobs that wait already follow it too.

    After a 503 it may be written down and not in force: ask again.
    """
    try:
        policy = parse_policy(change.policy)
    except ValueError as refused:
        raise BadRequest(f"{refused}.") from None
    if "\0" in change.reason:
        raise BadRequest("reason holds a NUL character, which cannot be kept.")
    with transaction(parts.store) as c:
        policies.change_policy(c, policy, change.reason)
        (last,) = policies.changes(c, 1)
    for queue in parts.queues.values():
        queue.set_policy(policy)
    return _policy_view(last)


def _policy_view(row: PolicyRow) -> PolicyView:
    return PolicyView(policy=str(row.policy), reason=row.reason, changed_at=row.changed_at)


def _decided(parts: Parts, newest: Policy | None) -> Policy:
    return newest or parts.settings.start_policy


def _head(parts: Parts, stage: Stage, policy: Policy, now_ms: int, limit: int) -> list[QueuedJob]:
    """Who goes first at `stage`. What the index still holds but has moved on is left out."""
    places = parts.queues[stage.name].head(limit, policy, now_ms)
    with transaction(parts.store) as c:
        found = views.views(c, [place.job_id for place in places])
    return [
        _queued(number, place, found[place.job_id], stage, now_ms)
        for number, place in enumerate(places, 1)
        if place.job_id in found and found[place.job_id].state is stage.waiting
    ]


def _queued(number: int, place: Waiting, view: JobView, stage: Stage, now_ms: int) -> QueuedJob:
    wait_s = max(0, now_ms - place.arrival_ms) / 1000
    work_s = bucket_work_s(place.bucket)
    return QueuedJob(
        position=number,
        id=place.job_id,
        file_name=view.file_name,
        stage=stage.name,  # type: ignore[arg-type]
        wait_s=round(wait_s, 3),
        work_s=round(work_s, 3),
        ratio=round(1 + wait_s / work_s, 3),
        duration_s=view.duration_s,
    )
