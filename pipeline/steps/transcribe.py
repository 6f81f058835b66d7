"""transcribe: the windows of a surveyed recording go through the engine; each is saved at once.

Runs in the transcribe puller. A job taken up again finds the windows that were saved under the same
plan and model and hears only the rest. Where nobody said which language is spoken it is heard out
first, once a recording, on the window with most speech.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Engine

from pipeline.engine import Heard, Prepared, SpeechEngine
from pipeline.errors import RecordingMissing
from pipeline.intake.storage import Storage
from pipeline.job import AUTO, Ticket
from pipeline.logs import log
from pipeline.recording import SAMPLE_BYTES, Plan, Window
from pipeline.scheduling.work import bucket_of, predicted_work_s
from pipeline.store import partials
from pipeline.store.partials import HeardWindow
from pipeline.store.session import transaction

RETRY_TEMPERATURES = (0.4, 0.8)
"""Tried in turn when a window loops or runs out of room: greedy decoding is stuck, so sample."""


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
    def richest(self) -> Window:
        """The window with most speech: the one to hear a language out of."""
        return max(self.plan.windows, key=lambda w: sum(piece.length_s for piece in w.pieces))

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
    language, share = await engine.detect_language(pcm)
    log().info("language", job_id=job.ticket.job_id, language=language, share=round(share, 3))
    return language


def keep_language(store: Engine, job: OpenJob, language: str) -> None:
    """Write down what was heard out, if the job is still ours. Raises `LeaseLost`, `PartDown`."""
    with transaction(store) as c:
        partials.keep_language(c, job.ticket, language)
    job.language = language


async def hear(engine: SpeechEngine, window: Prepared) -> Heard:
    """One window through the engine, again at a higher temperature when it got stuck.

    Of stuck answers the one with the most likely tokens is kept, with the time and the tokens of
    all of them: that is what the window cost. Raises what the engine raises.
    """
    answer = await engine.transcribe(window)
    busy_s, tokens = answer.busy_s, answer.tokens
    for temperature in RETRY_TEMPERATURES:
        if answer.finish == "stop":
            break
        again = await engine.transcribe(window, temperature=temperature)
        busy_s, tokens = busy_s + again.busy_s, tokens + again.tokens
        answer = max((answer, again), key=_trust)
    return replace(answer, busy_s=busy_s, tokens=tokens)


def save(store: Engine, windows: Sequence[tuple[OpenJob, int]]) -> set[str]:
    """Keep these windows, by index, in one transaction.

    Returns the jobs that are not ours any more: nothing of them was written. Raises `PartDown`.
    """
    rows = [HeardWindow(job.ticket, at, job.heard[at].to_json()) for job, at in windows]
    with transaction(store) as c:
        return partials.save_windows(c, rows)


def _trust(heard: Heard) -> tuple[bool, float]:
    return heard.finish == "stop", heard.mean_logprob if heard.mean_logprob is not None else -9.0
