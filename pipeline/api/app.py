"""Puts the HTTP door together: `uvicorn pipeline.api.app:create --factory`."""

from __future__ import annotations

import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version

from fastapi import Depends, FastAPI

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
from pipeline.api.arriving import SmallBodies
from pipeline.api.backlog import backlog_of
from pipeline.api.described import (
    SERVERS,
    TAGS,
    describe,
    openai_problems,
    operation_id,
    problems,
)
from pipeline.api.problems import answer_with_problems
from pipeline.api.rate import within_rate
from pipeline.api.waiting import Waiting
from pipeline.errors import TooManyRequests
from pipeline.logs import configure
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
    for part in (uploads, status, batches, calls, line, order, trial):
        app.include_router(
            part.router, responses=problems(TooManyRequests), dependencies=[Depends(within_rate)]
        )
    app.include_router(
        openai.router,
        responses=openai_problems(TooManyRequests(30.0)),
        dependencies=[Depends(within_rate)],
    )
    for part in (health, measured):
        app.include_router(part.router)
    app.add_middleware(SmallBodies)
    answer_with_problems(app)
    describe(app)
    return app


@asynccontextmanager
async def _with_parts(app: FastAPI) -> AsyncIterator[None]:
    _let_many_in()
    settings = read_settings()
    configure("api", settings.log_level)
    app.state.parts = open_parts(settings)
    app.state.waiting = Waiting(app.state.parts.store)
    app.state.backlog = backlog_of(app.state.parts)
    try:
        yield
    finally:
        app.state.waiting.close()
        app.state.parts.store.dispose()


def _let_many_in() -> None:
    """As many open files as this process may have: each connection is one, and what a shell gives
    is often 1,024, less than the long polls of one evening.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
