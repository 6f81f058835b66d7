"""Jobs put straight into a state, and a puller run inside the test: for tests of load and order."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uuid_utils.compat as uuid_utils
from sqlalchemy import Connection, func, select, update

from pipeline.errors import LeaseLost
from pipeline.job import SURVEY, TRANSCRIBE, JobView, State, Ticket
from pipeline.parts import Parts
from pipeline.recording import SAMPLE_RATE_HZ, Piece, Plan, Probe, Window
from pipeline.scheduling.policies import Waiting
from pipeline.scheduling.work import bucket_of, predicted_work_s
from pipeline.store import jobs, partials, tables, views
from pipeline.store.partials import HeardWindow
from pipeline.store.session import transaction
from workers.app import make_app
from workers.echo_engine import EchoEngine
from workers.held import Work
from workers.puller import Puller
from workers.transcribe import TranscribeWork


def plan_of_windows(
    windows: int, window_s: float = 2.0, channels: tuple[str, ...] = ("mono",)
) -> Plan:
    """A plan of equal windows, back to back; its channels, one unless named, take turns."""
    count = int(window_s * SAMPLE_RATE_HZ)
    return Plan(
        duration_s=windows * window_s,
        speech_s=windows * window_s,
        channels=channels,
        channel_reason="one channel" if len(channels) == 1 else "each carries its own sound",
        windows=tuple(
            Window(i, i % len(channels), i * count, count, (Piece(0.0, i * window_s, window_s),))
            for i in range(windows)
        ),
    )


def received_job(parts: Parts, file_name: str = "call.wav") -> str:
    """A job just accepted; its file is not in storage."""
    job_id = str(uuid_utils.uuid7())
    row = {
        "file_name": file_name,
        "storage_key": f"recordings/{job_id}",
        "size_bytes": 1,
        "sha256": "0" * 64,
    }
    with transaction(parts.store) as c:
        jobs.add_job(c, job_id, row)
    return job_id


def surveyed_job(
    parts: Parts,
    windows: int = 1,
    window_s: float = 2.0,
    waited_s: float = 0.0,
    queue: bool = True,
    *,
    channels: tuple[str, ...] = ("mono",),
    hollow: bool = False,
) -> str:
    """A job that waits for an engine, with its packed speech in storage.

    `hollow`: a file of the right size that takes no room, for many long jobs.
    """
    job_id = received_job(parts)
    plan = plan_of_windows(windows, window_s, channels)
    probe = Probe(plan.duration_s, "header", False, "wav", "pcm_s16le", 8000, 1)
    key = f"packed/{job_id}-1"
    size_bytes = windows * int(window_s * SAMPLE_RATE_HZ) * 2
    parts.storage.put(key, [uuid.uuid4().bytes * (1 if hollow else -(-size_bytes // 16))], 10**9)
    os.truncate(parts.settings.home / "storage" / key, size_bytes)
    bucket = bucket_of(predicted_work_s(plan.speech_s, windows, "en"))
    with transaction(parts.store) as c:
        jobs.keep_probe(c, job_id, probe, bucket)
        (ticket,) = jobs.grant(c, SURVEY, [job_id], "test", None)
        place = jobs.keep_survey(c, ticket, plan, bucket)
        assert place is not None
        arrival_ms = place.arrival_ms - int(waited_s * 1000)
        partials.keep_plan(c, job_id, plan, key)
        c.execute(
            update(tables.jobs)
            .where(tables.jobs.c.id == uuid.UUID(job_id))
            .values(attempt=0, survey_attempts=0, arrival_ms=arrival_ms)
        )
    if queue:
        parts.queues[TRANSCRIBE.name].enqueue([Waiting(job_id, bucket, arrival_ms)])
    return job_id


def states(parts: Parts) -> dict[State, int]:
    """How many jobs stand where; states nobody is in are left out."""
    column = tables.jobs.c.state
    with transaction(parts.store) as c:
        rows = c.execute(select(column, func.count()).group_by(column)).all()
    return {State(state): count for state, count in rows}


def view(parts: Parts, job_id: str) -> JobView:
    """The job as people see it."""
    with transaction(parts.store) as c:
        found = views.view(c, job_id)
    assert found is not None
    return found


def set_to(parts: Parts, **values: float) -> None:
    """Change settings before a puller reads them."""
    object.__setattr__(parts, "settings", parts.settings.model_copy(update=values))
    for queue in parts.queues.values():
        queue.lease_ms = int(parts.settings.lease_s * 1000)


def save_window(c: Connection, ticket: Ticket, index: int, heard: dict[str, Any]) -> None:
    """Save one window, as a worker saves several. Raises `LeaseLost` where that names the job."""
    if partials.save_windows(c, [HeardWindow(ticket, index, heard)]):
        raise LeaseLost


def eventually(truth: Callable[[], Any], within_s: float = 20.0, what: str = "") -> Any:
    """Wait until `truth()` holds and return it; fail after `within_s` seconds."""
    end_s = time.monotonic() + within_s
    while True:
        if value := truth():
            return value
        if time.monotonic() > end_s:
            raise AssertionError(f"not within {within_s} s: {what or truth}")
        time.sleep(0.02)


@contextmanager
def pulling(
    parts: Parts, engine: EchoEngine | None = None, work: Work | None = None, name: str = "t@here"
) -> Iterator[Puller]:
    """A transcribe puller on a thread of this process; drained at the end."""
    work = work or TranscribeWork(parts, engine or EchoEngine(slots=4, fixed_s=0.0))
    puller = Puller(make_app(parts.settings), name, work, parts)
    puller.start()
    try:
        yield puller
    finally:
        eventually(lambda: puller._pulling is not None or puller.ended.is_set(), 5)
        puller.drain()
        puller.stop(10.0)
