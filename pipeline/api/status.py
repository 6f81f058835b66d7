"""What became of a recording: a job, its transcript, lists of jobs; to stop, repeat, erase it."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import AwareDatetime
from starlette.concurrency import run_in_threadpool

from pipeline.api.bodies import Cancelled, Job, JobPage, Status
from pipeline.api.described import problems
from pipeline.api.door import revoked
from pipeline.api.given import (
    GivenJobId,
    GivenParts,
    GivenReader,
    GivenSubmitter,
    GivenWaiting,
    existing_job,
    flower_of,
    needs,
)
from pipeline.api.transcripts import TRANSCRIPT_ANSWERS, GivenDownload, GivenFormat, render
from pipeline.api.waiting import Woken, hung_up
from pipeline.caller import Caller, Scope
from pipeline.errors import (
    BadRequest,
    Erased,
    KeyUnknown,
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
from pipeline.store import accesses, views
from pipeline.store.accesses import Action
from pipeline.store.session import transaction

router = APIRouter(tags=["jobs"])

WaitS = Annotated[
    float, Query(ge=0, le=60, description="Answer when the job ended, or after this many seconds")
]


@router.get(
    "/v1/jobs/{job_id}",
    summary="Read a job",
    dependencies=needs(Scope.READ),
    responses=problems(BadRequest, NoSuchJob, PartDown),
)
async def read_job(
    request: Request,
    parts: GivenParts,
    waiting: GivenWaiting,
    job_id: GivenJobId,
    wait: WaitS = 0.0,
) -> Job:
    """One job. With `wait` the answer comes when the job has ended, or when the wait is over."""
    if wait > 0:
        view = await run_in_threadpool(existing_job, parts, job_id)
        if view.state not in FINAL:
            woken = await waiting.ended(job_id, wait, lambda: hung_up(request))
            if woken is Woken.GONE:  # nobody reads it
                return Job.of(view, UNKNOWN, flower_of(parts.settings))
            if await revoked(request):
                raise KeyUnknown
    return await run_in_threadpool(_told, parts, job_id)


@router.get(
    "/v1/jobs/{job_id}/transcript",
    summary="Read a transcript",
    response_class=Response,
    responses=TRANSCRIPT_ANSWERS
    | problems(BadRequest, NoSuchJob, TranscriptNotReady, Erased, PartDown),
)
def read_transcript(
    caller: GivenReader,
    parts: GivenParts,
    job_id: GivenJobId,
    format: GivenFormat = "json",
    download: GivenDownload = False,
    partial: Annotated[
        bool, Query(description="What is heard so far, if that is not all; says so in the answer")
    ] = False,
) -> Response:
    """The transcript in the format asked for, once the job is completed."""
    if partial:
        body = so_far(parts.store, job_id)
        with transaction(parts.store) as c:  # before a word of it goes out
            accesses.record(c, caller, Action.READ, job_id, format)
    else:
        body = _whole(parts, job_id, caller, format)
    return render(body, format, existing_job(parts, job_id).file_name if download else None)


def _whole(parts: Parts, job_id: str, caller: Caller, format: str) -> dict[str, Any]:
    with transaction(parts.store) as c:
        body = views.transcript_body(c, job_id)
        view = views.view(c, job_id) if body is None else None
        if body is not None:
            accesses.record(c, caller, Action.READ, job_id, format)
    if body is None:
        raise _not_ready(view)
    return body


@router.get("/v1/jobs", summary="List jobs", responses=problems(BadRequest, PartDown))
def list_jobs(
    caller: GivenReader,
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
            caller=caller,
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
    dependencies=needs(Scope.SUBMIT),
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
    dependencies=needs(Scope.SUBMIT),
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


def _told(parts: Parts, job_id: str) -> Job:
    """The job as it stands now; raises `NoSuchJob`."""
    view = existing_job(parts, job_id)
    return Job.of(view, _stands(parts, view), flower_of(parts.settings))


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
