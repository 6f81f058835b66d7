"""What endpoints are given: the parts of this process, and ids of things that can exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Path, Request

from pipeline.api.backlog import Backlog
from pipeline.api.waiting import Waiting
from pipeline.caller import ANYONE, Caller, Scope
from pipeline.errors import NoSuchBatch, NoSuchCall, NoSuchJob
from pipeline.job import JobView
from pipeline.parts import Parts
from pipeline.settings import Settings
from pipeline.store import views
from pipeline.store.session import transaction
from pipeline.transcript.legs import CALL_ID_LIMIT


# async, though they wait for nothing: what is not gets a thread of its own for each request
async def _parts(request: Request) -> Parts:
    parts: Parts = request.app.state.parts
    return parts


async def _waiting(request: Request) -> Waiting:
    waiting: Waiting = request.app.state.waiting
    return waiting


async def _backlog(request: Request) -> Backlog:
    backlog: Backlog = request.app.state.backlog
    return backlog


def _caller_with(scope: Scope) -> Callable[[Request], Caller]:
    """A dependency: who asks, if its key allows `scope`."""

    def caller(request: Request) -> Caller:
        return ANYONE

    return caller


async def _job_id(job_id: Annotated[str, Path(description="The id `POST /v1/jobs` gave")]) -> str:
    """The id in canonical spelling; raises `NoSuchJob` for what cannot be one."""
    try:
        return str(UUID(job_id))
    except ValueError:
        raise NoSuchJob from None


async def _batch_id(
    batch_id: Annotated[str, Path(description="As given to `POST /v1/jobs`")],
) -> str:
    """The id; raises `NoSuchBatch` for what cannot be one."""
    if not batch_id or "\0" in batch_id:
        raise NoSuchBatch
    return batch_id


async def _call_id(call_id: Annotated[str, Path(description="As metadata named it")]) -> str:
    """The id; raises `NoSuchCall` for what cannot be one."""
    if not 1 <= len(call_id) <= CALL_ID_LIMIT or "\0" in call_id:
        raise NoSuchCall
    return call_id


def existing_job(parts: Parts, job_id: str) -> JobView:
    """The job; raises `NoSuchJob`."""
    with transaction(parts.store) as c:
        view = views.view(c, job_id)
    if view is None:
        raise NoSuchJob
    return view


def flower_of(settings: Settings) -> str | None:
    """Where people reach Flower, as far as the settings tell; None when they do not."""
    if settings.flower_url is not None:
        return settings.flower_url.rstrip("/")
    host = f"[{settings.flower_host}]" if ":" in settings.flower_host else settings.flower_host
    known = settings.flower_port and host not in ("0.0.0.0", "[::]")
    return f"http://{host}:{settings.flower_port}" if known else None


GivenSubmitter = Annotated[Caller, Depends(_caller_with(Scope.SUBMIT))]
GivenReader = Annotated[Caller, Depends(_caller_with(Scope.READ))]
GivenListener = Annotated[Caller, Depends(_caller_with(Scope.LISTEN))]
GivenOperator = Annotated[Caller, Depends(_caller_with(Scope.OPERATE))]
GivenWaiting = Annotated[Waiting, Depends(_waiting)]
GivenBacklog = Annotated[Backlog, Depends(_backlog)]
GivenParts = Annotated[Parts, Depends(_parts)]
GivenJobId = Annotated[str, Depends(_job_id)]
GivenBatchId = Annotated[str, Depends(_batch_id)]
GivenCallId = Annotated[str, Depends(_call_id)]
