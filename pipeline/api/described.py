"""What /openapi.json says beyond what the framework finds out by itself.

An endpoint names the errors it raises, `responses=problems(NoSuchJob)`: their statuses come from
the table in problems.py, their examples from their docstrings. `describe` adds the examples of
requests and answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from pipeline.api.bodies import Problem, TranscriptBody
from pipeline.api.call_bodies import CallTranscriptBody
from pipeline.api.examples import example_of
from pipeline.api.openai_bodies import OpenAIError, Transcription, VerboseTranscription
from pipeline.api.openai_errors import openai_error
from pipeline.api.problems import (
    INTERNAL,
    RETRY_AFTER_S,
    Trouble,
    problem,
    trouble_of,
)
from pipeline.errors import (
    ComeLater,
    FairscribeError,
    KeyMissing,
    KeyUnknown,
    PartDown,
    ScopeMissing,
)

BINARY = {"type": "string", "format": "binary", "contentMediaType": "application/octet-stream"}
"""Schema of a file in a form, in the words of OpenAPI 3.1 and of its readers of 3.0."""

TAGS = [
    {"name": "jobs", "description": "Recordings in, transcripts out, and what lies between."},
    {"name": "batches", "description": "Jobs that belong together: how far they are, as it goes."},
    {"name": "calls", "description": "Calls recorded in several files, joined by their metadata."},
    {"name": "webhooks", "description": "Being told of jobs that ended, instead of asking."},
    {"name": "queue", "description": "Who is next, and by which rule."},
    {
        "name": "openai",
        "description": "OpenAI's audio API, so that programs written for it run here: give their "
        "client this service's address with `/v1` as `base_url`. Errors have OpenAI's form.",
    },
    {"name": "access", "description": "Who asks, and who read, heard or erased what."},
    {"name": "health", "description": "For whoever starts, watches or balances this process."},
]

SERVERS = [{"url": "/", "description": "The service that gave this document"}]

Responses = dict[int | str, dict[str, Any]]

_UNSEEN = (
    *(Problem, TranscriptBody, CallTranscriptBody),
    *(OpenAIError, Transcription, VerboseTranscription),
)
"""Bodies the framework does not see: they are answered as errors, or in one format of several."""

_RETRY_AFTER = {
    "description": "Seconds until it is worth asking again",
    "schema": {"type": "integer", "minimum": 1},
    "example": RETRY_AFTER_S,
}


NOT_ALLOWED = (KeyMissing, KeyUnknown, ScopeMissing)
"""What every endpoint may say where keys are on, but for those that need none."""


_HEADERS = {
    "Content-Range": {
        "description": "How many bytes there are",
        "schema": {"type": "string"},
        "example": "bytes */3424",
    },
    "Retry-After": _RETRY_AFTER,
    "WWW-Authenticate": {
        "description": "How to say who asks",
        "schema": {"type": "string"},
        "example": "Bearer",
    },
}

KEY = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "fs_ID_SECRET",
    "description": "An API key, as `fairscribe key add` printed it. Needed where the service "
    "listens beyond its own machine.",
}


def problems(*errors: type[FairscribeError], needs_key: bool = True) -> Responses:
    """`responses` of an endpoint that raises `errors`; what nobody foresaw is always among them."""
    kinds = (*errors, *(NOT_ALLOWED if needs_key else ()))
    told = [kind(30.0) if issubclass(kind, ComeLater) else kind() for kind in kinds]
    return _told(told, "application/problem+json", Problem, _as_problem)


def openai_problems(*errors: FairscribeError) -> Responses:
    """The same where OpenAI's clients call."""
    told = [*errors, *(kind() for kind in NOT_ALLOWED)]
    return _told(told, "application/json", OpenAIError, _as_openai_error)


def ref(body: type[BaseModel]) -> dict[str, Any]:
    """The schema of a body, by its name."""
    return {"$ref": f"#/components/schemas/{body.__name__}"}


def operation_id(route: APIRoute) -> str:
    """What a generated client calls it: as its function is called."""
    return route.name


def describe(app: FastAPI) -> None:
    """Make `app` tell all of this at /openapi.json."""
    found = app.openapi

    def complete() -> dict[str, Any]:
        first = app.openapi_schema is None
        document = found()
        if first:
            _complete(document)
        return document

    app.openapi = complete  # type: ignore[method-assign]


def _told(
    errors: list[FairscribeError],
    media_type: str,
    body: type[BaseModel],
    answer: Callable[[Trouble], Response],
) -> Responses:
    told: Responses = {}
    for trouble in [*map(_trouble, errors), INTERNAL]:
        made = answer(trouble)
        response = told.setdefault(made.status_code, _empty(made.status_code, media_type, body))
        response["content"][media_type]["examples"][trouble.code] = {
            "summary": trouble.detail,
            "value": json.loads(bytes(made.body)),
        }
        response["description"] += f" `{trouble.code}`"
        if trouble.headers:
            response["headers"] = {name: _HEADERS[name] for name in trouble.headers}
    return told


def _empty(status: int, media_type: str, body: type[BaseModel]) -> dict[str, Any]:
    return {
        "description": f"{HTTPStatus(status).phrase}:",
        "content": {media_type: {"schema": ref(body), "examples": {}}},
    }


def _trouble(error: FairscribeError) -> Trouble:
    """As a caller meets it; of a part that is down, one is named."""
    example = PartDown("Postgres does not answer.") if isinstance(error, PartDown) else error
    return trouble_of(example)


def _as_problem(trouble: Trouble) -> Response:
    return problem(trouble.status, trouble.code, trouble.detail)


def _as_openai_error(trouble: Trouble) -> Response:
    return openai_error(trouble.status, trouble.code, trouble.detail, param=trouble.param)


def _complete(document: dict[str, Any]) -> None:
    known = document.setdefault("components", {}).setdefault("schemas", {})
    _, unseen = models_json_schema(
        [(body, "serialization") for body in _UNSEEN],
        ref_template="#/components/schemas/{model}",
    )
    known.update(unseen["$defs"])
    document["components"]["securitySchemes"] = {"api_key": KEY}
    for operation in _operations(document):
        if "401" in operation["responses"]:
            operation["security"] = [{"api_key": []}]
        # the framework expects to answer 422 to what the door answers with 400
        if "HTTPValidationError" in str(operation["responses"].get("422")):
            del operation["responses"]["422"]
        for body in (operation.get("requestBody", {}), *operation["responses"].values()):
            for content in body.get("content", {}).values():
                if "schema" in content and not {"example", "examples"} & set(content):
                    content["example"] = example_of(content["schema"], known)
    for unused in ("HTTPValidationError", "ValidationError"):
        known.pop(unused, None)


def _operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in document["paths"].values():
        yield from methods.values()
