"""erase: nothing of a job is kept, whatever its state.

First the job is cancelled, so that a worker loses its fence and writes nothing more. Then a
tombstone is written to storage, `erased/<job id>`: from there on the job goes, whatever happens.
Then its sound goes, then its row with all that hangs on it, then its place in the queues. Cut short
anywhere it is done by `erase_again`, which every ten minutes, and after a restore, erases what has
a tombstone and is there nevertheless.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import Engine

from pipeline.caller import ANYONE, Caller
from pipeline.crash_points import reach
from pipeline.errors import NoSuchJob, RecordingMissing
from pipeline.intake.storage import TOMBSTONES, Storage
from pipeline.logs import log
from pipeline.queue.redis_queue import RedisQueue
from pipeline.store import erasures, jobs, retention
from pipeline.store.accesses import Action
from pipeline.store.erasures import Whose
from pipeline.store.retention import DAY_S, Keep
from pipeline.store.session import transaction

PAGE = 50
"""Jobs erased together."""

LOOKED_AT = 2_000
"""Jobs whose metadata is read in one question: some milliseconds."""

AT_ONCE = 1_000
"""Jobs one call of `erase_where` erases at most."""

ANSWERED_WITHIN_S = 7200.0
"""Longer than a request that was under way when its job was erased takes to be answered."""

Queues = dict[str, RedisQueue]


def erase(
    store: Engine,
    storage: Storage,
    queues: Queues,
    job_id: str,
    caller: Caller = ANYONE,
) -> None:
    """Erase `job_id`. Raises `NoSuchJob`, and `PartDown`: then ask again.

    What a worker was writing to storage in this very moment it erases itself once it finds the
    fence gone; if it dies before that, `tidy` does.
    """
    if not _erase(store, storage, queues, [job_id], caller):
        raise NoSuchJob


def erase_where(
    store: Engine, storage: Storage, queues: Queues, whose: Whose, at_once: int = AT_ONCE
) -> tuple[int, bool]:
    """Erase the jobs `whose` tells of, the oldest first: (how many, whether some may be left).

    Those that come while it runs are not its affair. Raises `PartDown`: ask again.
    """
    erased, after = 0, None
    while erased < at_once:
        with transaction(store) as c:
            found, after = erasures.page(c, whose, after, LOOKED_AT)
        for start in range(0, len(found), PAGE):
            erased += _erase(store, storage, queues, found[start : start + PAGE], whose.caller)
        if after is None:
            return erased, False
    return erased, True


def count_where(store: Engine, whose: Whose) -> int:
    """How many jobs `erase_where` would erase in all. Raises `PartDown`."""
    counted, after = 0, None
    while True:
        with transaction(store) as c:
            found, after = erasures.page(c, whose, after, LOOKED_AT)
        counted += len(found)
        if after is None:
            return counted


def erase_due(store: Engine, storage: Storage, queues: Queues, keep: Keep) -> int:
    """Erase jobs of which nothing is to be kept any longer; how many. Raises `PartDown`.

    Without tombstones: what a restore brings back of them is due again.
    """
    erased, since = 0, None
    while keep.jobs_days is not None:
        with transaction(store) as c:
            page = retention.jobs_page(c, keep.jobs_days, since, PAGE)
        erased += _erase(store, storage, queues, [old.job_id for old in page], None)
        if len(page) < PAGE:
            break
        since = page[-1].ended_at
    return erased


def erase_again(store: Engine, storage: Storage, queues: Queues, keep: Keep) -> int:
    """Erase what has a tombstone and is there nevertheless; how many. Raises `PartDown`.

    Cut short once, brought back by a restore, or made by a request that was under way. Tombstones
    are dropped when accesses are forgotten: no backup should be older.
    """
    erased, page = 0, PAGE * 10
    named = ((key.partition("/")[2], age_s) for key, age_s in storage.keys(TOMBSTONES))
    tombs = [(name, age_s) for name, age_s in named if _is_job_id(name)]
    for start in range(0, len(tombs), page):
        ids = [job_id for job_id, _ in tombs[start : start + page]]
        with transaction(store) as c:
            there = list(erasures.storage_keys(c, ids))
        for at in range(0, len(there), PAGE):
            erased += _erase(store, storage, queues, there[at : at + PAGE], None, Action.ERASED)
        # an answer may have been written down after its job was erased
        fresh = [i for i, age_s in tombs[start : start + page] if age_s < ANSWERED_WITHIN_S]
        if fresh:
            with transaction(store) as c:
                erasures.scrub(c, fresh)
    for job_id, age_s in tombs:
        if age_s > keep.accesses_days * DAY_S:
            storage.delete(f"{TOMBSTONES}/{job_id}")
    return erased


def is_erased(storage: Storage, job_id: str) -> bool:
    """Whether somebody had this job erased. Raises `PartDown`."""
    try:
        return storage.size(f"{TOMBSTONES}/{job_id}") > 0
    except RecordingMissing:
        return False


def _erase(
    store: Engine,
    storage: Storage,
    queues: Queues,
    job_ids: Sequence[str],
    caller: Caller | None,
    action: Action | None = None,
) -> int:
    """Erase those of these jobs that exist; how many. No caller: their days were over."""
    if not job_ids:
        return 0
    with transaction(store) as c:
        for job_id in sorted(job_ids):  # in the order in which everybody locks
            jobs.cancel(c, job_id)
        kept = erasures.storage_keys(c, job_ids)
    ids = sorted(kept)
    if not ids:
        return 0
    if caller is not None:
        for job_id in ids:
            _bury(storage, job_id)
    reach("erase_after_tombstone")
    for keys in kept.values():
        for key in keys:
            storage.delete(key)
    reach("erase_after_sound")
    with transaction(store) as c:
        erased = erasures.erase(
            c, ids, caller, action or (Action.ERASED if caller else Action.EXPIRED)
        )
    reach("erase_after_row")
    for queue in queues.values():
        queue.retract(ids)
    for job_id in ids:
        log().info("erased", job_id=job_id)
    return erased


def _is_job_id(name: str) -> bool:
    """Whether a file among the tombstones is one: whatever else lies there stops no erasure."""
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False


def _bury(storage: Storage, job_id: str) -> None:
    when = datetime.now(UTC).isoformat(timespec="seconds")
    if not is_erased(storage, job_id):  # it keeps the time of the first
        storage.put(f"{TOMBSTONES}/{job_id}", [f"{when}\n".encode()], 100)
