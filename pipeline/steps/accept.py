"""accept: a file is streamed to storage, hashed, and becomes one row in Postgres.

Once `accept` returns, the job is durable: nothing else is needed to finish it. A file that can
never become a transcript (empty, too large) becomes a failed job with its reason, so that every
file of a submission is accounted for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import uuid_utils.compat as uuid_utils
from sqlalchemy import Engine

from pipeline.errors import PartDown, RecordingRefused
from pipeline.handover import Handover
from pipeline.intake.storage import Storage
from pipeline.logs import log
from pipeline.store import jobs
from pipeline.store.session import transaction


@dataclass(frozen=True)
class Upload:
    """One file of a submission and what its sender says of it."""

    file_name: str
    chunks: Iterable[bytes]
    batch_id: str | None = None
    language: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Accepted:
    """The job a file became."""

    job_id: str
    refused: RecordingRefused | None = None
    """Why it failed at once; None when it is on its way."""


class CommitUnheard(PartDown):
    """Postgres does not answer; whether the job was committed is not known."""


def accept(store: Engine, storage: Storage, upload: Upload, limit_bytes: int) -> Accepted:
    """Store the file, commit its job. Ask for the probe with `hand_over` once all are accepted.

    Raises `PartDown` when storage or Postgres does not answer: then there is no job as far as can
    be known, and the sender may send again.
    """
    job_id = str(uuid_utils.uuid7())
    key = f"recordings/{job_id}"
    try:
        size_bytes, sha256 = storage.put(key, upload.chunks, limit_bytes)
    except RecordingRefused as refused:
        _commit(store, job_id, upload, key, 0, "", refused)
        return Accepted(job_id, refused)
    try:
        _commit(store, job_id, upload, key, size_bytes, sha256, None)
    except CommitUnheard:
        if not _is_there(store, job_id):
            storage.delete(key)
            raise
    except BaseException:
        storage.delete(key)
        raise
    return Accepted(job_id)


def _is_there(store: Engine, job_id: str) -> bool:
    """Whether a commit went through whose answer was lost. Raises `PartDown`: then the recording
    stays, and `tidy` erases it later if nobody needs it.
    """
    with transaction(store) as c:
        return jobs.recording_of(c, job_id) is not None


def hand_over(handover: Handover, accepted: Iterable[Accepted]) -> None:
    """Ask for the accepted recordings to be probed; a lost request is repeated by the sweeper."""
    job_ids = [a.job_id for a in accepted if a.refused is None]
    try:
        handover.probe(job_ids)
    except PartDown as down:
        log().warning("probes_not_asked_for", jobs=len(job_ids), why=down.message)


def _commit(
    store: Engine,
    job_id: str,
    upload: Upload,
    key: str,
    size_bytes: int,
    sha256: str,
    refused: RecordingRefused | None,
) -> None:
    row = {
        "batch_id": upload.batch_id,
        "file_name": upload.file_name,
        "metadata": upload.metadata,
        "options": upload.options,
        "language": upload.language,
        "storage_key": key,
        "size_bytes": size_bytes,
        "sha256": sha256,
    }
    written = False
    try:
        with transaction(store) as c:
            jobs.add_job(c, job_id, row)
            if refused is not None:
                jobs.fail(c, job_id, refused.code, refused.message)
            written = True
    except PartDown as down:
        raise CommitUnheard(down.message) if written else down from down
