"""cancel: a job stops, whatever its state; one that has ended stays as it is.

The row in Postgres is the cancellation. A waiting job also leaves the queue at once; a running one
is noticed by its worker within half a second (workers/lease_keeper.py), and what it saves until
then the fence refuses.
"""

from __future__ import annotations

from sqlalchemy import Engine

from pipeline.caller import Caller
from pipeline.crash_points import reach
from pipeline.job import STAGES
from pipeline.queue.redis_queue import RedisQueue
from pipeline.store import batches, jobs
from pipeline.store.session import transaction

PAGE = 500
"""Jobs of a batch cancelled in one transaction."""


def cancel(store: Engine, queues: dict[str, RedisQueue], job_id: str) -> bool:
    """Cancel `job_id`. False when it had ended already, or never was. Raises `PartDown`."""
    with transaction(store) as c:
        before = jobs.cancel(c, job_id)
    reach("cancel_after_postgres")
    for stage in STAGES:
        if before is stage.waiting:
            queues[stage.name].retract([job_id])
    return before is not None


def cancel_batch(
    store: Engine, queues: dict[str, RedisQueue], batch_id: str, caller: Caller
) -> int:
    """Cancel all jobs of a batch, as it exists for `caller`, that have not ended; how many.

    Raises `PartDown`: then some of them may be cancelled, and asking again does the rest.
    """
    cancelled, after = 0, None
    while True:
        with transaction(store) as c:
            stopped, after = batches.cancel_page(c, batch_id, after, PAGE, caller)
        for queue in queues.values():
            queue.retract(stopped)
        cancelled += len(stopped)
        if after is None:
            return cancelled
