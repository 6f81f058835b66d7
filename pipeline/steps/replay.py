"""replay: what a policy would have done to the recordings of the last hours, by the simulator.

Arrivals, lengths and windows come from Postgres, slots and speed from what workers report now. Each
unit is served at speed / slots, as in a full engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine

from pipeline.errors import TooFewJobs
from pipeline.job import TRANSCRIBE
from pipeline.queue.redis_queue import RedisQueue
from pipeline.scheduling.forecast import Capacity, together
from pipeline.scheduling.policies import Policy
from pipeline.scheduling.scenario import Arrival, House
from pipeline.scheduling.simulator import simulate
from pipeline.scheduling.tally import quantile
from pipeline.scheduling.work import predicted_work_s
from pipeline.store import load
from pipeline.store.load import Recorded
from pipeline.store.session import transaction

JOBS_LEAST = 50
"""Fewer tell nothing of a P95."""
JOBS_LIMIT = 5000
"""The newest so many are replayed: a few seconds of one core."""


@dataclass(frozen=True)
class Replayed:
    """Seconds from arrival to result under one policy."""

    policy: Policy
    p50_s: float
    p95_s: float
    p99_s: float
    max_s: float


@dataclass(frozen=True)
class Replay:
    """The same arrivals under several policies."""

    jobs: int
    hours: float
    """From the first arrival to the last."""
    slots: int
    """Of all workers."""
    speed: float
    """Reference slot seconds a second, through all of them."""
    policies: tuple[Replayed, ...]


def replay(
    store: Engine,
    queues: Mapping[str, RedisQueue],
    asked: Sequence[Policy],
    hours: float,
    language: str,
) -> Replay:
    """Replay what arrived in the last `hours` under each policy of `asked`.

    `language`: of a recording that named none. Raises `TooFewJobs` when too few were surveyed, or
    no engine is there whose speed is known, and `PartDown`.
    """
    engine = together((w.speed, w.slots) for w in queues[TRANSCRIBE.name].board.speeds())
    if engine is None:
        raise TooFewJobs("No engine has told its speed yet, so nothing can be foretold.")
    with transaction(store) as c:
        jobs = load.recorded(c, hours * 3600, JOBS_LIMIT)
    if len(jobs) < JOBS_LEAST:
        raise TooFewJobs(
            f"{len(jobs)} recordings of the last {hours:g} hours have been surveyed; fewer than "
            f"{JOBS_LEAST} foretell nothing."
        )
    arrivals = [_arrival(job, language, engine) for job in jobs]
    # workers of different sizes are taken for alike ones
    house = House(workers=engine.workers, slots=max(1, engine.slots // engine.workers))
    return Replay(
        len(jobs),
        (jobs[-1].arrival_ms - jobs[0].arrival_ms) / 3_600_000,
        engine.slots,
        engine.speed,
        tuple(_replayed(arrivals, policy, house) for policy in asked),
    )


def _arrival(job: Recorded, language: str, engine: Capacity) -> Arrival:
    work_s = predicted_work_s(job.speech_s, job.windows, job.language or language)
    unit_s = engine.residence_s(work_s / job.windows)
    return Arrival(job.job_id, job.arrival_ms, (unit_s,) * job.windows, work_s)


def _replayed(arrivals: Sequence[Arrival], policy: Policy, house: House) -> Replayed:
    took = sorted(outcome.response_s for outcome in simulate(arrivals, policy, house).outcomes)
    p50_s, p95_s, p99_s = (quantile(took, part) for part in (0.5, 0.95, 0.99))
    return Replayed(policy, p50_s, p95_s, p99_s, took[-1])
