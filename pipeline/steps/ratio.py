"""ratio: the response ratios of those who go first, written up for people every few seconds.

The classic ratio is 1 + W/S, W the time waited and S the predicted work. No claim looks at it: a
claim computes ranks itself, for the moment it is made.
"""

from __future__ import annotations

from sqlalchemy import Engine

from pipeline.queue.redis_queue import RedisQueue
from pipeline.scheduling.policies import Policy, Waiting
from pipeline.scheduling.work import bucket_work_s
from pipeline.store.session import clock_ms, transaction

FIRST = 1000
"""Jobs of each stage whose ratio is computed."""


def write_ratios(store: Engine, queues: dict[str, RedisQueue], start_policy: Policy) -> None:
    """Write the ratios of the first waiting jobs of each stage, in the order they would be claimed.

    Raises `PartDown`.
    """
    with transaction(store) as c:
        now_ms = clock_ms(c)
    for queue in queues.values():
        first = queue.order.head(FIRST, queue.policy() or start_policy, now_ms)
        queue.board.write_ratios({job.job_id: ratio(job, now_ms) for job in first}, now_ms)


def ratio(job: Waiting, now_ms: int) -> float:
    """1 + W/S of a waiting job.

    >>> round(ratio(Waiting("a", 0, 0), 30), 1)          # 0.03 s waited for 0.01 s of work
    4.0
    """
    return 1 + max(0, now_ms - job.arrival_ms) / 1000 / bucket_work_s(job.bucket)
