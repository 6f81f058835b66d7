"""cancel: a job stops, whatever its state; one that has ended stays as it is.

The row in Postgres is the cancellation. A waiting job also leaves the queue at once; a running one
is noticed by its worker at the next window, whose save the fence refuses.
"""

from __future__ import annotations

from sqlalchemy import Engine

from pipeline.errors import PartDown
from pipeline.job import STAGES
from pipeline.logs import log
from pipeline.queue.redis_queue import RedisQueue
from pipeline.store import jobs
from pipeline.store.session import transaction


def cancel(store: Engine, queues: dict[str, RedisQueue], job_id: str) -> bool:
    """Cancel `job_id`. False when it had ended already, or never was. Raises `PartDown`."""
    with transaction(store) as c:
        before = jobs.cancel(c, job_id)
    for stage in STAGES:
        if before is stage.waiting:
            _withdraw(queues[stage.name], job_id)
    return before is not None


def _withdraw(queue: RedisQueue, job_id: str) -> None:
    try:
        queue.withdraw([job_id])
    except PartDown as down:
        # a ghost in the index: the next grant refuses it
        log().info("cancelled_ghost_left", job_id=job_id, why=down.message)
