"""What became of a recording: a job, its transcript, lists of jobs; to stop, repeat, erase it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import AwareDatetime
from starlette.concurrency import run_in_threadpool

from pipeline.api.bodies import Cancelled, Job, JobPage, Status
from pipeline.api.described import problems
from pipeline.api.given import GivenJobId, GivenParts, GivenSubmitter, existing_job, flower_of
from pipeline.api.transcripts import TRANSCRIPT_ANSWERS, GivenDownload, GivenFormat, render
from pipeline.clock import SystemClock
from pipeline.errors import (
    BadRequest,
    Erased,
    NoSuchJob,
    NotRetryable,
    PartDown,
    TranscriptNotReady,
)
from pipeline.job import FINAL, STAGES, JobView, public_status, states_of
from pipeline.parts import Parts
from pipeline.steps.cancel import cancel as cancel_job
from pipeline.steps.deliver import TRANSCRIPT_ERASED, so_far
from pipeline.steps.erase import erase as erase_job
from pipeline.steps.forecast import forecast_job
from pipeline.steps.forecast.told import UNKNOWN, Forecast
from pipeline.steps.retry import retry as retry_job
from pipeline.store import views
from pipeline.store.session import transaction

router = APIRouter(tags=["jobs"])

WAIT_TICK_S = 0.25
"""How often a waiting request looks at its job: short against any transcription."""

WaitS = Annotated[
    float, Query(ge=0, le=60, description="Answer when the job ended, or after this many seconds")
]


@router.get(
    "/v1/jobs/{job_id}",
    summary="Read a job",
    responses=problems(BadRequest, NoSuchJob, PartDown),
)
async def read_job(
    request: Request, parts: GivenParts, job_id: GivenJobId, wait: WaitS = 0.0
) -> Job:
    """One job. With `wait` the answer comes when the job has ended, or when the wait is over."""
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + wait
    while True:
        # a thread for the look alone: between looks a waiting request costs none
        view = await run_in_threadpool(existing_job, parts, job_id)
        left_s = deadline_s - clock.monotonic_s()
        if view.state in FINAL or left_s <= 0 or await request.is_disconnected():
            stands = await run_in_threadpool(_stands, parts, view)
            return Job.of(view, stands, flower_of(parts.settings))
        await asyncio.sleep(min(WAIT_TICK_S, left_s))


@router.get(
    "/v1/jobs/{job_id}/transcript",
    summary="Read a transcript",
    response_class=Response,
    responses=TRANSCRIPT_ANSWERS
    | problems(BadRequest, NoSuchJob, TranscriptNotReady, Erased, PartDown),
)
def read_transcript(
    parts: GivenParts,
    job_id: GivenJobId,
    format: GivenFormat = "json",
    download: GivenDownload = False,
    partial: Annotated[
        bool, Query(description="What is heard so far, if that is not all; says so in the answer")
    ] = False,
) -> Response:
    """The transcript in the format asked for, once the job is completed."""
    body = so_far(parts.store, job_id) if partial else _whole(parts, job_id)
    return render(body, format, existing_job(parts, job_id).file_name if download else None)


def _whole(parts: Parts, job_id: str) -> dict[str, Any]:
    with transaction(parts.store) as c:
        body = views.transcript_body(c, job_id)
        view = views.view(c, job_id) if body is None else None
    if body is None:
        raise _not_ready(view)
    return body


@router.get("/v1/jobs", summary="List jobs", responses=problems(BadRequest, PartDown))
def list_jobs(
    parts: GivenParts,
    status: Annotated[Status | None, Query(description="Only jobs of this status")] = None,
    batch: Annotated[str | None, Query(description="Only jobs of this batch")] = None,
    created_after: Annotated[
        AwareDatetime | None, Query(description="Only jobs that came at this time or later")
    ] = None,
    created_before: Annotated[
        AwareDatetime | None, Query(description="Only jobs that came before this time")
    ] = None,
    order: Annotated[Literal["oldest", "newest"], Query(description="Which come first")] = "oldest",
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Jobs on a page")] = 100,
) -> JobPage:
    """Jobs by id, which is by age; oldest first pages stay as they are while new jobs come."""
    if batch is not None and "\0" in batch:
        return JobPage(jobs=[], next_cursor=None)
    with transaction(parts.store) as c:
        # one more than asked for tells whether there is a next page
        found = views.list_jobs(
            c,
            states=states_of(status) if status else (),
            batch_id=batch,
            created=(created_after, created_before),
            after=_cursor(cursor),
            newest_first=order == "newest",
            limit=limit + 1,
        )
    more = found[limit - 1].id if len(found) > limit else None
    flower = flower_of(parts.settings)
    return JobPage(jobs=[Job.of(view, flower=flower) for view in found[:limit]], next_cursor=more)


@router.post(
    "/v1/jobs/{job_id}/cancel",
    summary="Cancel a job",
    responses=problems(NoSuchJob, PartDown),
)
def cancel(parts: GivenParts, job_id: GivenJobId) -> Cancelled:
    """Stop a job, whatever it is doing. One that has ended stays as it ended."""
    did = cancel_job(parts.store, parts.queues, job_id)
    view = existing_job(parts, job_id)
    return Cancelled(id=job_id, status=Job.of(view).status, cancelled=did)


@router.post(
    "/v1/jobs/{job_id}/retry",
    status_code=202,
    summary="Retry a job",
    responses=problems(NoSuchJob, NotRetryable, PartDown),
)
def retry(parts: GivenParts, job_id: GivenJobId) -> Job:
    """Begin a failed or cancelled job again, as if it had just come."""
    retry_job(parts.store, parts.storage, parts.handover, job_id)
    return Job.of(existing_job(parts, job_id), flower=flower_of(parts.settings))


@router.delete(
    "/v1/jobs/{job_id}",
    status_code=204,
    summary="Erase a job",
    responses=problems(NoSuchJob, PartDown),
)
def erase(parts: GivenParts, caller: GivenSubmitter, job_id: GivenJobId) -> None:
    """Erase a job, whatever it is doing: recording, transcript and all that is known of it."""
    erase_job(parts.store, parts.storage, parts.queues, job_id, caller)


def _stands(parts: Parts, view: JobView) -> Forecast:
    """Its place in the queue and how long it will take; unknown when it has ended, or is not probed
    yet, or Redis cannot be asked.
    """
    if not any(view.state in (stage.waiting, stage.working) for stage in STAGES):
        return UNKNOWN
    try:
        return forecast_job(parts, view.id)
    except PartDown:
        return UNKNOWN


def _not_ready(view: JobView | None) -> NoSuchJob | TranscriptNotReady | Erased:
    """Why there is no transcript, in a sentence."""
    if view is None:
        return NoSuchJob()
    if view.transcript_erased_at is not None:
        return Erased(f"{TRANSCRIPT_ERASED} {view.transcript_erased_at:%Y-%m-%d}.")
    if view.error_code is not None:
        return TranscriptNotReady(f"The job failed ({view.error_code}): {view.error_message}")
    return TranscriptNotReady(f"There is no transcript: the job is {public_status(view.state)}.")


def _cursor(cursor: str | None) -> str | None:
    try:
        return None if cursor is None else str(UUID(cursor))
    except ValueError:
        raise BadRequest("cursor is not one that a page gave.") from None
