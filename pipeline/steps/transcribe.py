"""transcribe: the windows of a surveyed recording go through the engine; each is saved at once.

Runs in the transcribe puller. A job taken up again finds the windows that were saved under the same
plan and model and hears only the rest. Where nobody said which language is spoken it is heard out
first, once a recording, on the window with most speech.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine

from pipeline.engine import Heard, SpeechEngine
from pipeline.errors import RecordingMissing
from pipeline.intake.storage import Storage
from pipeline.job import AUTO, Ticket
from pipeline.logs import log
from pipeline.recording import SAMPLE_BYTES, Plan, Window
from pipeline.scheduling.work import bucket_of, predicted_work_s
from pipeline.store import partials
from pipeline.store.partials import HeardWindow
from pipeline.store.session import transaction


@dataclass(eq=False)
class OpenJob:
    """A granted job in a worker's hands."""

    ticket: Ticket
    plan: Plan
    artefact_key: str
    language: str | None
    """As asked for or heard out; None until then."""
    heard: dict[int, Heard] = field(default_factory=dict)
    """By window index: read from Postgres at opening, then as windows are heard."""

    @property
    def task(self) -> str:
        """Which words are wanted: one of `job.TASKS`."""
        return str(self.ticket.options.get("task", "transcribe"))

    @property
    def vocabulary(self) -> str:
        """Names and terms likely to be said, as told; empty: none."""
        return str(self.ticket.options.get("vocabulary", ""))

    @property
    def richest(self) -> Window:
        """The window with most speech: the one to hear a language out of."""
        return max(self.plan.windows, key=lambda window: window.speech_s)

    @property
    def remaining(self) -> list[Window]:
        """Windows nobody has heard yet, in order of time."""
        return [w for w in self.plan.windows if w.index not in self.heard]

    @property
    def remaining_bucket(self) -> int:
        """Size bucket of the work that is left."""
        left = self.remaining
        speech_s = sum(window.length_s for window in left)
        return bucket_of(predicted_work_s(speech_s, len(left), self.language))


def open_job(store: Engine, ticket: Ticket, default_language: str) -> OpenJob:
    """Read the plan and what is already heard.

    Raises `RecordingMissing` when there is no plan, `PartDown` when Postgres does not answer.
    """
    saved: dict[int, Any] = {}
    with transaction(store) as c:
        found = partials.plan_of(c, ticket.job_id)
        # at the first grant after the first survey nothing of it can be saved
        if ticket.tries > 1 or ticket.attempt > 2:
            saved = partials.saved_windows(c, ticket)
            partials.count_saved(c, ticket, len(saved))
    if found is None:
        raise RecordingMissing("The survey of this recording is gone; submit it again.")
    plan, artefact_key = found
    heard = {index: Heard.from_json(raw) for index, raw in saved.items()}
    return OpenJob(ticket, plan, artefact_key, _known_language(ticket, default_language), heard)


def _known_language(ticket: Ticket, default_language: str) -> str | None:
    asked = ticket.language or default_language
    return asked if asked != AUTO else ticket.detected_language


def read_window(storage: Storage, job: OpenJob, window: Window) -> bytes:
    """The window's packed samples, s16le. Raises `RecordingMissing`, `PartDown`."""
    return storage.read_range(
        job.artefact_key,
        window.first_sample * SAMPLE_BYTES,
        window.sample_count * SAMPLE_BYTES,
    )


async def detect_language(engine: SpeechEngine, pcm: bytes, job: OpenJob) -> str:
    """Hear the job's language out of one window. Raises what the engine raises."""
    first = await engine.first_token(pcm)
    share = round(first.language_prob, 3)
    log().info("language", job_id=job.ticket.job_id, language=first.language, share=share)
    return first.language


def keep_language(store: Engine, job: OpenJob, language: str) -> None:
    """Write down what was heard out, if the job is still ours. Raises `LeaseLost`, `PartDown`."""
    with transaction(store) as c:
        partials.keep_language(c, job.ticket, language)
    job.language = language


def save(store: Engine, windows: Sequence[tuple[OpenJob, int]]) -> set[str]:
    """Keep these windows, by index, in one transaction.

    Returns the jobs that are not ours any more: nothing of them was written. Raises `PartDown`.
    """
    rows = [HeardWindow(job.ticket, at, job.heard[at].to_json()) for job, at in windows]
    with transaction(store) as c:
        return partials.save_windows(c, rows)
