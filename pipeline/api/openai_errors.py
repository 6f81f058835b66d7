"""Errors in the form OpenAI's clients turn into their own exceptions.

`{"error": {"message", "type", "param", "code"}}`. Only the form is here: which error has which
status is decided by the table in problems.py, but for the few where those clients expect another.
"""

from __future__ import annotations

from http import HTTPStatus

from fastapi.responses import JSONResponse

from pipeline.errors import BadRequest, NoSuchModel

CODES = {"no_such_model": "model_not_found", "bad_request": None}
"""Our code -> OpenAI's, where it has one of its own; null is what it says of most bad requests."""


class BadParameter(BadRequest):
    """A parameter has a value that cannot be used."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class ModelNotFound(NoSuchModel):
    """The model asked for is not the one that is served."""

    param = "model"


def is_openais(path: str) -> bool:
    """Whether the path is one of OpenAI's, so that their clients read the answer.

    >>> is_openais("/v1/audio/speech"), is_openais("/v1/models"), is_openais("/v1/jobs")
    (True, True, False)
    """
    return path == "/v1/models" or path.startswith(("/v1/models/", "/v1/audio/"))


def openai_error(
    status: int,
    code: str,
    detail: str,
    headers: dict[str, str] | None = None,
    param: str | None = None,
) -> JSONResponse:
    """The trouble as OpenAI would tell it.

    Its client sends a request again after many statuses, and with it the recording:
    `x-should-retry` says when that helps, which is only while a part is down.
    """
    again = status == HTTPStatus.SERVICE_UNAVAILABLE
    if status == HTTPStatus.UNPROCESSABLE_ENTITY:
        status = HTTPStatus.BAD_REQUEST
    error = {
        "message": detail,
        "type": "server_error" if status >= 500 else "invalid_request_error",
        "param": param,
        "code": CODES.get(code, code),
    }
    told = {**(headers or {}), "x-should-retry": "true" if again else "false"}
    return JSONResponse({"error": error}, status, told)
