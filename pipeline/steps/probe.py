"""probe: what is the recording, how long is it, and so where does it stand in the queue.

Runs as a Celery task. Safe to run twice: only a job still in `received` moves.
"""

from __future__ import annotations

import os

from sqlalchemy import Engine

from pipeline.crash_points import reach
from pipeline.errors import JobFailed, RecordingRefused
from pipeline.intake.prober import Prober
from pipeline.intake.storage import Storage
from pipeline.job import State
from pipeline.logs import log
from pipeline.queue.redis_queue import RedisQueue
from pipeline.recording import Probe
from pipeline.scheduling.work import bucket_of, predicted_work_s
from pipeline.store import jobs
from pipeline.store.session import transaction
from pipeline.store.tenants import Clocks


def probe(
    store: Engine,
    storage: Storage,
    prober: Prober,
    survey_queue: RedisQueue,
    job_id: str,
    default_language: str,
    clocks: Clocks | None = None,
) -> None:
    """Probe one job and let it wait for its survey, or fail it with the reason.

    `clocks` tells when a tenant's job counts as arrived; None: when it did. Raises `PartDown` when
    Postgres or storage does not answer; run it again later.
    """
    with transaction(store) as c:
        row = jobs.recording_of(c, job_id)
    if row is None or State(row.state) is not State.RECEIVED:
        return
    if row.source_url is not None and not row.sha256:
        return  # not fetched yet, or to be fetched again
    try:
        raw_format = row.options.get("raw_format", "")
        found = _look(storage, prober, row.storage_key, row.file_name, raw_format)
    except (RecordingRefused, JobFailed) as refused:
        with transaction(store) as c:
            jobs.fail(c, job_id, refused.code, refused.message)
        log().info("probe_refused", job_id=job_id, code=refused.code)
        return
    # until the survey has found the speech, all of it counts as speech
    work_s = predicted_work_s(found.duration_s, None, row.language or default_language)
    reach("probe_before_keep")
    with transaction(store) as c:
        counted_ms = None
        if clocks is not None and row.tenant is not None:
            counted_ms = clocks.count(c, row.tenant, row.arrival_ms, work_s)
        place = jobs.keep_probe(c, job_id, found, bucket_of(work_s), counted_ms)
    reach("probe_after_keep")
    if place is not None:
        survey_queue.offer(place)


def _look(storage: Storage, prober: Prober, key: str, file_name: str, raw_format: str) -> Probe:
    fd = storage.open_fd(key)
    try:
        return prober.probe(fd, file_name, raw_format)
    finally:
        os.close(fd)
