"""The transcribe worker: `celery -A workers.transcribe worker -P solo`. One a GPU.

Windows of several jobs share the engine's slots.
"""

from __future__ import annotations

import asyncio

from pipeline.engine import SpeechEngine
from pipeline.job import TRANSCRIBE, Ticket
from pipeline.parts import Parts
from pipeline.queue.redis_queue import Floor
from pipeline.steps.deliver import deliver
from pipeline.steps.transcribe import (
    OpenJob,
    detect_language,
    hear,
    keep_language,
    open_job,
    read_window,
    save,
)
from workers.app import app
from workers.engines import make_engine
from workers.held import Work
from workers.pull_step import PullStep

LANGUAGE = -1
"""The unit that hears the language out; the windows come after it."""


class TranscribeWork:
    """See `Work`. A job is as many units as it has windows, and one before them all where its
    language has to be heard out.
    """

    stage = TRANSCRIBE
    task_name = "transcribe"

    def __init__(self, parts: Parts, engine: SpeechEngine) -> None:
        self._parts, self._engine = parts, engine
        self.slots = engine.slots
        self.stall_s = parts.settings.engine_stall_s
        self.model: str | None = engine.provenance()["model"]

    async def start(self) -> None:
        """Load the weights."""
        await self._engine.start()

    async def recover(self) -> None:
        """A dead engine is started anew in this same process, one that hangs is ended first."""
        if self._engine.alive():
            await self._engine.stop()
        await self._engine.start()

    async def stop(self) -> None:
        """Free the device."""
        await self._engine.stop()

    def task_id(self, job_id: str) -> str:
        """The job's own id: what people look for in Flower."""
        return job_id

    def open(self, ticket: Ticket) -> OpenJob:
        """The plan, and what was heard before."""
        return open_job(self._parts.store, ticket, self._parts.settings.language)

    def units(self, opened: OpenJob) -> list[int]:
        """Windows nobody has heard yet; first of all their language."""
        if opened.language is None and opened.remaining:
            return [LANGUAGE]
        return [window.index for window in opened.remaining]

    def bucket_left(self, opened: OpenJob) -> int:
        """The size of those."""
        return opened.remaining_bucket

    async def run(self, opened: OpenJob, unit: int) -> None:
        """Read, hear, save one window."""
        if unit == LANGUAGE:
            await self._detect(opened)
            return
        assert opened.language is not None
        window = opened.plan.windows[unit]
        heard = opened.unsaved.get(unit)
        if heard is None:
            pcm = await asyncio.to_thread(read_window, self._parts.storage, opened, window)
            ready = await self._engine.prepare(pcm, language=opened.language, task=opened.task)
            heard = opened.unsaved[unit] = await hear(self._engine, ready)
        await asyncio.to_thread(save, self._parts.store, opened, window, heard)

    async def _detect(self, opened: OpenJob) -> None:
        pcm = await asyncio.to_thread(read_window, self._parts.storage, opened, opened.richest)
        language = await detect_language(self._engine, pcm, opened)
        await asyncio.to_thread(keep_language, self._parts.store, opened, language)

    def finish(self, opened: OpenJob) -> str:
        """Merge and commit."""
        transcript = deliver(
            self._parts.store,
            self._parts.storage,
            opened.ticket,
            opened.plan,
            opened.artefact_key,
            opened.heard,
            self._engine.provenance(),
        )
        return f"{len(opened.plan.windows)} windows, {len(transcript.segments)} segments"

    def floor(self) -> Floor | None:
        """Only the jobs in hand."""
        return None


class TranscribeStep(PullStep):
    """Puts the transcribe puller into this worker."""

    def work(self, parts: Parts) -> Work:
        """See `PullStep`."""
        return TranscribeWork(parts, make_engine(parts.settings))


app.steps["worker"].add(TranscribeStep)
