"""One caller cannot drown the others: each request costs its key one token.

A long poll or a stream of events costs one as well, however long it lasts. Where keys are off there
is no limit: it would be everybody's together.
"""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool

from pipeline.caller import Caller
from pipeline.errors import TooManyRequests
from pipeline.parts import Parts
from pipeline.queue.rates import Rate
from pipeline.settings import Settings


async def within_rate(caller: Caller, parts: Parts) -> None:
    """Count a request against its caller's key.

    Raises `TooManyRequests`: after the time it says one request passes.
    """
    if caller.key_id is None:
        return
    rate = rate_of(caller, parts.settings)
    if rate.per_s <= 0:
        return
    wait_s = await run_in_threadpool(parts.rates.wait_s, caller.key_id, rate)
    if wait_s > 0:
        raise TooManyRequests(wait_s)


def rate_of(caller: Caller, settings: Settings) -> Rate:
    """What its key says, else what the settings say."""
    per_s, burst = caller.rate_per_s, caller.rate_burst
    return Rate(
        settings.rate_per_s if per_s is None else per_s,
        settings.rate_burst if burst is None else burst,
    )
