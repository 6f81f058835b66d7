"""From errors to answers: one table, one form (problem+json, RFC 9457).

Endpoints raise; nothing else here turns an error into a status. What a driver or a library says
of its own troubles (hosts, users, paths) goes to the log and never to the caller. Where OpenAI's
clients call, the same trouble is told in the form they know (openai_errors.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from pipeline.api.headers import make_safe
from pipeline.api.openai_errors import is_openais, openai_error
from pipeline.errors import (
    BacklogFull,
    BadRequest,
    ComeLater,
    Erased,
    FairscribeError,
    JobFailed,
    KeyMissing,
    KeyReused,
    KeyUnknown,
    NoRecording,
    NoSuchBatch,
    NoSuchCall,
    NoSuchDelivery,
    NoSuchJob,
    NoSuchKey,
    NoSuchModel,
    NoSuchTrial,
    NoSuchWebhook,
    NotRetryable,
    OutOfRange,
    PartDown,
    RecordingRefused,
    RequestInProgress,
    ScopeMissing,
    TooFewJobs,
    TooManyRequests,
    TranscriptNotReady,
    TrialRunning,
    UploadTooSlow,
)
from pipeline.logs import log

STATUS: dict[type[FairscribeError], HTTPStatus] = {
    BadRequest: HTTPStatus.BAD_REQUEST,
    KeyReused: HTTPStatus.UNPROCESSABLE_ENTITY,
    NoSuchJob: HTTPStatus.NOT_FOUND,
    NoSuchBatch: HTTPStatus.NOT_FOUND,
    NoSuchCall: HTTPStatus.NOT_FOUND,
    NoSuchModel: HTTPStatus.NOT_FOUND,
    NoSuchTrial: HTTPStatus.NOT_FOUND,
    NoSuchKey: HTTPStatus.NOT_FOUND,
    NoSuchWebhook: HTTPStatus.NOT_FOUND,
    NoSuchDelivery: HTTPStatus.NOT_FOUND,
    NoRecording: HTTPStatus.NOT_FOUND,
    OutOfRange: HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
    Erased: HTTPStatus.GONE,
    KeyMissing: HTTPStatus.UNAUTHORIZED,
    KeyUnknown: HTTPStatus.UNAUTHORIZED,
    ScopeMissing: HTTPStatus.FORBIDDEN,
    UploadTooSlow: HTTPStatus.REQUEST_TIMEOUT,
    TooManyRequests: HTTPStatus.TOO_MANY_REQUESTS,
    BacklogFull: HTTPStatus.SERVICE_UNAVAILABLE,
    TrialRunning: HTTPStatus.CONFLICT,
    TooFewJobs: HTTPStatus.CONFLICT,
    TranscriptNotReady: HTTPStatus.CONFLICT,
    NotRetryable: HTTPStatus.CONFLICT,
    RequestInProgress: HTTPStatus.CONFLICT,
    RecordingRefused: HTTPStatus.UNPROCESSABLE_ENTITY,
    JobFailed: HTTPStatus.INTERNAL_SERVER_ERROR,
    PartDown: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""Error class, or the nearest of its bases, -> status. An error that is not here is a 500."""

RETRY_AFTER_S = 2
"""When to ask again after a part did not answer; embedded servers restart within this."""

_PASSING = (PartDown, RequestInProgress)
"""Errors that pass by themselves: the answer says when to ask again."""


class ProblemResponse(JSONResponse):
    """JSON with the media type of a problem."""

    media_type = "application/problem+json"


@dataclass(frozen=True)
class Trouble:
    """What went wrong, before it takes the form of an answer."""

    status: int
    code: str
    """Stable, for programs."""
    detail: str
    """One sentence, for people."""
    headers: dict[str, str] = field(default_factory=dict)
    param: str | None = None
    """The parameter at fault, where that is known."""


INTERNAL = Trouble(
    HTTPStatus.INTERNAL_SERVER_ERROR,
    "internal",
    "Something went wrong here; the log of the API tells what.",
)
"""All a caller learns of what nobody foresaw."""


