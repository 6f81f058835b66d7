"""POST /v1/jobs: many recordings in one request, each becomes a job or says why not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from starlette.concurrency import run_in_threadpool

from pipeline.api.backlog import Backlog, audio_s
from pipeline.api.bodies import AcceptedFile, Reason, Submission
from pipeline.api.described import BINARY, problems
from pipeline.api.form import asks_first
from pipeline.api.form_reader import Limits
from pipeline.api.given import GivenBacklog, GivenParts, GivenSubmitter
from pipeline.api.idempotency import Carried, checked_key, once
from pipeline.api.problems import public_message
from pipeline.api.said import SPEAKER_LIMIT, TEXTS
from pipeline.api.submitted import URLS_LIMIT, Submitted, read_submission
from pipeline.errors import (
    BacklogFull,
    BadRequest,
    Erased,
    FairscribeError,
    KeyReused,
    NoSuchJob,
    PartDown,
    RequestInProgress,
    UploadTooSlow,
)
from pipeline.fetch.urls import URL_LIMIT, name_in_url, shown_url
from pipeline.parts import Parts
from pipeline.steps.accept import (
    UNNAMED,
    Accepted,
    Upload,
    accept,
    accept_urls,
    hand_over,
    new_job_id,
)
from pipeline.steps.erase import erase, is_erased
from pipeline.store.erasures import ERASED_NAME
from pipeline.store.submissions import kept_key

router = APIRouter(tags=["jobs"])

_URLS_AT_ONCE = 500
"""URLs committed together."""

_FILES = {
    "type": "array",
    "items": BINARY,
    "minItems": 1,
    "description": "Recordings, one part each",
}
_URLS = {
    "type": "array",
    "items": {
        "type": "string",
        "maxLength": URL_LIMIT,
        "examples": ["https://example.com/call-1.wav"],
    },
    "maxItems": URLS_LIMIT,
    "description": "http and https URLs of recordings, which are then fetched; one part each",
}
_SAID = {
    name: {"type": "string", "description": what, "examples": [example]}
    for name, (what, example) in TEXTS.items()
}
_SAID_IN_JSON = {
    **_SAID,
    "metadata": {"type": "object", "description": TEXTS["metadata"][0]},
    "wait_budget_s": {"type": "number", "description": TEXTS["wait_budget_s"][0]},
    "speakers": {
        "type": "array",
        "items": {"type": "string", "minLength": 1, "maxLength": SPEAKER_LIMIT},
        "minItems": 2,
        "maxItems": 2,
        "description": TEXTS["speakers"][0],
    },
    "duration_hint_s": {
        "type": "number",
        "exclusiveMinimum": 0,
        "description": TEXTS["duration_hint_s"][0],
    },
}
_OBJECT = {"type": "object", "additionalProperties": False}
_FORM = {**_OBJECT, "properties": {"files": _FILES, "urls": _URLS, **_SAID}}
_JSON = {**_OBJECT, "required": ["urls"], "properties": {"urls": _URLS, **_SAID_IN_JSON}}
_BODY = {
    "required": True,
    "content": {
        "multipart/form-data": {"schema": _FORM},
        "application/json": {
            "schema": _JSON,
            "example": {"urls": ["https://example.com/call-1.wav"], "batch_id": "monday"},
        },
    },
}

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="1 to 200 visible characters: the request is carried out once, however often "
        "it comes within 7 days",
    ),
]


@router.post(
    "/v1/jobs",
    status_code=202,
    summary="Submit recordings",
    openapi_extra={"requestBody": _BODY},
    responses=problems(
        *(BadRequest, UploadTooSlow, KeyReused, RequestInProgress, BacklogFull, PartDown)
    ),
)
async def submit(
    request: Request,
    response: Response,
    caller: GivenSubmitter,
    parts: GivenParts,
    backlog: GivenBacklog,
    idempotency_key: Key = None,
) -> Submission:
    """Submit recordings, as files or by their URLs. Each becomes a job of its own, durable when
    this answers.

    What cannot be transcribed (empty, too large) is a failed job, and the others go on. Where more
    audio waits than is taken in, all of it is refused and may be sent again.
    """
    if asks_first(request):
        await run_in_threadpool(backlog.check)
    limits, folder = Limits.of(parts.settings), parts.settings.home / "uploads"
    longest_s = parts.settings.max_duration_h * 3600
    async with read_submission(request, folder, limits, longest_s) as submitted:
        asked = _Request(parts, caller.tenant, backlog, submitted, limits.file_bytes)
        if idempotency_key is None:
            answer, _ = await run_in_threadpool(asked.carry_out, asked.new_ids())
        else:
            key = kept_key(caller, checked_key(idempotency_key))
            fingerprint = submitted.fingerprint()
            ids = asked.new_ids()
            answer, replayed = await run_in_threadpool(
                once, parts, key, fingerprint, ids, asked.carry_out_again
            )
            if replayed:
                response.headers["Idempotency-Replayed"] = "true"
        return Submission.model_validate(answer)


@dataclass
class _Request:
    """One submission while it is carried out. Its methods block: call them in a thread."""

    parts: Parts
    tenant: str | None
    backlog: Backlog
    submitted: Submitted
    limit_bytes: int
    urls: list[str | BadRequest] = field(default_factory=list)
    accepted: dict[str, Accepted] = field(default_factory=dict)
    """By job id."""
    made: tuple[str, ...] = ()
    """Ids this request chose; another run of it may have chosen others before."""

    def __post_init__(self) -> None:
        self.urls = self.submitted.checked_urls()

    @property
    def _said(self) -> dict[str, Any]:
        return {**self.submitted.said, "tenant": self.tenant}

    def new_ids(self) -> list[str]:
        """An id for each recording that can become a job: files, then URLs."""
        good = [url for url in self.urls if isinstance(url, str)]
        self.made = tuple(new_job_id() for _ in (*self.submitted.files, *good))
        return list(self.made)

    def carry_out(self, job_ids: Sequence[str], again: bool = False) -> Carried:
        """Accept every recording. Raises `PartDown` only when it stopped the very first one.

        When a part goes down in between, the recordings before it are jobs and are answered as
        such; the rest is answered without an id, to be sent again.
        """
        if again and job_ids and not self.submitted.given.get("batch_id"):
            self.submitted.said["batch_id"] = job_ids[0]  # not chosen anew by each run
        # here, where a request that was carried out before does not come
        longest_s = self.parts.settings.max_duration_h * 3600
        self.backlog.take_in(audio_s(self.submitted, longest_s))
        down: PartDown | None = None
        try:
            self._accept_files(job_ids, again)
            self._accept_urls(job_ids[len(self.submitted.files) :])
        except PartDown as error:
            down = error
            if not self.accepted:
                raise
        if tuple(job_ids) != self.made:
            self._keep_erased()
        sender = self.tenant or self.submitted.said.get("batch_id")
        hand_over(self.parts.handover, self.accepted.values(), sender)
        return self._answer(job_ids, down).model_dump(mode="json"), down is None

    def carry_out_again(self, job_ids: Sequence[str]) -> Carried:
        """The same, where another run of this request may be under way or have been cut off."""
        return self.carry_out(job_ids, again=True)

    def _accept_files(self, job_ids: Sequence[str], again: bool) -> None:
        for file, job_id in zip(self.submitted.files, job_ids, strict=False):
            upload = Upload(file.name, self.submitted.chunks(file), **self._said)
            store, storage = self.parts.store, self.parts.storage
            done = accept(store, storage, upload, self.limit_bytes, job_id, again=again)
            self.accepted[job_id] = done

    def _keep_erased(self) -> None:
        """What an earlier run made and somebody erased since must not come back by this one."""
        store, storage, queues = self.parts.store, self.parts.storage, self.parts.queues
        for job_id in self.accepted:
            if is_erased(storage, job_id):
                with suppress(NoSuchJob):
                    erase(store, storage, queues, job_id)
                self.accepted[job_id] = Accepted(job_id, refused=Erased("It was erased."))

    def _accept_urls(self, job_ids: Sequence[str]) -> None:
        good = [url for url in self.urls if isinstance(url, str)]
        pairs = list(zip(job_ids, good, strict=True))
        for start in range(0, len(pairs), _URLS_AT_ONCE):
            page = dict(pairs[start : start + _URLS_AT_ONCE])
            for done in accept_urls(self.parts.store, page, self._said):
                self.accepted[done.job_id] = done

    def _answer(self, job_ids: Sequence[str], down: PartDown | None) -> Submission:
        ids = iter(job_ids)
        files = [self._line(file.name, next(ids), down) for file in self.submitted.files]
        urls = [
            _refused(given, url) if isinstance(url, BadRequest) else self._url(url, next(ids), down)
            for given, url in zip(self.submitted.urls, self.urls, strict=True)
        ]
        return Submission(batch_id=self.submitted.said["batch_id"], jobs=files + urls)

    def _url(self, url: str, job_id: str, down: PartDown | None) -> AcceptedFile:
        line = self._line(name_in_url(url) or UNNAMED, job_id, down)
        if line.error and line.error.code == Erased.code:
            return line
        return line.model_copy(update={"source_url": shown_url(url)})

    def _line(self, name: str, job_id: str, down: PartDown | None) -> AcceptedFile:
        done = self.accepted.get(job_id)
        error: FairscribeError | None = done.refused if done else down
        if isinstance(error, Erased):  # the answer is kept
            name = ERASED_NAME
        return AcceptedFile(
            id=done.job_id if done else None,
            file_name=name,
            source_url=None,
            status="failed" if error else "queued",
            error=_reason(error) if error else None,
        )


def _refused(given: Any, error: BadRequest) -> AcceptedFile:
    """The line of what is no URL: shown as it came, cut short."""
    shown = given[:100] if isinstance(given, str) and "@" not in given else ""
    shown = shown.replace("\0", "\ufffd")  # Postgres, which keeps the answer, takes no NUL
    return AcceptedFile(
        id=None, file_name=UNNAMED, source_url=shown, status="failed", error=_reason(error)
    )


def _reason(error: FairscribeError) -> Reason:
    return Reason(code=error.code, message=public_message(error))
