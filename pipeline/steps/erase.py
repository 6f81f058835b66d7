"""erase: nothing of a job is kept, whatever its state.

First the job is cancelled, so that a worker loses its fence and writes nothing more; then its sound
goes, then its row with all that hangs on it, then its place in the queues. Cut short anywhere it
can be asked for again, for the row is there until the sound is gone.
"""

from __future__ import annotations

from sqlalchemy import Engine

from pipeline.crash_points import reach
from pipeline.errors import NoSuchJob
from pipeline.intake.storage import Storage
from pipeline.logs import log
from pipeline.queue.redis_queue import RedisQueue
from pipeline.store import jobs, partials
from pipeline.store.session import transaction


def erase(store: Engine, storage: Storage, queues: dict[str, RedisQueue], job_id: str) -> None:
    """Erase `job_id`. Raises `NoSuchJob`, and `PartDown`: then ask again.

    What a worker was writing to storage in this very moment it erases itself once it finds the
    fence gone; if it dies before that, `tidy` does.
    """
    with transaction(store) as c:
        jobs.cancel(c, job_id)
        row = jobs.recording_of(c, job_id)
        plan = partials.plan_of(c, job_id)
    if row is None:
        raise NoSuchJob
    storage.delete(row.storage_key)
    if plan is not None:
        storage.delete(plan[1])
    reach("erase_after_sound")
    with transaction(store) as c:
        jobs.erase(c, job_id)
    reach("erase_after_row")
    for queue in queues.values():
        queue.retract([job_id])
    log().info("erased", job_id=job_id)
