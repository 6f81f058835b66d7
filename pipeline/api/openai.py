"""OpenAI's audio API on our line: its official client needs only another `base_url`.

A recording sent here is a job like any other and keeps its place in the queue; the request waits
for its end. A caller who hangs up does not want it any more: the job is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from starlette.concurrency import run_in_threadpool

from pipeline.api.backlog import Backlog, guessed_s
from pipeline.api.described import openai_problems
from pipeline.api.door import revoked
from pipeline.api.form import asks_first, read_form
from pipeline.api.form_reader import Limits
from pipeline.api.given import (
    GivenBacklog,
    GivenParts,
    GivenReader,
    GivenWaiting,
    existing_job,
    needs,
)
from pipeline.api.openai_bodies import Model, ModelList
from pipeline.api.openai_described import AUDIO_ANSWERS, FORM_BODY, NO_MODEL
from pipeline.api.openai_form import (
    ALL_FIELDS,
    GRANULARITIES,
    WHISPER_1,
    Asked,
    ResponseFormat,
    check_model,
    model_name,
    read_asked,
)
from pipeline.api.waiting import TICK_S, Waiting, Woken, hung_up
from pipeline.caller import Caller, Scope
from pipeline.errors import (
    FairscribeError,
    JobFailed,
    KeyUnknown,
    PartDown,
    RecordingRefused,
    TranscriptNotReady,
)
from pipeline.job import AUTO, JobView, State
from pipeline.logs import log
from pipeline.parts import Parts
from pipeline.settings import Settings
from pipeline.steps.accept import Upload, accept, hand_over
from pipeline.steps.cancel import cancel
from pipeline.store import accesses, views
from pipeline.store.accesses import Action
from pipeline.store.session import transaction
from pipeline.transcript.formats import OPENAI_FORMATS

router = APIRouter(tags=["openai"])

OUTAGE_S = 30.0
"""Postgres may be away this long before a waiting request gives up; its job goes on without it."""

HUNG_UP = 499
"""Status of an answer nobody is there to read, for the access log."""


@router.post(
    "/v1/audio/transcriptions",
    summary="Transcribe a recording and wait",
    response_class=Response,
    dependencies=needs(Scope.SUBMIT),
    openapi_extra={"requestBody": FORM_BODY},
    responses=AUDIO_ANSWERS,
)
async def transcribe(
    request: Request,
    caller: GivenReader,
    parts: GivenParts,
    waiting: GivenWaiting,
    backlog: GivenBacklog,
) -> Response:
    """Transcribe a recording and wait for it, as OpenAI's API does."""
    return await _hear(request, caller, parts, waiting, backlog, "transcribe")


@router.post(
    "/v1/audio/translations",
    summary="Translate a recording into English and wait",
    response_class=Response,
    dependencies=needs(Scope.SUBMIT),
    openapi_extra={"requestBody": FORM_BODY},
    responses=AUDIO_ANSWERS,
)
async def translate(
    request: Request,
    caller: GivenReader,
    parts: GivenParts,
    waiting: GivenWaiting,
    backlog: GivenBacklog,
) -> Response:
    """The same, with the words in English whatever was spoken. Needs a multilingual model."""
    return await _hear(request, caller, parts, waiting, backlog, "translate")


@router.get(
    "/v1/models",
    summary="List models",
    dependencies=needs(*Scope),
    responses=openai_problems(),
)
def list_models(parts: GivenParts) -> ModelList:
    """The model in use, under its own name and as whisper-1."""
    return ModelList(
        data=[Model(id=name) for name in (model_name(parts.settings), WHISPER_1)],
    )


@router.get(
    "/v1/models/{model:path}",
    summary="Read a model",
    dependencies=needs(*Scope),
    responses=openai_problems(NO_MODEL),
)
def read_model(
    parts: GivenParts, model: Annotated[str, Path(description="As the list of models calls it")]
) -> Model:
    """One of them; by any other name there is none."""
    check_model(model, parts.settings)
    return Model(id=model)


