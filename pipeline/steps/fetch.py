"""fetch: a recording that was named by its URL is fetched into storage, and then probed.

Runs as a Celery task. Safe to run twice, also at the same time: each run stores under a key of its
own, and the row in Postgres says whose counts. What went wrong and may go better later is tried
again, more and more patiently, then the job fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

from sqlalchemy import Engine

from pipeline.clock import SystemClock
from pipeline.crash_points import reach
from pipeline.errors import FetchInterrupted, JobFailed, LeaseLost, PartDown, RecordingRefused
from pipeline.fetch.fetcher import Fetcher
from pipeline.handover import Handover
from pipeline.intake.storage import Storage
from pipeline.logs import log
from pipeline.store import fetches, jobs
from pipeline.store.session import transaction

BEAT_S = 5.0
"""How often a fetch says that it goes on, and asks whether anybody still waits for it."""

PAUSES_S = (2.0, 8.0, 20.0)
"""Before it is tried again; with the last one used up the job fails. Shorter than what makes the
sweeper think a fetch was forgotten."""


def fetch(
    store: Engine,
    storage: Storage,
    fetcher: Fetcher,
    handover: Handover,
    job_id: str,
    *,
    limit_bytes: int,
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Fetch one job's recording and ask for its probe, or fail the job with the reason.

    Raises `PartDown` when Postgres or storage does not answer; run it again later.
    """
    with transaction(store) as c:
        row = fetches.begin(c, job_id)
    if row is None:
        return
    key = f"recordings/{job_id}-{uuid4().hex[:8]}"
    try:
        with fetcher.open(row.source_url, limit_bytes, stopping) as found:
            chunks = _beating(store, job_id, row.attempt, found.chunks)
            size, sha256 = storage.put(key, chunks, limit_bytes)
        reach("fetch_after_store")
        stored = {"key": key, "size": size, "sha256": sha256}
        _keep(store, storage, job_id, row.attempt, stored, found.file_name or row.file_name)
    except LeaseLost:
        with transaction(store) as c:
            fetches.wait(c, job_id)
    except FetchInterrupted as broke:
        _again(store, handover, job_id, row.attempt, broke)
    except (RecordingRefused, JobFailed) as refused:
        _fail(store, job_id, row.attempt, refused)
    else:
        reach("fetch_after_row")
        _ask(handover.probe, [job_id])


def give_way(store: Engine, job_id: str) -> None:
    """Nobody is free to fetch `job_id`: whoever ends a fetch goes on with it."""
    with transaction(store) as c:
        fetches.wait(c, job_id)


def ask_for_next(store: Engine, handover: Handover) -> None:
    """A fetch ended: ask for the oldest that waits."""
    with transaction(store) as c:
        waiting = fetches.take_waiting(c)
    if waiting is not None:
        _ask(handover.fetch, [waiting])


def _beating(store: Engine, job_id: str, attempt: int, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The chunks, with a sign of life in between. Raises `LeaseLost` once nobody waits for them."""
    clock = SystemClock()
    last_s = clock.monotonic_s()
    for chunk in chunks:
        yield chunk
        if clock.monotonic_s() - last_s > BEAT_S:
            last_s = clock.monotonic_s()
            with transaction(store) as c:
                if not fetches.beat(c, job_id, attempt):
                    raise LeaseLost


def _keep(
    store: Engine, storage: Storage, job_id: str, attempt: int, stored: dict[str, Any], name: str
) -> None:
    """Commit what is stored; what is not wanted any more is erased."""
    try:
        with transaction(store) as c:
            kept = fetches.keep(c, job_id, attempt, **stored, name=name)
    except PartDown:
        # whether it was committed is not known: if not, `tidy` erases the file later
        log().warning("fetch_commit_unheard", job_id=job_id)
        raise
    if not kept:
        storage.delete(stored["key"])
        raise LeaseLost


def _again(
    store: Engine, handover: Handover, job_id: str, attempt: int, broke: FetchInterrupted
) -> None:
    with transaction(store) as c:
        failures = fetches.count_failure(c, job_id, attempt)
    if failures is None:
        return
    log().info("fetch_interrupted", job_id=job_id, failures=failures, why=broke.message)
    if failures > len(PAUSES_S):
        _fail(store, job_id, attempt, broke)
    else:
        _ask(handover.fetch, [job_id], PAUSES_S[failures - 1])


def _fail(store: Engine, job_id: str, attempt: int, refused: RecordingRefused | JobFailed) -> None:
    with transaction(store) as c:
        jobs.fail(c, job_id, refused.code, refused.message, attempt)
    log().info("fetch_failed", job_id=job_id, code=refused.code)


def _ask(errand: Callable[..., None], *arguments: Any) -> None:
    # a message is a hint: the sweeper repeats one that could not be sent
    with suppress(PartDown):
        errand(*arguments)
