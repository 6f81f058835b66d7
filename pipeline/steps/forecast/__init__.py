"""forecast: when will a job, a batch, everything be done.

The arithmetic is in scheduling/forecast.py; here is gathered what it needs to know. One look at
Postgres (who is in hand, what came in the last minute) and at both queues (policy, speeds) makes an
`Outlook`; each forecast from it costs one pipeline to Redis for each look at a queue's order.
"""

from __future__ import annotations

from typing import Protocol

from sqlalchemy import Engine

from pipeline.job import STAGES
from pipeline.queue.redis_queue import RedisQueue
from pipeline.scheduling.policies import order_key, pairs
from pipeline.settings import Settings
from pipeline.steps.forecast.outlook import SLICE_S, SLICES, Forecast, Outlook
from pipeline.store import load, policies
from pipeline.store.session import clock_ms, transaction


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
        """For the policy of the start and the default language."""


def forecast_job(parts: Sources, job_id: str) -> Forecast:
    """Position and ETA of a job; both None when it has ended or was not probed yet.

    Raises `PartDown`.
    """
    outlook = look(parts, job_id)
    return outlook.job(outlook.asked) if outlook.asked else Forecast(None, None)


def forecast_batch(parts: Sources, batch_id: str) -> float | None:
    """Seconds until the last job of the batch ends: 0 when all have, None when nobody can say.

    That is while one is not probed yet, or a stage it needs has no worker. Raises `PartDown`.
    """
    with transaction(parts.store) as c:
        waiting, unprobed = load.last_of_batch(c, batch_id)
    outlook = look(parts)
    if unprobed:
        return None
    now = outlook.now_ms
    last = []
    for stage in STAGES:
        table = pairs(outlook.policies[stage.name])
        places = [place for state, place in waiting if state is stage.waiting]
        if places:
            worst = max(places, key=lambda place: order_key(place, table, now))
            last.append(outlook.waiting_eta_s(stage, worst, outlook.unplanned(worst)))
    held = [h for h in outlook.in_hand if h.batch_id == batch_id]
    last += [outlook.job(standing).eta_s for standing in held]
    return None if None in last else max((eta for eta in last if eta is not None), default=0.0)


def look(parts: Sources, job_id: str | None = None) -> Outlook:
    """How things stand now; with `job_id` also how that job does. Raises `PartDown`."""
    with transaction(parts.store) as c:
        asked = load.standing(c, job_id) if job_id else None
        in_hand = load.in_hand(c)
        decided = policies.newest_policy(c) or parts.settings.start_policy
        now_ms = clock_ms(c)
        slices = load.arrivals(c, now_ms, SLICE_S, SLICES)
    queues = parts.queues
    return Outlook(
        queues=queues,
        language=parts.settings.language,
        now_ms=now_ms,
        asked=asked,
        in_hand=in_hand,
        policies={name: q.policy() or decided for name, q in queues.items()},
        speeds={name: queue.board.speeds() for name, queue in queues.items()},
        slices=slices,
    )
