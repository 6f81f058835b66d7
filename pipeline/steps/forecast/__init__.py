"""forecast: when will a job, a batch, everything be done.

Once a second at most a process looks at Postgres and at both queues; what it saw is kept as an
`Outlook`, from which every forecast of that second is arithmetic (scheduling/forecast.py). A job's
own place is asked of its queue for each forecast, so positions are exact at read time. How far the
arithmetic is from the truth is learned from a sample of forecasts (calibrate.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from sqlalchemy import Engine

from pipeline.caller import ANYONE, Caller
from pipeline.job import STAGES, SURVEY, Stage
from pipeline.queue.order import Ahead
from pipeline.queue.redis_queue import RedisQueue
from pipeline.scheduling.policies import Waiting, order_key, pairs
from pipeline.scheduling.sketch import Marks
from pipeline.scheduling.work import bucket_of, predicted_work_s
from pipeline.settings import Settings
from pipeline.steps.forecast.measures import stage_of
from pipeline.steps.forecast.outlook import Outlook
from pipeline.steps.forecast.outlooks import Outlooks
from pipeline.steps.forecast.told import UNKNOWN, Forecast, Times
from pipeline.store import load
from pipeline.store.load import Unprobed
from pipeline.store.session import transaction


class Sources(Protocol):
    """Where a forecast looks: `Parts` is one."""

    @property
    def store(self) -> Engine:
        """Postgres."""

    @property
    def queues(self) -> dict[str, RedisQueue]:
        """Redis, by stage name."""

    @property
    def settings(self) -> Settings:
        """For the default language."""

    @property
    def outlooks(self) -> Outlooks:
        """What this process saw last."""


def look(parts: Sources) -> Outlook:
    """How things stand, as of a second ago at most, under the policies in force now.

    Raises `PartDown`.
    """
    outlook = parts.outlooks.now()
    policies = {name: queue.policy() for name, queue in parts.queues.items()}
    changed = {
        name: policy
        for name, policy in policies.items()
        if policy not in (None, outlook.policies[name])
    }
    return replace(outlook, policies={**outlook.policies, **changed}) if changed else outlook


def forecast_job(parts: Sources, job_id: str) -> Forecast:
    """Position and times of a job; nothing of one that has ended or was not probed yet.

    Raises `PartDown`.
    """
    outlook = look(parts)  # it may take a moment: before the job is read, not after
    with transaction(parts.store) as c:
        found = load.standing(c, job_id)
    if found is None:
        return UNKNOWN
    standing, now_ms = found
    stage = stage_of(standing.state)
    if standing.state is stage.working:
        return Forecast(None, outlook.times(standing))
    ahead = _ahead(parts, outlook, stage, standing.place, now_ms)
    return Forecast(ahead.position, outlook.times(standing, ahead))


def forecast_batch(parts: Sources, batch_id: str, caller: Caller = ANYONE) -> Times | None:
    """When the last job of the batch, as it exists for `caller`, ends; 0 when all have, None when
    nobody can say.

    A job that is not probed yet is taken to be as long as its sender said, else as the batch's
    mean; its probe is taken to cost no time. Nobody can say while neither is known, or a stage that
    is needed has no worker. Raises `PartDown`.
    """
    outlook = look(parts)
    with transaction(parts.store) as c:
        batch = load.rest_of_batch(c, batch_id, caller)
    if any(one.length_s is None for one in batch.unprobed):
        return None
    coming = _coming(batch.unprobed, outlook.measures.language)
    outlook = outlook.joined_by(coming)
    waiting = {stage: list(batch.waiting.get(stage.waiting, ())) for stage in STAGES}
    waiting[SURVEY] += [Waiting("", bucket, marks[-1][1]) for bucket, marks in coming.items()]
    last = [outlook.times(held) for held in batch.in_hand]
    for stage, places in waiting.items():
        if places:
            table = pairs(outlook.policies[stage.name])
            worst = max(places, key=lambda place: order_key(place, table, outlook.now_ms))
            # who is not probed yet is in no line that could be asked
            ahead = None if coming else _ahead(parts, outlook, stage, worst, outlook.now_ms)
            own = outlook.measures.unplanned(worst)
            raw_s = outlook.waiting_s(stage, worst, own, ahead=ahead)
            last.append(None if raw_s is None else outlook.calibrated(stage.waiting, raw_s))
    known = [times for times in last if times is not None]
    if len(known) < len(last):
        return None
    return Times(
        max((times.p50_s for times in known), default=0.0),
        max((times.p90_s for times in known), default=0.0),
    )


def _ahead(parts: Sources, outlook: Outlook, stage: Stage, place: Waiting, now_ms: int) -> Ahead:
    policy, known = outlook.policies[stage.name], outlook.lines[stage.name].marks
    (found,) = parts.queues[stage.name].order.ahead([place], policy, now_ms, likely=known)
    return found


def _coming(unprobed: Iterable[Unprobed], language: str) -> dict[int, Marks]:
    """Where jobs will wait for their survey once they are probed, by bucket."""
    counts: dict[int, list[Unprobed]] = {}
    for one in unprobed:
        work_s = predicted_work_s(one.length_s or 0.0, None, language)
        counts.setdefault(bucket_of(work_s), []).append(one)
    return {
        bucket: [
            (0, min(one.first_ms for one in found)),
            (sum(one.jobs for one in found) - 1, max(one.last_ms for one in found)),
        ]
        for bucket, found in counts.items()
    }
