"""GET /v1/jobs/{id}/audio: the recording as it was sent, all of it or a range.

What somebody uploaded is never shown as a page: it comes as a file to keep, of a type that we
chose, and a browser that is made to open it runs nothing of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Annotated, Any, BinaryIO

from fastapi import APIRouter, Header, Response
from fastapi.responses import StreamingResponse

from pipeline.api.described import BINARY, Responses, problems
from pipeline.api.given import GivenJobId, GivenListener, GivenParts
from pipeline.api.transcripts import attachment
from pipeline.errors import (
    Erased,
    NoRecording,
    NoSuchJob,
    OutOfRange,
    PartDown,
    RecordingMissing,
)
from pipeline.intake.storage import Storage
from pipeline.store import accesses, views
from pipeline.store.accesses import Action
from pipeline.store.session import transaction

router = APIRouter(tags=["jobs"])

CHUNK_BYTES = 256 * 1024

UNTOLD = "application/octet-stream"

TYPES = {
    "wav": ("audio/wav", ".wav"),
    "mp3": ("audio/mpeg", ".mp3"),
    "flac": ("audio/flac", ".flac"),
    "ogg": ("audio/ogg", ".ogg"),
    "mov": ("audio/mp4", ".m4a"),
    "matroska": ("audio/x-matroska", ".mka"),
    "aac": ("audio/aac", ".aac"),
    "amr": ("audio/amr", ".amr"),
    "aiff": ("audio/aiff", ".aiff"),
}
"""By the container that the probe found, not the sender's word: its type, and the ending of a file
whose name has none that is known to be of sound."""

OF_SOUND = frozenset(
    {
        *(".3gp", ".aac", ".ac3", ".aif", ".aiff", ".alaw", ".amr", ".au", ".caf", ".flac"),
        *(".gsm", ".m4a", ".mka", ".mkv", ".mov", ".mp3", ".mp4", ".oga", ".ogg", ".opus"),
        *(".sln", ".sph", ".ulaw", ".w64", ".wav", ".webm", ".wma", ".wv"),
    }
)
"""Endings that stay as they were sent: a program that opens such a file plays it."""

HARMLESS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
}

_FILE = {"schema": BINARY, "example": "the bytes of the recording"}
_HEADERS = {
    "Content-Disposition": {"description": "Its name", "schema": {"type": "string"}},
    "ETag": {"description": "sha256 of the whole recording", "schema": {"type": "string"}},
}
_CONTENT = dict.fromkeys((*(type_ for type_, _ in TYPES.values()), UNTOLD), _FILE)
_PART = {"description": "Which bytes of how many", "schema": {"type": "string"}}
AUDIO_ANSWERS: Responses = {
    200: {"description": "All of it", "content": _CONTENT, "headers": _HEADERS},
    206: {
        "description": "The range that was asked for",
        "content": _CONTENT,
        "headers": {**_HEADERS, "Content-Range": _PART},
    },
}


@router.get(
    "/v1/jobs/{job_id}/audio",
    summary="Listen to a recording",
    response_class=StreamingResponse,
    responses=AUDIO_ANSWERS | problems(NoSuchJob, NoRecording, Erased, OutOfRange, PartDown),
)
def listen(
    caller: GivenListener,
    parts: GivenParts,
    job_id: GivenJobId,
    asked: Annotated[
        str | None,
        Header(alias="Range", description="One range of bytes; anything else is answered whole"),
    ] = None,
    only_if: Annotated[
        str | None, Header(alias="If-Range", description="ETag for which the range is meant")
    ] = None,
) -> Response:
    """The recording as it was sent. Who listened is written down before a byte goes out."""
    with transaction(parts.store) as c:
        row = views.recording_of(c, job_id)
    if row is None:
        raise NoSuchJob
    file = _opened(parts.storage, row)
    size = os.fstat(file.fileno()).st_size
    etag = f'"{row.sha256}"'
    within = _range(asked, size) if asked and only_if in (None, etag) else None
    with transaction(parts.store) as c:
        accesses.record(c, caller, Action.LISTENED, job_id)
    first, last = within or (0, size - 1)
    type_, ending = TYPES.get(row.container, (UNTOLD, ".bin"))
    headers = {
        **HARMLESS,
        "Accept-Ranges": "bytes",
        "Content-Length": str(last - first + 1),
        "Content-Disposition": attachment(row.file_name, _ending(row.file_name, ending)),
        "ETag": etag,
    }
    if within:
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    return StreamingResponse(
        _chunks(file, first, last), 206 if within else 200, headers, media_type=type_
    )


def _opened(storage: Storage, row: Any) -> BinaryIO:
    """The recording; raises why there is none, and `PartDown`."""
    if row.audio_erased_at is not None:
        raise Erased("The recording was erased: its days were over.")
    if not row.sha256:
        raise NoRecording
    try:
        # closed when nobody holds it any more, also where the answer never begins
        return os.fdopen(storage.open_fd(row.storage_key), "rb")
    except RecordingMissing:
        raise Erased("The recording is not kept any more.") from None


def _chunks(file: BinaryIO, first: int, last: int) -> Iterator[bytes]:
    with file:
        file.seek(first)
        left = last - first + 1
        while left and (chunk := file.read(min(CHUNK_BYTES, left))):
            left -= len(chunk)
            yield chunk


def _range(asked: str, size: int) -> tuple[int, int] | None:
    """First and last byte of the one range asked for; None for what may be ignored (RFC 9110:
    several ranges, other units, what cannot be read). Raises `OutOfRange`.

    >>> _range("bytes=2-", 10), _range("bytes=-3", 10), _range("bytes=0-99", 10)
    ((2, 9), (7, 9), (0, 9))
    >>> _range("bytes=0-1,4-5", 10), _range("bytes=5-2", 10), _range("lines=1-2", 10)
    (None, None, None)
    """
    found = re.fullmatch(r"bytes=([0-9]{0,18})-([0-9]{0,18})", asked.strip(), re.ASCII)
    if found is None or not any(found.groups()):
        return None
    if not found[1]:
        first, last = max(0, size - int(found[2])), size - 1
    else:
        first, last = int(found[1]), min(int(found[2] or size), size - 1)
        if found[2] and int(found[2]) < first:
            return None
    if first >= size:
        raise OutOfRange(size)
    return first, last


def _ending(file_name: str, other: str) -> str:
    """The name's own ending where it is one of sound, else `other`."""
    own = os.path.splitext(file_name)[1]
    return own if own.lower() in OF_SOUND else other
