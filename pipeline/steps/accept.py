"""accept: a file is streamed to storage, hashed, and becomes one row in Postgres; so does a URL.

Once `accept` returns, the job is durable: nothing else is needed to finish it. A file that can
never become a transcript (empty, too large) becomes a failed job with its reason, so that every
file of a submission is accounted for. What a URL leads to is fetched later (steps/fetch.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import uuid4

import uuid_utils.compat as uuid_utils
from sqlalchemy import Engine

from pipeline.crash_points import reach
from pipeline.errors import Erased, PartDown, RecordingRefused
from pipeline.fetch.urls import name_in_url
from pipeline.handover import Handover
from pipeline.intake.storage import Storage
from pipeline.logs import log
from pipeline.store import jobs
from pipeline.store.session import transaction

UNNAMED = "unnamed"
"""What a recording is called whose sender gave it no name."""

FETCHES_ASKED = 64
"""Messages for the URLs of one submission: a fetch that ends asks for the next that waits."""


@dataclass(frozen=True)
class Upload:
    """One file of a submission and what its sender says of it."""

    file_name: str
    chunks: Iterable[bytes]
    batch_id: str | None = None
    language: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    duration_hint_s: float | None = None
    """How long it lasts, as its sender says: believed until it is probed, and for show only."""
    deadline: datetime | None = None
    """Wanted by then."""
    wait_budget_s: float | None = None
    """How long it may wait for an engine."""
    tenant: str | None = None
    """Whose it is; None where keys are off."""


@dataclass(frozen=True)
class Accepted:
    """The job a file or URL became."""

    job_id: str
    refused: RecordingRefused | Erased | None = None
    """Why it failed at once, or is gone; None when it is on its way."""
    to_fetch: bool = False
    """It is not here yet, only its URL is."""


class CommitUnheard(PartDown):
    """Postgres does not answer; whether the job was committed is not known."""


def new_job_id() -> str:
    """An id for a job: ids grow with time."""
    return str(uuid_utils.uuid7())


def accept(
    store: Engine,
    storage: Storage,
    upload: Upload,
    limit_bytes: int,
    job_id: str | None = None,
    *,
    again: bool = False,
) -> Accepted:
    """Store the file, commit its job. Ask for the probe with `hand_over` once all are accepted.

    With `again` and a `job_id` chosen beforehand another run of the same may have been cut off, or
    be under way: the job is made once, each run stores under a key of its own, and the one that
    came too late erases its file.

    Raises `PartDown` when storage or Postgres does not answer: then there is no job as far as can
    be known, and the sender may send again.
    """
    job_id = job_id or new_job_id()
    key = f"recordings/{job_id}" + (f"-{uuid4().hex[:8]}" if again else "")
    try:
        size_bytes, sha256 = storage.put(key, upload.chunks, limit_bytes)
    except RecordingRefused as refused:
        _commit(store, job_id, upload, key, 0, "", refused)
        return Accepted(job_id, refused)
    reach("accept_after_store")
    try:
        ours = _commit(store, job_id, upload, key, size_bytes, sha256, None)
    except CommitUnheard:
        there = _key_of(store, job_id)
        if there is None:
            storage.delete(key)
            raise
        ours = there == key
    except BaseException:
        storage.delete(key)
        raise
    if not ours:
        storage.delete(key)
    return Accepted(job_id)


def accept_urls(store: Engine, urls: Mapping[str, str], said: Mapping[str, Any]) -> list[Accepted]:
    """A job for each {job id: checked URL}, in one transaction; those that are there stay.

    `said` holds what `Upload` calls tenant, batch_id, language, metadata, options, duration_hint_s,
    deadline and wait_budget_s. Raises `PartDown`: whether they were made is then not known.
    """
    rows = {
        job_id: {
            **said,
            "file_name": name_in_url(url) or UNNAMED,
            "source_url": url,
            "storage_key": f"recordings/{job_id}",
            "size_bytes": 0,
            "sha256": "",
            "index_pending": True,  # nobody fetches it yet: see store/fetches.py
        }
        for job_id, url in urls.items()
    }
    with transaction(store) as c:
        jobs.add_jobs(c, rows)
    return [Accepted(job_id, to_fetch=True) for job_id in urls]


def hand_over(handover: Handover, accepted: Iterable[Accepted], sender: str | None = None) -> None:
    """Ask for what comes next, probe or fetch; a lost request is repeated by the sweeper.

    `sender`: the tenant or else the batch; whoever sends many goes behind.
    """
    going = [a for a in accepted if a.refused is None]
    reach("accept_after_row")
    try:
        handover.probe([a.job_id for a in going if not a.to_fetch], sender)
        handover.fetch([a.job_id for a in going if a.to_fetch][:FETCHES_ASKED])
    except PartDown as down:
        log().warning("errands_not_asked_for", jobs=len(going), why=down.message)


def _key_of(store: Engine, job_id: str) -> str | None:
    """Where the recording of a job lies whose commit was not heard of; None when there is no job.

    Raises `PartDown`: then the file stays, and `tidy` erases it later if nobody needs it.
    """
    with transaction(store) as c:
        row = jobs.recording_of(c, job_id)
    return None if row is None else str(row.storage_key)


def _commit(
    store: Engine,
    job_id: str,
    upload: Upload,
    key: str,
    size_bytes: int,
    sha256: str,
    refused: RecordingRefused | None,
) -> bool:
    """False when the job was there already: another run of this request made it."""
    row = {
        "batch_id": upload.batch_id,
        "file_name": upload.file_name,
        "metadata": upload.metadata,
        "options": upload.options,
        "language": upload.language,
        "duration_hint_s": upload.duration_hint_s,
        "deadline": upload.deadline,
        "wait_budget_s": upload.wait_budget_s,
        "tenant": upload.tenant,
        "storage_key": key,
        "size_bytes": size_bytes,
        "sha256": sha256,
    }
    written = False
    try:
        with transaction(store) as c:
            added = jobs.add_job(c, job_id, row)
            if refused is not None and added:
                jobs.fail(c, job_id, refused.code, refused.message)
            written = True
    except PartDown as down:
        raise CommitUnheard(down.message) if written else down from down
    return added