async def _hear(
    request: Request, caller: Caller, parts: Parts, waiting: Waiting, backlog: Backlog, task: str
) -> Response:
    if asks_first(request):
        await run_in_threadpool(backlog.check)
    limit_bytes = parts.settings.max_upload_bytes
    place = parts.settings.home / "uploads"
    async with read_form(
        request,
        place,
        files="file",
        fields=ALL_FIELDS,
        repeated=GRANULARITIES,
        limits=Limits.of(parts.settings, files=2),  # two: to be told that it is one too many,
    ) as form:
        asked = read_asked(form, parts.settings)
        longest_s = parts.settings.max_duration_h * 3600
        await run_in_threadpool(backlog.take_in, guessed_s(asked.file.size_bytes, longest_s))
        said = _upload(parts.settings, asked, form.chunks(asked.file), task)
        upload = replace(said, tenant=caller.tenant)
        accepted = await run_in_threadpool(accept, parts.store, parts.storage, upload, limit_bytes)
    if accepted.refused is not None:
        raise accepted.refused
    await run_in_threadpool(hand_over, parts.handover, [accepted], caller.tenant)
    view = await _ended(request, parts, waiting, accepted.job_id)
    if view is None:
        return Response(status_code=HUNG_UP)
    if await revoked(request):
        raise KeyUnknown
    body = await run_in_threadpool(_transcript, parts, view, caller, asked.response_format)
    return _answer(body, asked.response_format, accepted.job_id)


def _upload(settings: Settings, asked: Asked, chunks: Iterator[bytes], task: str) -> Upload:
    options = {"vocabulary": asked.vocabulary} if asked.vocabulary else {}
    if task == "transcribe":
        return Upload(asked.file.name, chunks, language=asked.language, options=options)
    # who wants English words does not mean that English is spoken
    language = asked.language or (AUTO if settings.language == "en" else None)
    return Upload(asked.file.name, chunks, language=language, options={"task": task, **options})


async def _ended(request: Request, parts: Parts, waiting: Waiting, job_id: str) -> JobView | None:
    """The job once it has ended; None when the caller hung up, and the job is cancelled then.

    Raises `PartDown` when Postgres was away for OUTAGE_S.
    """
    while True:
        woken = await waiting.ended(job_id, OUTAGE_S / 3, lambda: hung_up(request))
        if woken is Woken.GONE:
            await run_in_threadpool(_cancel, parts, job_id)
            return None
        if woken is Woken.ENDED or waiting.away_s > OUTAGE_S:
            try:
                return await run_in_threadpool(existing_job, parts, job_id)
            except PartDown:  # went away since
                if waiting.away_s > OUTAGE_S:
                    raise
                await asyncio.sleep(TICK_S)


def _cancel(parts: Parts, job_id: str) -> None:
    try:
        cancelled = cancel(parts.store, parts.queues, job_id)
        log().info("caller_hung_up", job_id=job_id, cancelled=cancelled)
    except PartDown as down:
        log().warning("caller_hung_up_not_cancelled", job_id=job_id, why=down.message)


def _transcript(parts: Parts, view: JobView, caller: Caller, format: str) -> dict[str, Any]:
    """What was said; raises why there is nothing."""
    if view.state is State.FAILED:
        raise _failure(view)
    with transaction(parts.store) as c:
        body = views.transcript_body(c, view.id)
        if body is not None:
            accesses.record(c, caller, Action.READ, view.id, format)
    if body is None:
        raise TranscriptNotReady("The recording was cancelled while it was waited for.")
    return body


def _failure(view: JobView) -> FairscribeError:
    """The error the job ended with."""
    kinds: list[type[FairscribeError]] = [*RecordingRefused.__subclasses__(), RecordingRefused]
    for kind in (*kinds, *JobFailed.__subclasses__()):
        if kind.code == view.error_code:
            return kind(view.error_message)
    return JobFailed(view.error_message)


def _answer(body: dict[str, Any], form: ResponseFormat, job_id: str) -> Response:
    """The transcript as OpenAI gives it. Its client shows the job's id as `_request_id`."""
    known = OPENAI_FORMATS[form]
    headers = {"X-Request-Id": job_id}
    return Response(known.write(body), media_type=known.media_type, headers=headers)
