"""The transcribe worker: `python -m workers.run transcribe`. One a GPU.

Windows of several jobs share the engine's slots.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pipeline.engine import SpeechEngine
from pipeline.errors import EngineDead, EngineFull
from pipeline.job import TRANSCRIBE, Ticket
from pipeline.logs import log
from pipeline.parts import Parts
from pipeline.queue.redis_queue import Floor
from pipeline.scheduling.work import predicted_work_s
from pipeline.steps.deliver import deliver
from pipeline.steps.hear import TRIES, hear_out
from pipeline.steps.transcribe import (
    OpenJob,
    detect_language,
    keep_languages,
    open_job,
    read_window,
)
from pipeline.transcript.channel_languages import windows_to_ask
from workers.app import app
from workers.engines import make_engine
from workers.held import Work
from workers.known_second import hear_known
from workers.occupied import Occupied
from workers.pull_step import PullStep
from workers.saver import Saver

AHEAD_SHARE = 0.5
"""Windows made ready beside those in flight, as a share of the slots: as many as come free at
once when windows of one length that began together end together."""

DEAF_LIMIT = 3
"""Known seconds heard wrong in a row that end the worker; before, the engine is started anew."""

STEPS_OF_A_WINDOW = 2 * (TRIES + 1) + 1
"""What a window waits for at most, one after the other: it and what it left out are made ready and
asked for `TRIES` times each, and the first is read from storage."""

FIRST_LANGUAGE = -1
"""The unit that hears the language of channel 0 out, -2 that of channel 1 and so on; the windows
come after them."""


class TranscribeWork:
    """See `Work`. A job is as many units as it has windows, and before them all one for each
    channel whose language has to be heard out.
    """

    stage = TRANSCRIBE
    task_name = "transcribe"

    def __init__(self, parts: Parts, engine: SpeechEngine) -> None:
        self._parts, self._engine = parts, engine
        self.slots_wanted = engine.slots
        self._count_slots()
        self.stall_s = parts.settings.engine_stall_s
        self.stuck_s = parts.settings.window_limit_s * STEPS_OF_A_WINDOW
        self.check_s = parts.settings.health_check_s
        self._deaf = 0
        self.model: str | None = engine.provenance()["model"]
        self.on_lost: Callable[[str], None] = lambda job_id: None
        self.occupied = Occupied()
        self._saver = Saver(parts.store, lambda job_id: self.on_lost(job_id))
        self._ready: dict[tuple[OpenJob, int], asyncio.Task[Any]] = {}
        self._turns = itertools.count()

    def _count_slots(self) -> None:
        self.slots = self._engine.slots
        self.ahead = math.ceil(self.slots * AHEAD_SHARE)

    async def start(self) -> None:
        """Load the weights, and hear the known second right. Raises `EngineDead` when memory is too
        small for one slot, or when what is heard is wrong `DEAF_LIMIT` times in a row.
        """
        while True:
            try:
                await self._engine.start()
            except EngineFull as full:
                self._have_fewer_slots(full)
                continue
            self._count_slots()
            try:
                if self.check_s:
                    await self.check()
                return
            except EngineFull as full:
                self._have_fewer_slots(full)
            except EngineDead:
                if self._deaf >= DEAF_LIMIT:
                    raise
            await self._engine.stop()

    async def recover(self, death: EngineDead) -> None:
        """A dead engine is started anew in this same process, one that hangs is ended first. One
        whose memory was full gets half the slots, and keeps them (docs/decisions.md, entry 75).
        """
        if self._deaf >= DEAF_LIMIT:
            raise death
        if self._engine.alive():
            await self._engine.stop()
        if isinstance(death, EngineFull) and self.slots > 1:
            self._have_fewer_slots(death)
        await self.start()

    def _have_fewer_slots(self, full: EngineFull) -> None:
        """Raises `full` when there is one only."""
        if not self._engine.fewer_slots():
            raise full
        self._count_slots()
        log().error("fewer_slots", slots=self.slots, wanted=self.slots_wanted, why=full.message)

    async def check(self) -> None:
        """Hear the known second. Raises `EngineDead`."""
        try:
            await hear_known(self._engine)
        except EngineDead as dead:
            self._deaf += 1
            log().error("known_second_not_heard", times=self._deaf, why=dead.message)
            raise
        self._deaf = 0

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
        """Windows nobody has heard yet; first of all their languages."""
        if unasked := opened.unasked:
            return [FIRST_LANGUAGE - channel for channel in unasked]
        return [window.index for window in opened.remaining]

    def bucket_left(self, opened: OpenJob) -> int:
        """The size of those."""
        return opened.remaining_bucket

    def prepare(self, opened: OpenJob, unit: int) -> None:
        """Read a window and compute what the engine wants to hear."""
        if (opened, unit) not in self._ready:
            task = asyncio.create_task(self._get_ready(opened, unit))
            self._ready[opened, unit] = task
            task.add_done_callback(partial(self._forget_if_failed, (opened, unit)))

    def _forget_if_failed(self, key: tuple[OpenJob, int], task: asyncio.Task[Any]) -> None:
        """`run` then tries again: what failed under a dead engine may do well in the next one."""
        failed = task.cancelled() or task.exception() is not None
        if failed and self._ready.get(key) is task:
            del self._ready[key]

    async def _get_ready(self, opened: OpenJob, unit: int) -> Any:
        channel = FIRST_LANGUAGE - unit
        asks = unit <= FIRST_LANGUAGE
        window = windows_to_ask(opened.plan)[channel] if asks else opened.plan.windows[unit]
        pcm = await asyncio.to_thread(read_window, self._parts.storage, opened, window)
        if asks:
            return pcm
        language = opened.language_on(window.channel)
        assert language is not None  # windows come after their languages
        return await self._engine.prepare(
            pcm, language=language, task=opened.task, vocabulary=opened.vocabulary
        )

    async def run(self, opened: OpenJob, unit: int) -> None:
        """Hear one window, or a channel's language; what was heard is saved beside."""
        turn, given_s = next(self._turns), time.time()
        self.prepare(opened, unit)
        ready = await self._ready.pop((opened, unit))
        began_s = time.time()
        with self.occupied.one_more():
            if unit <= FIRST_LANGUAGE:
                await detect_language(self._engine, ready, opened, FIRST_LANGUAGE - unit)
            else:
                window = opened.plan.windows[unit]
                shared_s = opened.plan.shared_s(window)
                opened.heard[unit] = await hear_out(self._engine, ready, window, shared_s)
        log().debug(
            "window_heard",
            job_id=opened.ticket.job_id,
            unit=unit,
            turn=turn,  # slots are given in this order, whichever window is ready first
            given_s=given_s,
            began_s=began_s,
            ended_s=time.time(),
        )
        if unit > FIRST_LANGUAGE:
            self._saver.add(opened, unit)
        elif not opened.unasked:  # the last channel that was asked
            await asyncio.to_thread(keep_languages, self._parts.store, opened)

    async def settle(self, opened: OpenJob) -> None:
        """Save what is heard."""
        await self._saver.settle(opened)

    def let_go(self, opened: OpenJob) -> None:
        """The transcript is committed with all windows, or the job goes elsewhere."""
        self._saver.drop(opened)
        for key in [key for key in self._ready if key[0] is opened]:
            self._ready.pop(key).cancel()

    def unit_work(self, opened: OpenJob, unit: int) -> float:
        """Reference slot seconds of a window; hearing a language out is none of the forecast's."""
        if unit <= FIRST_LANGUAGE:
            return 0.0
        window = opened.plan.windows[unit]
        return predicted_work_s(window.length_s, 1, opened.language_on(window.channel))

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
            opened.spoken,
            keep_packed=self._parts.settings.keep_packed_days > 0,
        )
        return f"{len(opened.plan.windows)} windows, {len(transcript.segments)} segments"

    def floor(self) -> Floor | None:
        """Only the jobs in hand."""
        return None

    def facts(self) -> dict[str, Any]:
        """Slot seconds the engine was busy since the start: until now, and until (monotonic time)
        a window last began.
        """
        at_s, busy_s = self.occupied.last_taken
        began = {"at_s": round(at_s, 4), "slot_busy_s": round(busy_s, 4)}
        return {
            "slots_wanted": self.slots_wanted,
            "slot_busy_s": round(self.occupied.total_s(), 4),
            "last_window": began,
        }


class TranscribeStep(PullStep):
    """Puts the transcribe puller into this worker."""

    def work(self, parts: Parts) -> Work:
        """See `PullStep`."""
        return TranscribeWork(parts, make_engine(parts.settings))


app.steps["worker"].add(TranscribeStep)
