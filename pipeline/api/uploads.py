"""POST /v1/jobs: many recordings in one request, each becomes a job or says why not."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import uuid_utils.compat as uuid_utils
from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from pipeline.api.bodies import AcceptedFile, Reason, Submission
from pipeline.api.described import BINARY, problems
from pipeline.api.form import File, Form, read_form
from pipeline.api.given import GivenParts
from pipeline.api.problems import public_message
from pipeline.errors import BadRequest, FairscribeError, PartDown
from pipeline.parts import Parts
from pipeline.steps.accept import Accepted, Upload, accept, hand_over

router = APIRouter(tags=["jobs"])

BATCH_ID_LIMIT = 200
"""Longest batch id, characters."""

_MB = 1_000_000

_TEXTS = {
    "batch_id": ("Groups jobs, also over several requests; chosen when absent", "monday"),
    "language": ("ISO 639-1 code such as en; absent: the installation's default", "en"),
    "metadata": ("A JSON object, kept with each job", '{"agent": "7"}'),
}
"""The text fields of the form: what they are for, and an example."""

_FILES = {
    "type": "array",
    "items": BINARY,
    "minItems": 1,
    "description": "Recordings, one part each, any number",
}
_SCHEMA = {
    "type": "object",
    "required": ["files"],
    "properties": {
        "files": _FILES,
        **{
            name: {"type": "string", "description": what, "examples": [example]}
            for name, (what, example) in _TEXTS.items()
        },
    },
}
_BODY = {"required": True, "content": {"multipart/form-data": {"schema": _SCHEMA}}}


@router.post(
    "/v1/jobs",
    status_code=202,
    summary="Submit recordings",
    openapi_extra={"requestBody": _BODY},
    responses=problems(BadRequest, PartDown),
)
async def submit(request: Request, parts: GivenParts) -> Submission:
    """Submit recordings. Each file becomes a job of its own, durable when this answers.

    A file that cannot be transcribed (empty, too large) is a failed job, and the others go on.
    """
    limit_bytes = int(parts.settings.max_upload_mb * _MB)
    place = parts.settings.home / "uploads"
    async with read_form(
        request, place, files="files", fields=tuple(_TEXTS), limit_bytes=limit_bytes
    ) as form:
        said = _said(form)
        if not form.files:
            raise BadRequest("There is no file: send each recording in a part named `files`.")
        return await run_in_threadpool(_accept_all, parts, form, said, limit_bytes)


METADATA_DEPTH = 32
"""Levels of nesting; an answer's serialiser gives up at 255, and with it whole lists of jobs."""


def _said(form: Form) -> dict[str, Any]:
    """What the sender says of all files; raises `BadRequest` for what cannot be meant."""
    batch_id = form.fields.get("batch_id") or str(uuid_utils.uuid7())
    if len(batch_id) > BATCH_ID_LIMIT or "\0" in batch_id:
        raise BadRequest(f"batch_id is a text of at most {BATCH_ID_LIMIT} characters.")
    language = form.fields.get("language") or None
    if language is not None and not re.fullmatch("[a-z]{2,3}", language):
        raise BadRequest(f"language is a code such as en, not {language[:100]!r}.")
    metadata = _metadata(form.fields.get("metadata") or "{}")
    return {"batch_id": batch_id, "language": language, "metadata": metadata}


def _metadata(text: str) -> dict[str, Any]:
    """A JSON object Postgres can keep: finite numbers, no NUL, no half of a surrogate pair."""
    try:
        read = json.loads(text, parse_constant=_not_json)
        json.dumps(read, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (ValueError, RecursionError):
        raise BadRequest("metadata is not JSON.") from None
    if not isinstance(read, dict):
        raise BadRequest("metadata is not a JSON object.")
    _check_kept(read, METADATA_DEPTH)
    return read


def _check_kept(value: Any, depth_left: int) -> None:
    """Raise `BadRequest` for what Postgres cannot keep or an answer cannot carry."""
    if depth_left < 0:
        raise BadRequest(f"metadata is nested deeper than {METADATA_DEPTH} levels.")
    if isinstance(value, str) and "\0" in value:
        raise BadRequest("metadata holds a NUL character, which cannot be kept.")
    inside = [*value, *value.values()] if isinstance(value, dict) else value
    for one in inside if isinstance(value, dict | list) else ():
        _check_kept(one, depth_left - 1)


def _not_json(constant: str) -> NoReturn:
    raise ValueError(constant)


def _accept_all(parts: Parts, form: Form, said: dict[str, Any], limit_bytes: int) -> Submission:
    """Accept every file. Raises `PartDown` only when it stopped the very first one.

    When a part goes down in between, the files before it are jobs and are answered as such; the
    rest is answered without an id, to be sent again.
    """
    accepted: list[Accepted] = []
    down: PartDown | None = None
    for file in form.files:
        try:
            upload = Upload(file.name, form.chunks(file), **said)
            accepted.append(accept(parts.store, parts.storage, upload, limit_bytes))
        except PartDown as error:
            down = error
            break
    if down is not None and not accepted:
        raise down
    hand_over(parts.handover, accepted)
    answers = [_answer(f, a.job_id, a.refused) for f, a in zip(form.files, accepted, strict=False)]
    answers += [_answer(f, None, down) for f in form.files[len(accepted) :]]
    return Submission(batch_id=said["batch_id"], jobs=answers)


def _answer(file: File, job_id: str | None, error: FairscribeError | None) -> AcceptedFile:
    return AcceptedFile(
        id=job_id,
        file_name=file.name,
        status="failed" if error else "queued",
        error=Reason(code=error.code, message=public_message(error)) if error else None,
    )
