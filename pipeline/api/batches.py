"""Batches: how far one is, all of them, to stop one, and to watch one as it goes.

A batch id may hold any character, also a slash: its routes take the whole rest of the path.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from pipeline.api.batch_bodies import Batch, BatchCancelled, BatchPage
from pipeline.api.described import Responses, problems
from pipeline.api.door import revoked
from pipeline.api.events import NOTHING_NEW, BatchEvents, Left
from pipeline.api.given import GivenBatchId, GivenParts, GivenReader, GivenSubmitter, flower_of
from pipeline.caller import Caller
from pipeline.errors import BadRequest, NoSuchBatch, PartDown
from pipeline.parts import Parts
from pipeline.steps.cancel import cancel_batch
from pipeline.steps.forecast import forecast_batch
from pipeline.store import batches
from pipeline.store.batches import BatchView
from pipeline.store.session import transaction

router = APIRouter(tags=["batches"])

_STREAM: Responses = {
    200: {
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "example": "event: batch\ndata: {...}\n\nid: ...\nevent: job\ndata: {...}\n\n"
                "event: done\ndata: {...}\n\n",
            }
        },
        "description": "Server-sent events: `batch`, how it stands, when that changed; `job`, one "
        "that ended; `done`, the last",
    },
    204: {"description": "To the `Last-Event-ID` of a `done`: nothing has come since"},
}


@router.get("/v1/batches", summary="List batches", responses=problems(BadRequest, PartDown))
def list_batches(
    caller: GivenReader,
    parts: GivenParts,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Batches on a page")] = 100,
) -> BatchPage:
    """Batches, the newest first."""
    with transaction(parts.store) as c:
        found = batches.newest(c, _read_cursor(cursor), limit + 1, caller)
    more = _write_cursor(found[limit - 1]) if len(found) > limit else None
    return BatchPage(batches=[Batch.of(view) for view in found[:limit]], next_cursor=more)


@router.get(
    "/v1/batches/{batch_id:path}/events",
    summary="Watch a batch",
    response_class=StreamingResponse,
    responses=_STREAM | problems(BadRequest, NoSuchBatch, PartDown),
)
async def watch_batch(
    request: Request,
    caller: GivenReader,
    parts: GivenParts,
    batch_id: GivenBatchId,
    last_event_id: Annotated[
        str | None, Header(alias="Last-Event-ID", description="`id` of the last event seen")
    ] = None,
) -> Response:
    """The batch as it goes, as server-sent events, until it has ended."""
    events = BatchEvents(
        look=lambda: document(parts, _batch(parts, batch_id, caller), caller),
        store=parts.store,
        flower=flower_of(parts.settings),
        batch_id=batch_id,
        caller=caller,
        left=Left.read(last_event_id) if last_event_id else None,
    )
    # before the answer begins: afterwards there is no other status to give
    if await run_in_threadpool(events.begin) is NOTHING_NEW:
        return Response(status_code=204)

    async def ends() -> bool:
        return await request.is_disconnected() or await revoked(request)

    return StreamingResponse(
        events.stream(ends),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


@router.post(
    "/v1/batches/{batch_id:path}/cancel",
    summary="Cancel a batch",
    responses=problems(NoSuchBatch, PartDown),
)
def cancel_all(caller: GivenSubmitter, parts: GivenParts, batch_id: GivenBatchId) -> BatchCancelled:
    """Stop all jobs of a batch that have not ended."""
    _batch(parts, batch_id, caller)
    stopped = cancel_batch(parts.store, parts.queues, batch_id, caller)
    return BatchCancelled(batch_id=batch_id, cancelled=stopped)


@router.get(
    "/v1/batches/{batch_id:path}",
    summary="Read a batch",
    responses=problems(NoSuchBatch, PartDown),
)
def read_batch(caller: GivenReader, parts: GivenParts, batch_id: GivenBatchId) -> Batch:
    """How a batch stands."""
    return document(parts, _batch(parts, batch_id, caller), caller)


def document(parts: Parts, view: BatchView, caller: Caller) -> Batch:
    """The batch as it is answered, with its forecast."""
    if view.completed_at is not None:
        return Batch.of(view)
    try:
        times = forecast_batch(parts, view.batch_id, caller)
        return Batch.of(view, times, datetime.now(UTC))
    except PartDown:  # of Redis: how the batch stands is known without it
        return Batch.of(view)


def _batch(parts: Parts, batch_id: str, caller: Caller) -> BatchView:
    with transaction(parts.store) as c:
        view = batches.batch(c, batch_id, caller)
    if view is None:
        raise NoSuchBatch
    return view


def _write_cursor(view: BatchView) -> str:
    place = json.dumps([view.created_at.isoformat(), view.batch_id])
    return base64.urlsafe_b64encode(place.encode()).decode()


def _read_cursor(cursor: str | None) -> tuple[datetime, str] | None:
    if cursor is None:
        return None
    try:
        created_at, batch_id = json.loads(base64.urlsafe_b64decode(cursor))
        read = datetime.fromisoformat(created_at)
        if read.tzinfo is None or not isinstance(batch_id, str) or "\0" in batch_id:
            raise ValueError(cursor)
        batch_id.encode("utf-8")
    except (ValueError, TypeError, RecursionError):
        raise BadRequest("cursor is not one that a page gave.") from None
    return read, batch_id
