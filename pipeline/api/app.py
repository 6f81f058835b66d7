"""Puts the HTTP door together: `uvicorn pipeline.api.app:create --factory`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI

from pipeline.api import batches, health, order, status, uploads
from pipeline.api.bodies import Problem
from pipeline.api.problems import answer_with_problems
from pipeline.logs import configure
from pipeline.parts import open_parts
from pipeline.settings import read_settings

_PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Problem, "description": "The request's fault; `code` says which"},
    "5XX": {"model": Problem, "description": "Our fault; 503 says when to ask again"},
}


def create() -> FastAPI:
    """The application. Settings are read when it starts, once; nothing connects before it is used.

    Starting it raises `BadSetting` for a setting that cannot be used.
    """
    app = FastAPI(
        title="Fairscribe",
        version=version("fairscribe"),
        summary="Call recordings in, transcripts out, in a fair order.",
        lifespan=_with_parts,
        responses=_PROBLEMS,
    )
    for part in (uploads, status, batches, order, health):
        app.include_router(part.router)
    answer_with_problems(app)
    return app


@asynccontextmanager
async def _with_parts(app: FastAPI) -> AsyncIterator[None]:
    configure("api")
    app.state.parts = open_parts(read_settings())
    try:
        yield
    finally:
        app.state.parts.store.dispose()
