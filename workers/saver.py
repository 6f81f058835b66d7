"""Saves windows beside the hearing, so that no slot waits for Postgres.

What has come together within a moment, or while the save before went on, is saved in one
transaction. During an outage windows gather here, and hearing goes on. A worker killed meanwhile
loses what is not saved yet: those are heard again. A window that Postgres refuses to keep is left
out and costs those beside it nothing; what is in the way of its transcript too fails its job there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sqlalchemy import Engine

from pipeline.errors import PartDown
from pipeline.logs import log
from pipeline.steps.transcribe import OpenJob, save

GATHER_S = 0.05
"""A window waits this long for others to be saved with."""

RETRY_S = 0.5
"""Pause after an outage of Postgres."""


class Saver:
    """The windows of one worker that are heard and not saved. Belongs to one event loop."""

    def __init__(self, store: Engine, on_lost: Callable[[str], None]) -> None:
        """`on_lost` is told the id of a job that is not ours any more, on the loop."""
        self._store, self._on_lost = store, on_lost
        self._unsaved: list[tuple[OpenJob, int]] = []
        self._task: asyncio.Task[None] | None = None
        self._saving = asyncio.Lock()

    def add(self, job: OpenJob, index: int) -> None:
        """Save a window of `job.heard` soon."""
        self._unsaved.append((job, index))
        if self._task is None:
            self._task = asyncio.create_task(self._save_soon())

    def drop(self, job: OpenJob) -> None:
        """Save nothing more of this job: it ends otherwise."""
        self._unsaved = [one for one in self._unsaved if one[0] is not job]

    async def settle(self, job: OpenJob) -> None:
        """Save now what is left of this job. Returns too when Postgres does not answer."""
        try:
            while any(one is job for one, _ in self._unsaved):
                await self._save()
        except PartDown as down:
            log().warning("windows_not_saved", job_id=job.ticket.job_id, why=down.message)
        async with self._saving:
            pass  # what was under way when we came

    async def _save_soon(self) -> None:
        try:
            await asyncio.sleep(GATHER_S)
            while self._unsaved:
                try:
                    await self._save()
                except PartDown as down:
                    log().warning("save_waits", windows=len(self._unsaved), why=down.message)
                    await asyncio.sleep(RETRY_S)
        finally:
            self._task = None

    async def _save(self) -> None:
        async with self._saving:
            batch = list(self._unsaved)
            if not batch:
                return
            lost = await self._save_all(batch)
            self._unsaved = [one for one in self._unsaved if one not in batch]
        for job_id in lost:
            self._on_lost(job_id)

    async def _save_all(self, batch: list[tuple[OpenJob, int]]) -> set[str]:
        """Save what can be saved; returns the jobs that are not ours. Raises `PartDown`."""
        try:
            return await asyncio.to_thread(save, self._store, batch)
        except PartDown:
            raise
        except Exception as refused:
            if len(batch) > 1:
                return set().union(*[await self._save_all([one]) for one in batch])
            (job, index), why = batch[0], type(refused).__name__  # its words would be in the rest
            log().error("window_refused_by_store", job_id=job.ticket.job_id, unit=index, why=why)
            return set()
