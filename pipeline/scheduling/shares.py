"""One tenant's ten thousand recordings do not stand before another's ten.

Each tenant has a virtual clock. A job's arrival, as the queue counts it, is

    arrival = max(real arrival, the tenant's clock)        then    clock = arrival + work / share

so a tenant that submits no more than its share keeps pace with time and its jobs arrive when they
come; what it submits beyond that arrives later and later, as if it had been sent at the pace of its
share. Nothing stored changes when tenants come or go. (Virtual clock: L. Zhang, SIGCOMM 1990.)
"""

from __future__ import annotations

import math


def virtual_arrival(arrival_ms: int, clock_ms: int, work_s: float, share: float) -> tuple[int, int]:
    """(arrival the queue counts, the tenant's clock afterwards), ms of Postgres time.

    `work_s`: predicted work, reference slot seconds. `share`: reference slot seconds a second that
    the tenant may have, above 0; infinite: no limit, and the clock stands still.

    >>> virtual_arrival(1_000, 0, 2.0, 4.0)         # on time: half a second of its share is used
    (1000, 1500)
    >>> virtual_arrival(1_000, 1_500, 2.0, 4.0)     # at the same moment: it counts as later
    (1500, 2000)
    """
    if not share > 0:
        raise ValueError(f"a share is above 0, not {share}")
    counted_ms = max(arrival_ms, clock_ms)
    return counted_ms, counted_ms + math.ceil(1000 * work_s / share)
