"""What became of a recording: one job, its transcript, lists of jobs, and cancelling one."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.concurrency import run_in_threadpool

from pipeline.api.bodies import Cancelled, Job, JobPage, Status
from pipeline.api.given import GivenJobId, GivenParts
from pipeline.clock import SystemClock
from pipeline.errors import BadRequest, NoSuchJob, PartDown, TranscriptNotReady
from pipeline.job import FINAL, STAGES, JobView, public_status, states_of
from pipeline.parts import Parts
from pipeline.steps.cancel import cancel as cancel_job
from pipeline.steps.forecast import forecast_job
from pipeline.steps.forecast.outlook import Forecast
from pipeline.store import views
from pipeline.store.session import transaction
from pipeline.transcript.formats import to_txt

router = APIRouter(tags=["jobs"])

WAIT_TICK_S = 0.25
"""How often a waiting request looks at its job: short against any transcription."""

WaitS = Annotated[
    float, Query(ge=0, le=60, description="Answer when the job ended, or after this many seconds")
]


@router.get("/v1/jobs/{job_id}")
async def read_job(
    request: Request, parts: GivenParts, job_id: GivenJobId, wait: WaitS = 0.0
) -> Job:
    """One job. With `wait` the answer comes when the job has ended, or when the wait is over."""
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + wait
    while True:
        # a thread for the look alone: between looks a waiting request costs none
        view = await run_in_threadpool(_view, parts, job_id)
        left_s = deadline_s - clock.monotonic_s()
        if view.state in FINAL or left_s <= 0 or await request.is_disconnected():
            stands = await run_in_threadpool(_position, parts, view)
            return Job.of(view, stands.position, stands.eta_s)
        await asyncio.sleep(min(WAIT_TICK_S, left_s))


@router.get(
    "/v1/jobs/{job_id}/transcript",
    response_class=Response,
    responses={200: {"content": {"application/json": {}, "text/plain": {}}}},
)
def read_transcript(
    parts: GivenParts,
    job_id: GivenJobId,
    format: Annotated[Literal["json", "txt"], Query(description="Form of the answer")] = "json",
) -> Response:
    """The transcript: all of it as `json`, or a line a segment as `txt`."""
    with transaction(parts.store) as c:
        body = views.transcript_body(c, job_id)
        view = views.view(c, job_id) if body is None else None
    if body is None:
        raise _not_ready(view)
    return PlainTextResponse(to_txt(body)) if format == "txt" else JSONResponse(body)


@router.get("/v1/jobs")
def list_jobs(
    parts: GivenParts,
    status: Annotated[Status | None, Query(description="Only jobs of this status")] = None,
    batch: Annotated[str | None, Query(description="Only jobs of this batch")] = None,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Jobs on a page")] = 100,
) -> JobPage:
    """Jobs by id, oldest first, so that pages stay as they are while new jobs come."""
    if batch is not None and "\0" in batch:
        return JobPage(jobs=[], next_cursor=None)
    states = states_of(status) if status else ()
    with transaction(parts.store) as c:
        # one more than asked for tells whether there is a next page
        found = views.list_jobs(
            c, states=states, batch_id=batch, after=_cursor(cursor), limit=limit + 1
        )
    more = found[limit - 1].id if len(found) > limit else None
    return JobPage(jobs=[Job.of(view) for view in found[:limit]], next_cursor=more)


@router.post("/v1/jobs/{job_id}/cancel")
def cancel(parts: GivenParts, job_id: GivenJobId) -> Cancelled:
    """Stop a job, whatever it is doing. One that has ended stays as it ended."""
    did = cancel_job(parts.store, parts.queues, job_id)
    view = _view(parts, job_id)
    return Cancelled(id=job_id, status=Job.of(view).status, cancelled=did)


def _position(parts: Parts, view: JobView) -> Forecast:
    """Its place in the queue and how long it will take; unknown when it has ended, or is not probed
    yet, or Redis cannot be asked.
    """
    if not any(view.state in (stage.waiting, stage.working) for stage in STAGES):
        return Forecast(None, None)
    try:
        return forecast_job(parts, view.id)
    except PartDown:
        return Forecast(None, None)


def _view(parts: Parts, job_id: str) -> JobView:
    with transaction(parts.store) as c:
        view = views.view(c, job_id)
    if view is None:
        raise NoSuchJob
    return view


def _not_ready(view: JobView | None) -> NoSuchJob | TranscriptNotReady:
    """Why there is no transcript, in a sentence."""
    if view is None:
        return NoSuchJob()
    if view.error_code is not None:
        return TranscriptNotReady(f"The job failed ({view.error_code}): {view.error_message}")
    return TranscriptNotReady(f"There is no transcript: the job is {public_status(view.state)}.")


def _cursor(cursor: str | None) -> str | None:
    try:
        return None if cursor is None else str(UUID(cursor))
    except ValueError:
        raise BadRequest("cursor is not one that a page gave.") from None
