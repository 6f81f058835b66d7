"""transcribe: the windows of a surveyed recording go through the engine; each is saved at once.

Runs in the transcribe puller. A job taken up again finds the windows that were saved under the same
plan and model and hears only the rest. Where nobody said which language is spoken it is heard out
first, once a channel, on its window with most speech.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine

from pipeline.crash_points import reach
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
from pipeline.transcript.channel_languages import languages_of, speech_by_channel, windows_to_ask
from pipeline.transcript.document import Spoken


@dataclass(eq=False)
class OpenJob:
    """A granted job in a worker's hands."""

    ticket: Ticket
    plan: Plan
    artefact_key: str
    language: str | None
    """As asked for or heard out: the one of most speech; None until then."""
    heard: dict[int, Heard] = field(default_factory=dict)
    """By window index: read from Postgres at opening, then as windows are heard."""
    by_channel: list[str] | None = None
    """Languages heard out, by channel of the plan; None: all channels have `language`."""
    thought: dict[int, tuple[str, float]] = field(default_factory=dict)
    """By channel: the language heard out of its best window, and its probability."""

    @property
    def task(self) -> str:
        """Which words are wanted: one of `job.TASKS`."""
        return str(self.ticket.options.get("task", "transcribe"))

    @property
    def vocabulary(self) -> str:
        """Names and terms likely to be said, as told; empty: none."""
        return str(self.ticket.options.get("vocabulary", ""))

    @property
    def spoken(self) -> Spoken | None:
        """Its languages; None while nobody knows."""
        return Spoken(self.language, self.by_channel) if self.language else None

    def language_on(self, channel: int) -> str | None:
        """The language to hear a channel in; None while nobody knows."""
        return self.by_channel[channel] if self.by_channel else self.language

    @property
    def unasked(self) -> dict[int, Window]:
        """Channels whose language is to be heard out yet, each with the window to hear it out of;
        none where it is known.
        """
        if self.language is not None or not self.remaining:
            return {}
        best = windows_to_ask(self.plan)
        return {channel: window for channel, window in best.items() if channel not in self.thought}

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
        raise RecordingMissing("The survey of this recording is gone.")
    plan, artefact_key = found
    heard = {index: Heard.from_json(raw) for index, raw in saved.items()}
    return known_languages(OpenJob(ticket, plan, artefact_key, None, heard), default_language)


def known_languages(job: OpenJob, default_language: str) -> OpenJob:
    """The job with the languages that were named, or heard out by an earlier grant.

    A language somebody named is believed of every channel.
    """
    ticket = job.ticket
    job.language = ticket.language or default_language
    if job.language == AUTO:
        job.language = ticket.detected_language
        by_channel = ticket.channel_languages
        # another survey may have found other channels: what was heard of the old ones says nothing
        if by_channel and len(by_channel) == len(job.plan.channels):
            job.by_channel = by_channel
    return job


def read_window(storage: Storage, job: OpenJob, window: Window) -> bytes:
    """The window's packed samples, s16le. Raises `RecordingMissing`, `PartDown`."""
    return storage.read_range(
        job.artefact_key,
        window.first_sample * SAMPLE_BYTES,
        window.sample_count * SAMPLE_BYTES,
    )


async def detect_language(engine: SpeechEngine, pcm: bytes, job: OpenJob, channel: int) -> None:
    """Hear a channel's language out of one window of it. Raises what the engine raises."""
    first = await engine.first_token(pcm)
    job.thought[channel] = first.language, first.language_prob
    log().info(
        "language",
        job_id=job.ticket.job_id,
        channel=channel,
        language=first.language,
        share=round(first.language_prob, 3),
    )


def keep_languages(store: Engine, job: OpenJob) -> None:
    """Decide by what was heard out and write it down, if the job is still ours.

    Raises `LeaseLost`, `PartDown`.
    """
    main, by_channel = languages_of(job.thought, speech_by_channel(job.plan))
    with transaction(store) as c:
        partials.keep_languages(c, job.ticket, main, by_channel)
    job.language, job.by_channel = main, by_channel


def save(store: Engine, windows: Sequence[tuple[OpenJob, int]]) -> set[str]:
    """Keep these windows, by index, in one transaction.

    Returns the jobs that are not ours any more: nothing of them was written. Raises `PartDown`.
    """
    rows = [HeardWindow(job.ticket, at, job.heard[at].to_json()) for job, at in windows]
    with transaction(store) as c:
        lost = partials.save_windows(c, rows)
    reach("mid_work")
    return lost
