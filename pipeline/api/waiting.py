"""Who waits for a job to end: one question to Postgres for all of them, however many they are.

In: ids of jobs and how long each is waited for. Out: a waiting request goes on when its job has
ended or is gone, when its time is over, or when its client hung up. While it waits it costs a few
kilobytes, and neither a thread nor a connection. Postgres being away ends nobody's wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import StrEnum
from functools import partial

import anyio.to_thread
from sqlalchemy import Engine
from starlette.requests import Request
from starlette.types import Message

from pipeline.clock import SystemClock
from pipeline.errors import PartDown
from pipeline.logs import log
from pipeline.store import views
from pipeline.store.session import transaction

TICK_S = 0.25
"""How often the jobs waited for are looked at: short against any transcription."""

LOOKS_SHARE = 0.05
"""Part of its time the watcher may spend looking: five thousand jobs take it some ten ms."""

LONGEST_TICK_S = 2.0


class Woken(StrEnum):
    """Why a wait is over."""

    ENDED = "ended"
    """The job has ended, or there is none any more."""
    TIME = "time"
    GONE = "gone"
    """Nobody is there to read an answer."""


class Waiting:
    """All who wait in this process. Lives in one event loop; `ended` is its only door."""

    def __init__(self, store: Engine) -> None:
        self._store = store
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._clock = SystemClock()
        self._away_since_s: float | None = None
        # threads that serve requests may all be busy: looking has one of its own
        self._thread = anyio.CapacityLimiter(1)

    @property
    def jobs(self) -> int:
        """How many jobs are waited for now."""
        return len(self._waiting)

    @property
    def away_s(self) -> float:
        """For how many seconds Postgres has not answered; 0 while it does."""
        since_s = self._away_since_s
        return 0.0 if since_s is None else self._clock.monotonic_s() - since_s

    async def ended(
        self, job_id: str, within_s: float, gone: Callable[[], Awaitable[None]]
    ) -> Woken:
        """Wait until the job ended, `within_s` seconds are over, or `gone()` returns."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job_id, set()).add(woken)
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._watch())
        left = asyncio.ensure_future(gone())
        try:
            done, _ = await asyncio.wait(
                {woken, left}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            left.cancel()
            self._forget(job_id, woken)
        if woken in done:
            return Woken.ENDED
        return Woken.GONE if left in done else Woken.TIME

    def close(self) -> None:
        """Stop looking."""
        if self._watcher is not None:
            self._watcher.cancel()

    def _forget(self, job_id: str, woken: asyncio.Future[None]) -> None:
        woken.cancel()
        others = self._waiting.get(job_id, set())
        others.discard(woken)
        if not others:
            self._waiting.pop(job_id, None)

    async def _watch(self) -> None:
        """Look again and again, until nobody waits."""
        while self._waiting:
            began_s = self._clock.monotonic_s()
            over = await self._look()
            for job_id in over:
                for woken in self._waiting.get(job_id, ()):
                    if not woken.done():
                        woken.set_result(None)
            took_s = self._clock.monotonic_s() - began_s
            await asyncio.sleep(min(max(TICK_S, took_s / LOOKS_SHARE), LONGEST_TICK_S))

    async def _look(self) -> list[str]:
        """Of the jobs waited for, those to wait for no longer; none while Postgres is away."""
        look = partial(_over, self._store, list(self._waiting))
        try:
            over = await anyio.to_thread.run_sync(look, limiter=self._thread)
        except PartDown as down:
            if self._away_since_s is None:
                self._away_since_s = self._clock.monotonic_s()
                log().warning("waiting_without_postgres", jobs=self.jobs, why=down.message)
            return []
        except Exception as error:  # left alone it would end the watch, and nobody be woken again
            log().error("waiting_failed", jobs=self.jobs, why=str(error))
            return []
        self._away_since_s = None
        return over


def _over(store: Engine, job_ids: list[str]) -> list[str]:
    with transaction(store) as c:
        return views.over(c, job_ids)


async def hung_up(request: Request) -> None:
    """Returns when the client of `request`, whose body is not wanted any more, has hung up."""
    message: Message = {"type": ""}
    with suppress(RuntimeError):  # of a server that has nothing more to tell
        while message["type"] != "http.disconnect":
            message = await request.receive()
