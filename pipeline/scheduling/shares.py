"""One tenant's ten thousand recordings do not stand before another's ten.

Each tenant has a virtual clock. A job's arrival, as the queue counts it, is

    arrival = max(real arrival, the tenant's clock)        then    clock = arrival + work / share

so a tenant that submits no more than its share keeps pace with time and its jobs arrive when they
come; what it submits beyond that arrives later and later, as if it had been sent at the pace of its
share. Nothing stored changes when tenants come or go. (Virtual clock: L. Zhang, SIGCOMM 1990.)

Two additions, both for a tenant that is alone (what was tried: docs/decisions.md, entry 77): its
clock is never further ahead than what it has left takes (`caught_up`), and only beyond AHEAD_S do
arrivals count as later. One that sends no more than can be served is ordered by the policy alone.
"""

from __future__ import annotations

import math

AHEAD_S = 20.0
"""Work of a tenant that may wait before its arrivals count as later, in seconds of the whole house.
At a load of 0.95 a house of 32 slots has less than that waiting, nearly always."""

ROOM = 3
"""Shares kept free for tenants who may come: what was dated before cannot be dated again."""


def virtual_arrival(
    arrival_ms: int, clock_ms: int, work_s: float, share: float, ahead_ms: int = 0
) -> tuple[int, int]:
    """(arrival the queue counts, the tenant's clock afterwards), ms of Postgres time.

    `work_s`: predicted work, reference slot seconds. `share`: reference slot seconds a second that
    the tenant may have, above 0; infinite: no limit, and the clock stands still. `ahead_ms`: so far
    ahead of time the clock may be before an arrival counts as later.

    >>> virtual_arrival(1_000, 0, 2.0, 4.0)         # on time: half a second of its share is used
    (1000, 1500)
    >>> virtual_arrival(1_000, 1_500, 2.0, 4.0)     # at the same moment: it counts as later
    (1500, 2000)
    """
    if not share > 0:
        raise ValueError(f"a share is above 0, not {share}")
    begins_ms = max(arrival_ms, clock_ms)
    return max(arrival_ms, clock_ms - ahead_ms), begins_ms + math.ceil(1000 * work_s / share)


def caught_up(clock_ms: int, now_ms: int, left_s: float, share: float) -> int:
    """The clock of a tenant of whose work `left_s` has not ended: no further ahead than that takes
    at its share.

    Who used more than its share while nobody else wanted it owes nothing for that later.

    >>> caught_up(90_000, 10_000, 8.0, 4.0)         # two seconds of work are left, not eighty
    12000
    """
    return min(clock_ms, now_ms + math.ceil(1000 * left_s / share))


def equal_share(capacity: float, tenants: int) -> float:
    """What each of `tenants` with work left may have of `capacity`, if it has no share of its own.

    >>> equal_share(20.0, 1), equal_share(20.0, 2)
    (5.0, 4.0)
    """
    return capacity / (max(1, tenants) + ROOM)


def ahead_ms(capacity: float, share: float) -> int:
    """How far ahead a clock may be before arrivals count as later: AHEAD_S of the whole house, on a
    clock that goes by `share`.
    """
    return round(1000 * AHEAD_S * capacity / share)
