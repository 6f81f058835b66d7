"""adapt: where `auto` decides, look at the backlog and move the order of work.

An errand of every few seconds in every errands worker, one of them at a time. It looks at both
queues and the speed of the engines, lets scheduling/adaptive.py decide, and writes the move down
before it tells Redis. Nothing is moved while no engine's speed is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sqlalchemy import Engine

from pipeline.job import STAGES, SURVEY, TRANSCRIBE, Stage
from pipeline.logs import log
from pipeline.queue.redis_queue import RedisQueue
from pipeline.scheduling.adaptive import Mode, Move, Signals, decide, pressure
from pipeline.scheduling.forecast import Amount, Capacity, service_s, together
from pipeline.scheduling.policies import Policy
from pipeline.scheduling.work import bucket_survey_s, bucket_windows, bucket_work_s
from pipeline.store import policies
from pipeline.store.policies import PolicyRow
from pipeline.store.session import clock_ms, transaction
from pipeline.store.wishes import Wishing, wishing

LOOK_AT, SAMPLE = 10_000, 100
"""Jobs with a wish that are counted, and of which it is asked whether they would be late."""


def adapt(
    store: Engine, queues: Mapping[str, RedisQueue], start: Policy, start_mode: Mode
) -> Move | None:
    """Move the order of work if `auto` is on and the backlog calls for it; the move, or None.

    `start` and `start_mode` hold while nobody ever decided. Raises `PartDown`; ask again at the
    next beat: if Redis went away after a move was written down, the reconciler tells it.
    """
    with transaction(store) as c:
        last = policies.newest(c)
    if (last.mode if last else start_mode) is not Mode.AUTO:
        return None
    in_force = last.policy if last else start
    signals = look(store, queues, in_force)
    move = decide(signals, in_force, last.age_s if last else math.inf) if signals else None
    if move is None:
        return None
    with transaction(store) as c:
        if not policies.take_turn(c) or _id(policies.newest(c)) != _id(last):
            return None  # somebody decided meanwhile
        policies.change_policy(c, move.policy, move.reason, Mode.AUTO)
    for queue in queues.values():
        queue.set_policy(move.policy)
    log().info("policy_moved", policy=str(move.policy), why=move.reason)
    return move


def _id(row: PolicyRow | None) -> int | None:
    return row.id if row else None


def look(store: Engine, queues: Mapping[str, RedisQueue], in_force: Policy) -> Signals | None:
    """The signals of this moment; None while no engine's speed is known. Raises `PartDown`.

    Of both stages the one with the larger pressure: a backlog of unsurveyed recordings waits, too.
    """
    engine = _capacity(queues, TRANSCRIBE)
    if engine is None:
        return None
    sizes = {name: queue.order.by_bucket() for name, queue in queues.items()}
    every = [size for counts in sizes.values() for size in counts.items()]
    late = _late(store, queues, in_force, engine, every)
    found = [_signals(engine, every, late)]
    surveyors = _capacity(queues, SURVEY)
    if surveyors is not None:
        work = sum(bucket_survey_s(bucket) * jobs for bucket, jobs in sizes[SURVEY.name].items())
        jobs = max(1, sum(sizes[SURVEY.name].values()))
        round_s = surveyors.residence_s(max(bucket_survey_s(0), work / jobs))
        found.append(Signals(work / surveyors.speed, round_s, *late))
    return max(found, key=pressure)


def _signals(
    engine: Capacity, sizes: Sequence[tuple[int, int]], late: tuple[float, float]
) -> Signals:
    work = sum(bucket_work_s(bucket) * jobs for bucket, jobs in sizes)
    units = sum(bucket_windows(bucket) * jobs for bucket, jobs in sizes)
    round_s = engine.residence_s(work / units if units else bucket_work_s(0))
    return Signals(work / engine.speed, round_s, *late)


def _capacity(queues: Mapping[str, RedisQueue], stage: Stage) -> Capacity | None:
    return together((w.speed, w.slots) for w in queues[stage.name].board.speeds())


# -- who would be late ----------------------------------------------------------------------


def _late(
    store: Engine,
    queues: Mapping[str, RedisQueue],
    in_force: Policy,
    engine: Capacity,
    sizes: Sequence[tuple[int, int]],
) -> tuple[float, float]:
    """Shares of all waiting jobs that would be late as things stand: (short ones, long ones).

    Found by a sample: where more than LOOK_AT have a wish, the shares are of those looked at and
    come out too small.
    """
    with transaction(store) as c:
        sample, looked_at = wishing(c, LOOK_AT, SAMPLE)
        now_ms = clock_ms(c)
    waiting = max(looked_at, sum(jobs for _, jobs in sizes))
    if not sample:
        return 0.0, 0.0
    mean = sum(bucket_work_s(bucket) * jobs for bucket, jobs in sizes) / waiting
    turns_s = _turns_s(queues, in_force, engine, sample, now_ms)
    short = long = 0
    for job, turn_s in zip(sample, turns_s, strict=True):
        if _would_be_late(job, turn_s, engine, now_ms):
            is_long = bucket_work_s(job.place.bucket) > mean
            long, short = long + is_long, short + (not is_long)
    part = looked_at / waiting / len(sample)
    return short * part, long * part


def _turns_s(
    queues: Mapping[str, RedisQueue],
    in_force: Policy,
    engine: Capacity,
    sample: Sequence[Wishing],
    now_ms: int,
) -> list[float]:
    """Seconds until each one's first slot: what goes before it in both lines, over the speed."""
    places = [job.place for job in sample]
    lines = [queues[stage.name].order.ahead(places, in_force, now_ms) for stage in STAGES]
    return [
        sum(
            bucket_work_s(bucket) * jobs
            for line in lines
            for bucket, jobs in line[n].by_bucket.items()
        )
        / engine.speed
        for n in range(len(places))
    ]


def _would_be_late(job: Wishing, turn_s: float, engine: Capacity, now_ms: int) -> bool:
    bucket = job.place.bucket
    own = Amount(bucket_work_s(bucket), bucket_windows(bucket))
    starts_ms = now_ms + 1000 * turn_s
    ends_ms = starts_ms + 1000 * service_s(engine, own, 0)
    return starts_ms > job.start_by_ms or ends_ms > job.end_by_ms