def problem(
    status: int, code: str, detail: str, headers: dict[str, str] | None = None
) -> ProblemResponse:
    """An answer that says what went wrong.

    `code` is stable, for programs; `detail` is one sentence, for people.
    """
    body = {
        "type": f"urn:fairscribe:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": int(status),
        "detail": detail,
        "code": code,
    }
    return ProblemResponse(body, status, headers)


def trouble_of(error: FairscribeError) -> Trouble:
    """What `STATUS` makes of `error`."""
    status = status_of(type(error))
    if status is None:
        return INTERNAL
    headers = _headers_of(error)
    param = getattr(error, "param", None)
    return Trouble(status, error.code, public_message(error), headers, param)


def _headers_of(error: FairscribeError) -> dict[str, str]:
    if isinstance(error, ComeLater):
        return {"Retry-After": str(math.ceil(error.retry_after_s))}
    if isinstance(error, _PASSING):
        return {"Retry-After": str(RETRY_AFTER_S)}
    if isinstance(error, OutOfRange):
        return {"Content-Range": f"bytes */{error.size_bytes}"}
    if status_of(type(error)) is HTTPStatus.UNAUTHORIZED:
        return {"WWW-Authenticate": "Bearer"}
    return {}


def status_of(kind: type[FairscribeError]) -> HTTPStatus | None:
    """The status of the class or of the nearest of its bases; None: nobody foresaw it here."""
    return next((STATUS[base] for base in kind.__mro__ if base in STATUS), None)


def _answer(request: Request, trouble: Trouble) -> Response:
    """The trouble in the form the caller of this path understands."""
    if is_openais(request.url.path):
        return openai_error(
            trouble.status, trouble.code, trouble.detail, trouble.headers, trouble.param
        )
    return problem(trouble.status, trouble.code, trouble.detail, trouble.headers)


def public_message(error: FairscribeError) -> str:
    """What a caller may read of `error`.

    A part that is down is named; what its driver says after the colon names hosts and users.
    """
    if isinstance(error, PartDown):
        return error.message.partition(":")[0].rstrip(".") + "; try again shortly."
    return error.message


def answer_with_problems(app: FastAPI) -> None:
    """Make every error of `app` a problem."""
    app.add_exception_handler(FairscribeError, fairscribe_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(ClientDisconnect, _client_gone)
    app.add_exception_handler(Exception, _anything_else)


async def fairscribe_error(request: Request, error: Exception) -> Response:
    """The answer to a request that ended in one of our errors."""
    assert isinstance(error, FairscribeError)
    if isinstance(error, PartDown):
        log().warning("part_down", why=error.message)
    elif status_of(type(error)) is None:
        log().error("unexpected_error", code=error.code, why=error.message)
    return _answer(request, trouble_of(error))


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    wrong = BadRequest("; ".join(_sentence(one) for one in error.errors()) + ".")
    return _answer(request, trouble_of(wrong))


def _sentence(one: dict[str, Any]) -> str:
    """One of pydantic's complaints in words: where, what, and the value when it is short.

    >>> _sentence({"loc": ("query", "wait"), "msg": "Input should be below 60", "input": "99"})
    "wait: input should be below 60 (it is '99')"
    """
    where = ".".join(str(step) for step in one["loc"][1:]) or str(one["loc"][0])
    said = str(one["msg"])
    said = said[:1].lower() + said[1:]
    value = one.get("input")
    short = isinstance(value, str | int | float) and len(str(value)) <= 100
    return f"{where}: {said} (it is {value!r})" if short else f"{where}: {said}"


async def _http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, FairscribeError):  # see arriving.SmallBodies
        return await fairscribe_error(request, error.__cause__)
    code = HTTPStatus(error.status_code).name.lower()
    headers = dict(error.headers or {})
    return _answer(request, Trouble(error.status_code, code, str(error.detail), headers))


async def _client_gone(request: Request, error: Exception) -> Response:
    return _answer(
        request, trouble_of(BadRequest("The request ended before its body was complete."))
    )


async def _anything_else(request: Request, error: Exception) -> Response:
    # starlette raises it again after this answer, so the server's log has the traceback; and no
    # middleware of ours sees this answer
    answer = _answer(request, INTERNAL)
    make_safe(answer.headers)
    return answer
