"""From errors to answers: one table, one form (problem+json, RFC 9457).

Endpoints raise; nothing else here turns an error into a status. What a driver or a library says
of its own troubles (hosts, users, paths) goes to the log and never to the caller.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from pipeline.errors import (
    BadRequest,
    FairscribeError,
    KeyReused,
    NoSuchBatch,
    NoSuchJob,
    NoSuchModel,
    NotRetryable,
    PartDown,
    RecordingRefused,
    RequestInProgress,
    TranscriptNotReady,
)
from pipeline.logs import log

STATUS: dict[type[FairscribeError], HTTPStatus] = {
    BadRequest: HTTPStatus.BAD_REQUEST,
    KeyReused: HTTPStatus.UNPROCESSABLE_ENTITY,
    NoSuchJob: HTTPStatus.NOT_FOUND,
    NoSuchBatch: HTTPStatus.NOT_FOUND,
    NoSuchModel: HTTPStatus.NOT_FOUND,
    TranscriptNotReady: HTTPStatus.CONFLICT,
    NotRetryable: HTTPStatus.CONFLICT,
    RequestInProgress: HTTPStatus.CONFLICT,
    RecordingRefused: HTTPStatus.UNPROCESSABLE_ENTITY,
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


def problem_of(error: FairscribeError) -> ProblemResponse:
    """The answer `STATUS` gives for `error`."""
    known = (kind for kind in type(error).__mro__ if kind in STATUS)
    kind = next(known, None)
    if kind is None:
        log().error("unexpected_error", code=error.code, why=error.message)
        return _internal()
    if kind is PartDown:
        log().warning("part_down", why=error.message)
    headers = {"Retry-After": str(RETRY_AFTER_S)} if kind in _PASSING else None
    return problem(STATUS[kind], error.code, public_message(error), headers)


def public_message(error: FairscribeError) -> str:
    """What a caller may read of `error`.

    A part that is down is named; what its driver says after the colon names hosts and users.
    """
    if isinstance(error, PartDown):
        return error.message.partition(":")[0].rstrip(".") + "; try again shortly."
    return error.message


def answer_with_problems(app: FastAPI) -> None:
    """Make every error of `app` a problem."""
    app.add_exception_handler(FairscribeError, _fairscribe_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(ClientDisconnect, _client_gone)
    app.add_exception_handler(Exception, _anything_else)


async def _fairscribe_error(_: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, FairscribeError)
    return problem_of(error)


async def _validation_error(_: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, RequestValidationError)
    return problem_of(BadRequest("; ".join(_sentence(one) for one in error.errors()) + "."))


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


async def _http_exception(_: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, HTTPException)
    code = HTTPStatus(error.status_code).name.lower()
    return problem(error.status_code, code, str(error.detail), dict(error.headers or {}))


async def _client_gone(_: Request, error: Exception) -> ProblemResponse:
    return problem_of(BadRequest("The request ended before its body was complete."))


async def _anything_else(_: Request, error: Exception) -> ProblemResponse:
    # starlette raises it again after this answer, so the server's log has the traceback
    return _internal()


def _internal() -> ProblemResponse:
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    return problem(status, "internal", "Something went wrong here; the log of the API tells what.")
