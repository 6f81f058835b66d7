"""A batch as server-sent events: how it stands, each job that ended, and the end.

A stream costs no thread and no connection to Postgres between two looks. Jobs are told in the order
of (completed_at, id), which is also what an event's id says. That order is not the order of
commits: a job may become visible a moment after one that ended later. So each look goes back
`OVERLAP_S`, and a stream that is taken up again tells that much once more, unless it had come to
its end: told at least once, never lost.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Engine
from starlette.concurrency import run_in_threadpool

from pipeline.api.batch_bodies import Batch
from pipeline.api.bodies import Job
from pipeline.caller import Caller
from pipeline.clock import SystemClock
from pipeline.errors import BadRequest, NoSuchBatch, PartDown
from pipeline.job import JobView
from pipeline.store import batches
from pipeline.store.session import transaction

LOOK_S = 1.0
"""How often the batch is looked at, at most."""

LOOKS_SHARE = 0.05
"""Part of its time a stream may spend looking: a look at ten thousand jobs takes some 30 ms."""

HEARTBEAT_S = 15.0
"""A stream silent for this long is given a comment, so that nothing between closes it."""

OVERLAP_S = 10.0
"""Longer than what ends a job takes to commit."""

PAGE = 500
"""Jobs told at a time."""

NOTHING_NEW = object()
"""A stream that is taken up again has nothing more to tell."""

_FIRST = "00000000-0000-0000-0000-000000000000"

Place = tuple[datetime, str]
"""(completed_at, id) of a job."""


@dataclass(frozen=True)
class Left:
    """Where a stream was left."""

    at: Place
    at_the_end: bool
    """Its last event was `done`."""

    @classmethod
    def read(cls, event_id: str) -> Left:
        """From an event's id. Raises `BadRequest` for what is none."""
        try:
            completed_at, job_id, *end = event_id.split("/")
            at = datetime.fromisoformat(completed_at), str(UUID(job_id))
            if at[0].tzinfo is None or at[0].year < 2000 or end not in ([], ["done"]):
                raise ValueError(event_id)
        except ValueError:
            raise BadRequest("Last-Event-ID is not the id of an event.") from None
        return cls(at, bool(end))


class BatchEvents:
    """One stream. `look` gives the batch as it stands; it blocks and raises `NoSuchBatch`."""

    def __init__(
        self,
        look: Callable[[], Batch],
        store: Engine,
        flower: str | None,
        batch_id: str,
        caller: Caller,
        left: Left | None,
    ) -> None:
        self._look, self._store, self._flower = look, store, flower
        self._batch_id, self._caller, self._left = batch_id, caller, left
        self._last = left.at if left else None
        self._told: set[Place] = set()
        """Of the jobs within the overlap, by place: one tried again ends at another."""
        self._shown: Batch | None = None

    def begin(self) -> object | None:
        """Look once before anything is answered. Raises `NoSuchBatch`, `PartDown`."""
        ended = self._look().completed_at is not None
        if ended and self._left and self._left.at_the_end and not self._page(self._left.at, 1):
            return NOTHING_NEW
        return None

    async def stream(self, gone: Callable[[], Awaitable[bool]]) -> AsyncIterator[str]:
        """The events, until the batch has ended or the client is `gone`, or may not see it now."""
        clock = SystemClock()
        said_s = clock.monotonic_s()
        yield "retry: 2000\n\n"
        while not await gone():
            look_again_s = LOOK_S
            try:
                begun_s = clock.monotonic_s()
                now = await run_in_threadpool(self._look)
                took_s = clock.monotonic_s() - begun_s
                look_again_s = min(max(LOOK_S, took_s / LOOKS_SHARE), HEARTBEAT_S)
                if now != self._shown:
                    self._shown, said_s = now, clock.monotonic_s()
                    yield _event("batch", now.model_dump_json())
                # after the look: what had ended by then is told before the end is
                async for event in self._ended():
                    said_s = clock.monotonic_s()
                    yield event
                if now.completed_at is not None and self._last is not None:
                    yield _event("done", now.model_dump_json(), f"{_id_of(self._last)}/done")
                    return
            except NoSuchBatch:  # every job of it was erased
                yield _event("done", json.dumps({"batch_id": self._batch_id}))
                return
            except PartDown:
                pass  # looked for again: a stream outlives a restart of Postgres
            if clock.monotonic_s() - said_s >= HEARTBEAT_S:
                said_s = clock.monotonic_s()
                yield ": still here\n\n"
            look_at_s = clock.monotonic_s() + look_again_s
            # slow looks are far apart, but who may not see it any more is sent away soon
            while (left_s := look_at_s - clock.monotonic_s()) > 0:
                if await gone():
                    return
                await asyncio.sleep(min(LOOK_S, left_s))

    async def _ended(self) -> AsyncIterator[str]:
        """Jobs that ended and were not told yet."""
        back = timedelta(seconds=OVERLAP_S)
        after = (self._last[0] - back, _FIRST) if self._last else None
        while True:
            page = await run_in_threadpool(self._page, after, PAGE)
            for place, view in page:
                if place not in self._told:
                    self._told.add(place)
                    self._last = max(self._last or place, place)
                    yield self._job(place, view)
            if len(page) < PAGE:
                break
            after = page[-1][0]
        if self._last:
            keep = self._last[0] - back
            self._told = {place for place in self._told if place[0] >= keep}

    def _page(self, after: Place | None, limit: int) -> list[tuple[Place, JobView]]:
        with transaction(self._store) as c:
            found = batches.ended(c, self._batch_id, after, limit, self._caller)
        return [((view.completed_at, view.id), view) for view in found if view.completed_at]

    def _job(self, place: Place, view: JobView) -> str:
        body = Job.of(view, flower=self._flower).model_dump_json(exclude={"metadata"})
        return _event("job", body, _id_of(place))


def _id_of(place: Place) -> str:
    return f"{place[0].isoformat()}/{place[1]}"


def _event(kind: str, data: str, event_id: str | None = None) -> str:
    """One event; `data` is one line of JSON."""
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {kind}\ndata: {data}\n\n"
