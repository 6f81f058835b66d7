"""retry: a job that failed or was cancelled begins again, as if it had just come.

It goes the whole way: the recording is probed and surveyed anew, because what stopped it may have
lain there, and fetched anew when it never came or is gone. Windows heard before count again where
the new plan is the old one and the recording was not fetched again. The attempt moves on, so
whoever still works on the old one writes nothing.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine

from pipeline.crash_points import reach
from pipeline.errors import NoSuchJob, NotRetryable, PartDown, RecordingMissing
from pipeline.handover import Handover
from pipeline.intake.storage import Storage
from pipeline.job import MOVES, State, public_status
from pipeline.logs import log
from pipeline.store import jobs, partials
from pipeline.store.session import transaction


def retry(store: Engine, storage: Storage, handover: Handover, job_id: str) -> None:
    """Begin `job_id` again.

    Raises `NoSuchJob`; `NotRetryable` when it has not ended so, or there is no recording to begin
    with; `PartDown`.
    """
    with transaction(store) as c:
        row = jobs.recording_of(c, job_id)
    fetch = _must_be_fetched(storage, row)
    with transaction(store) as c:
        if not jobs.retry(c, job_id, row.attempt, fetch=fetch):
            raise NotRetryable("The job moved in this very moment; look at it again.")
        artefact_key = partials.drop_plan(c, job_id)
        if fetch:  # another recording may come, with a plan that looks the same
            partials.drop_windows(c, job_id)
    reach("retry_after_commit")
    try:
        if fetch:
            handover.fetch([job_id])
        else:
            handover.probe([job_id], row.tenant)
    except PartDown as down:
        log().warning("errands_not_asked_for", jobs=1, why=down.message)
    if artefact_key is not None:
        _erase_artefact(storage, artefact_key)


def _must_be_fetched(storage: Storage, row: Any) -> bool:
    """Whether its recording has to come from its URL once more. Raises what `retry` raises."""
    if row is None:
        raise NoSuchJob
    state = State(row.state)
    if State.RECEIVED not in MOVES[state]:
        raise NotRetryable(
            f"The job is {public_status(state)}: only one that failed or was cancelled can be "
            "tried again."
        )
    if row.source_url is not None and not row.sha256:
        return True
    try:
        storage.size(row.storage_key)
    except RecordingMissing:
        if row.source_url is None:
            raise NotRetryable(_why_gone(row)) from None
        return True
    return False


def _why_gone(row: Any) -> str:
    if row.audio_erased_at is None:
        return "The job's recording is not kept: submit it again."
    return (
        f"The recording's days were over: it was erased on {row.audio_erased_at:%Y-%m-%d}. "
        "Submit it again."
    )


def _erase_artefact(storage: Storage, key: str) -> None:
    try:
        storage.delete(key)
    except PartDown as down:
        log().info("artefact_left", key=key, why=down.message)
