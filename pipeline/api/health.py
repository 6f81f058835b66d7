"""Is it alive, and can it work: for whoever starts, watches or balances this process."""

from __future__ import annotations

from fastapi import APIRouter

from pipeline.api.bodies import Health
from pipeline.api.described import problems
from pipeline.api.given import GivenParts
from pipeline.errors import PartDown
from pipeline.store.schema import check_migrated
from pipeline.store.session import clock_ms, transaction

router = APIRouter(tags=["health"])


@router.get("/v1/health", summary="Is it alive?", responses=problems(needs_key=False))
async def alive() -> Health:
    """Always 200 while this process answers, whatever else is down."""
    return Health()


@router.get(
    "/v1/health/ready",
    summary="Can it work?",
    responses=problems(PartDown, needs_key=False),
)
def ready(parts: GivenParts) -> Health:
    """200 when Postgres, with our tables, and Redis answer; otherwise 503 and what is amiss."""
    with transaction(parts.store) as c:
        clock_ms(c)
        check_migrated(c)
    for queue in parts.queues.values():
        queue.time_ms()
    return Health()
