"""What endpoints are given: the parts of this process, and ids of things that can exist."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Path, Request
from starlette.concurrency import run_in_threadpool

from pipeline.api.backlog import Backlog
from pipeline.api.waiting import Waiting
from pipeline.caller import Caller, Scope
from pipeline.errors import NoSuchBatch, NoSuchCall, NoSuchJob, ScopeMissing
from pipeline.job import JobView
from pipeline.parts import Parts
from pipeline.settings import Settings, address, nearby
from pipeline.store import views
from pipeline.store.session import transaction
from pipeline.transcript.legs import CALL_ID_LIMIT


# async, though they wait for nothing: what is not gets a thread of its own for each request
async def _parts(request: Request) -> Parts:
    parts: Parts = request.app.state.parts
    return parts


GivenParts = Annotated[Parts, Depends(_parts)]


async def _waiting(request: Request) -> Waiting:
    waiting: Waiting = request.app.state.waiting
    return waiting


async def _backlog(request: Request) -> Backlog:
    backlog: Backlog = request.app.state.backlog
    return backlog


def caller_of(request: Request) -> Caller:
    """Who asks, as the door found out."""
    caller: Caller = request.state.caller
    return caller


def _caller_with(*scopes: Scope) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency: who asks, if its key allows one of `scopes`; else it raises `ScopeMissing`."""

    async def caller(request: Request) -> Caller:
        found = caller_of(request)
        if not any(found.may(scope) for scope in scopes):
            named = " or ".join(f"`{scope.value}`" for scope in scopes)
            raise ScopeMissing(f"The API key does not allow this: it needs the scope {named}.")
        return found

    return caller


def needs(*scopes: Scope) -> list[Any]:
    """`dependencies` of an endpoint that is not told who asks: one of `scopes` is needed."""
    return [Depends(_caller_with(*scopes))]


async def _job_id(
    request: Request,
    parts: GivenParts,
    job_id: Annotated[str, Path(description="The id `POST /v1/jobs` gave")],
) -> str:
    """The id in canonical spelling; raises `NoSuchJob` for what cannot be one.

    Every endpoint about one job takes its id from here, so another tenant's job is none to all of
    them, in the same words and by the same question as one that never was.
    """
    try:
        known = str(UUID(job_id))
    except ValueError:
        raise NoSuchJob from None
    caller = caller_of(request)
    if caller.key_id is not None and not await run_in_threadpool(_sees, parts, caller, known):
        raise NoSuchJob
    return known


def _sees(parts: Parts, caller: Caller, job_id: str) -> bool:
    with transaction(parts.store) as c:
        return views.exists_for(c, job_id, caller)


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
    # of what listens everywhere only this machine knows an address
    known = settings.flower_port and nearby(settings.flower_host) == settings.flower_host
    return address(settings.flower_host, settings.flower_port) if known else None


GivenCaller = Annotated[Caller, Depends(_caller_with(*Scope))]
"""Whoever has a key, whatever it allows."""
GivenSubmitter = Annotated[Caller, Depends(_caller_with(Scope.SUBMIT))]
GivenReader = Annotated[Caller, Depends(_caller_with(Scope.READ))]
GivenListener = Annotated[Caller, Depends(_caller_with(Scope.LISTEN))]
GivenOnlooker = Annotated[Caller, Depends(_caller_with(Scope.READ, Scope.OPERATE))]
GivenWaiting = Annotated[Waiting, Depends(_waiting)]
GivenBacklog = Annotated[Backlog, Depends(_backlog)]
GivenJobId = Annotated[str, Depends(_job_id)]
GivenBatchId = Annotated[str, Depends(_batch_id)]
GivenCallId = Annotated[str, Depends(_call_id)]
