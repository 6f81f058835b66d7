"""The survey worker: `python -m workers.run survey`.

Recordings are decoded in sandboxed children, a few at a time, in the order of the survey queue.
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from pipeline.errors import EngineDead
from pipeline.intake.prober import Prober
from pipeline.intake.reading import Reading
from pipeline.job import SURVEY, TRANSCRIBE, Ticket
from pipeline.parts import Parts
from pipeline.queue.redis_queue import Floor
from pipeline.scheduling.work import survey_work_s
from pipeline.settings import Settings
from pipeline.steps.survey import Packed, commit, pack
from pipeline.store import index
from pipeline.store.session import transaction
from workers.app import app
from workers.held import Work
from workers.pull_step import PullStep

AHEAD_CHECK_S = 1.0
"""How long the amount of speech surveyed ahead is taken as known."""


def make_prober(settings: Settings) -> Prober:
    """The sandbox every worker parses uploads in."""
    return Prober(max_duration_s=settings.max_duration_h * 3600)


@dataclass
class Surveying:
    """A recording in this worker's hands."""

    ticket: Ticket
    packed: Packed | None = None
    """What became of it, before that is committed."""
    reading: Reading = field(default_factory=Reading)


class SurveyWork:
    """See `Work`. A job is one unit: the whole file."""

    stage = SURVEY
    task_name = "survey"
    model: str | None = None
    stall_s = stuck_s = math.inf  # a file takes as long as it takes; the sandbox has its clocks
    check_s = 0.0

    def __init__(self, parts: Parts) -> None:
        self._parts, self._settings = parts, parts.settings
        self.slots = self.slots_wanted = parts.settings.survey_slots
        self.ahead = 0
        self.on_lost: Callable[[str], None] = lambda job_id: None
        # of its own, so that long files leave the loop's threads to claims and endings
        self._threads = ThreadPoolExecutor(self.slots, thread_name_prefix="survey")
        self._prober = make_prober(parts.settings)
        self._ahead_read_s, self._ahead_h = -AHEAD_CHECK_S, 0.0

    async def start(self) -> None:
        """The sandbox starts with its first file."""

    async def recover(self, death: EngineDead) -> None:
        """A dead sandbox is started again by its next use."""

    async def check(self) -> None:
        """The sandbox is new for every file."""

    async def stop(self) -> None:
        """End the sandbox, and with it whatever it still reads."""
        self._prober.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def task_id(self, job_id: str) -> str:
        """An id of its own beside the job's: that one is the transcribe task's."""
        return str(uuid.uuid5(uuid.UUID(job_id), self.task_name))

    def open(self, ticket: Ticket) -> Surveying:
        """Nothing to read: the ticket says it all."""
        return Surveying(ticket)

    def units(self, opened: Surveying) -> list[int]:
        """One: the file."""
        return [] if opened.packed else [0]

    def bucket_left(self, opened: Surveying) -> int:
        """All of it, until it is done."""
        return opened.ticket.bucket

    def prepare(self, opened: Surveying, unit: int) -> None:
        """Nothing: a file is read while it is decoded."""

    async def settle(self, opened: Surveying) -> None:
        """Nothing is saved before the end."""

    def let_go(self, opened: Surveying) -> None:
        """Whoever is read for nobody leaves its slot: ten hours of sound take minutes."""
        opened.reading.call_off()

    def facts(self) -> dict[str, Any]:
        """Nothing more."""
        return {}

    async def run(self, opened: Surveying, unit: int) -> None:
        """Decode, find speech, pack."""
        loop = asyncio.get_running_loop()
        opened.packed = await loop.run_in_executor(
            self._threads, pack, self._parts.storage, self._prober, opened.ticket, opened.reading
        )

    def unit_work(self, opened: Surveying, unit: int) -> float:
        """Seconds of audio of the file, and what a file costs besides."""
        return survey_work_s(opened.ticket.duration_s)

    def finish(self, opened: Surveying) -> str:
        """Commit: asked again after an outage, without decoding again."""
        assert opened.packed is not None
        queue = self._parts.queues[TRANSCRIBE.name]
        language, storage = self._settings.language, self._parts.storage
        commit(self._parts.store, storage, queue, opened.ticket, opened.packed, language)
        return f"{len(opened.packed.report.plan.windows)} windows"

    def floor(self) -> Floor | None:
        """With enough speech surveyed ahead, only recordings that would go first are surveyed."""
        now_s = time.monotonic()
        if now_s - self._ahead_read_s >= AHEAD_CHECK_S:
            with transaction(self._parts.store) as c:
                self._ahead_h = index.surveyed_speech_h(c)
            self._ahead_read_s = now_s
        if self._ahead_h <= self._settings.survey_ahead_h:
            return None
        queue = self._parts.queues[TRANSCRIBE.name]
        head = queue.order.head(1, queue.policy() or self._settings.start_policy, queue.now_ms())
        return Floor(head[0].bucket, head[0].arrival_ms) if head else None


class SurveyStep(PullStep):
    """Puts the survey puller into this worker."""

    def work(self, parts: Parts) -> Work:
        """See `PullStep`."""
        return SurveyWork(parts)


app.steps["worker"].add(SurveyStep)
