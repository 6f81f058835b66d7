"""Calls recorded in several files: how their legs stand, and one transcript of all.

A call's id may hold any character, also a slash: its routes take the whole rest of the path.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from pipeline.api.call_bodies import Call
from pipeline.api.call_described import CALL_ANSWERS
from pipeline.api.described import problems
from pipeline.api.given import GivenCallId, GivenParts, GivenReader
from pipeline.api.transcripts import GivenDownload, GivenFormat, render
from pipeline.errors import (
    BadRequest,
    Erased,
    NoSuchCall,
    NoSuchJob,
    PartDown,
    TranscriptNotReady,
)
from pipeline.parts import Parts
from pipeline.steps.deliver import so_far
from pipeline.steps.join import Recording, joined, joined_so_far, recordings
from pipeline.store import accesses
from pipeline.store.accesses import Action
from pipeline.store.session import transaction

router = APIRouter(tags=["calls"])


@router.get(
    "/v1/calls/{call_id:path}/transcript",
    summary="Read the transcript of a call in several files",
    response_class=Response,
    responses=CALL_ANSWERS | problems(BadRequest, NoSuchCall, TranscriptNotReady, Erased, PartDown),
)
def read_call_transcript(
    caller: GivenReader,
    parts: GivenParts,
    call_id: GivenCallId,
    format: GivenFormat = "json",
    download: GivenDownload = False,
    partial: Annotated[
        bool, Query(description="What is heard of its legs so far; says so in the answer")
    ] = False,
) -> Response:
    """All legs of a call in one transcript, by time, once all are completed."""
    found = recordings(parts.store, call_id, caller)
    if partial:
        body = joined_so_far(call_id, found, _heard(parts, found))
    else:
        body = joined(parts.store, call_id, found)
    with transaction(parts.store) as c:  # before a word of it goes out
        read = [leg["job_id"] for leg in body["legs"]]
        accesses.record_all(c, caller, Action.READ, read, format)
    return render(body, format, f"{call_id}.call" if download else None)


@router.get(
    "/v1/calls/{call_id:path}",
    summary="Read how a call in several files stands",
    responses=problems(BadRequest, NoSuchCall, PartDown),
)
def read_call(caller: GivenReader, parts: GivenParts, call_id: GivenCallId) -> Call:
    """The legs of a call: the jobs whose metadata names it, the oldest first."""
    return Call.of(call_id, recordings(parts.store, call_id, caller))


def _heard(parts: Parts, found: list[Recording]) -> dict[str, dict[str, Any]]:
    """By job what is heard of those that count; jobs of which nothing is are left out."""
    heard = {}
    for one in found:
        if one.replaced_by is not None:
            continue
        try:
            heard[one.view.id] = so_far(parts.store, one.view.id)
        except (TranscriptNotReady, NoSuchJob, Erased):
            continue
    return heard
