"""Puts the HTTP door together: `uvicorn pipeline.api.app:create --factory`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI

from pipeline.api import (
    batches,
    calls,
    health,
    line,
    measured,
    openai,
    order,
    status,
    trial,
    uploads,
)
from pipeline.api.described import SERVERS, TAGS, describe, operation_id
from pipeline.api.headers import SafeHeaders
from pipeline.api.problems import answer_with_problems
from pipeline.logs import QuietPaths, configure
from pipeline.parts import open_parts
from pipeline.settings import read_settings


def create() -> FastAPI:
    """The application. Settings are read when it starts, once; nothing connects before it is used.

    Starting it raises `BadSetting` for a setting that cannot be used.
    """
    app = FastAPI(
        title="Fairscribe",
        version=version("fairscribe"),
        summary="Call recordings in, transcripts out, in a fair order.",
        lifespan=_with_parts,
        description="Errors answer `application/problem+json` with a stable `code`, and those of "
        "OpenAI's endpoints OpenAI's form. Names that end in `_s` are seconds.",
        license_info={"name": "GPL-3.0-or-later", "identifier": "GPL-3.0-or-later"},
        openapi_tags=TAGS,
        servers=SERVERS,
        generate_unique_id_function=operation_id,
    )
    for part in (uploads, status, batches, calls, line, order, trial, openai, health, measured):
        app.include_router(part.router)
    answer_with_problems(app)
    app.add_middleware(SafeHeaders)
    describe(app)
    return app


@asynccontextmanager
async def _with_parts(app: FastAPI) -> AsyncIterator[None]:
    settings = read_settings()
    configure("api", settings.log_level)
    words = {word for path in app.openapi()["paths"] for word in path.split("/")}
    logging.getLogger("uvicorn.access").addFilter(QuietPaths(words))
    app.state.parts = open_parts(settings)
    try:
        yield
    finally:
        app.state.parts.store.dispose()
