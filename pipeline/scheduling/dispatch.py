"""Who gets the next slot: the highest rank, and now and then whoever has waited too long.

    next = the oldest overdue job        while there is credit for it and somebody is overdue
           the job of the highest rank   else (see policies.py)

A job is overdue when it has waited `max_wait_ms` or longer. Promoting every overdue job at once
would turn a large backlog into fcfs, so promotions have a budget: each unit that starts by rank
earns SHARE of a promotion, one that starts by promotion spends a whole one. Among any n units in a
row at most SHARE * n + 1 are promoted, whatever the number of slots.

The claim in Redis, the choice among jobs in hand and the simulator follow this one rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipeline.scheduling.policies import Waiting, order_key

SHARE = 0.1
"""At most this part of the units goes to jobs that are first by age and not by rank."""


def pick(
    waiting: Iterable[Waiting],
    table: Sequence[tuple[float, float]],
    now_ms: int,
    overdue_ms: int | None = None,
) -> Waiting | None:
    """Who of `waiting` is next at `now_ms`; None when nobody waits.

    `table`: the pairs of the policy. `overdue_ms`: who arrived at this moment or before is overdue
    and goes first, the oldest before all; None: there is no credit for that, or no limit.

    >>> from pipeline.scheduling.policies import Policy, pairs
    >>> long, short = Waiting("long", 90, 0), Waiting("short", 40, 5000)
    >>> sjf = pairs(Policy("sjf"))
    >>> pick([long, short], sjf, 9000).job_id, pick([long, short], sjf, 9000, 1000).job_id
    ('short', 'long')
    """
    jobs = list(waiting)
    if overdue_ms is not None:
        late = [job for job in jobs if job.arrival_ms <= overdue_ms]
        if late:
            return min(late, key=age_key)
    return min(jobs, key=lambda job: order_key(job, table, now_ms), default=None)


def age_key(job: Waiting) -> tuple[int, int, str]:
    """Sort key of overdue jobs: the oldest first, then the smaller, then the smaller id."""
    return job.arrival_ms, job.bucket, job.job_id


class Credit:
    """How many promotions are paid for. Starts with one, and never saves up more than one."""

    def __init__(self) -> None:
        # in units, not in shares of one: ten times 0.1 is a little less than 1.0
        self._price = round(1 / SHARE)
        self._earned = self._price

    def __bool__(self) -> bool:
        return self._earned >= self._price

    def spend(self) -> None:
        """A unit starts that is not first by rank."""
        self._earned -= self._price

    def earn(self) -> None:
        """A unit starts by rank."""
        self._earned = min(self._price, self._earned + 1)
