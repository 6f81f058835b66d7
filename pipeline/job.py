"""The words for work: a job, its states, and the table of allowed moves.

    received --probe--> probed --lease--> surveying --> surveyed --lease--> running --> completed
                          ^                  |             ^                   |
                          +---- given back --+             +---- given back ---+

From every state that is not final a job may also become failed or cancelled; a recording without
speech is completed straight from surveying. A retry sends a failed or cancelled job back to
received, as if it had just come. `probed` waits in the survey queue, `surveyed` in the
transcribe queue. Moves are made by one SQL statement each, which names the states it allows; the
table here is what those statements are tested against.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """Where a job stands. Kept in Postgres, the only place that decides."""

    RECEIVED = "received"
    PROBED = "probed"
    SURVEYING = "surveying"
    SURVEYED = "surveyed"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})
"""States in which a job rests. Only a retry, asked for by a person, leaves one."""

MOVES: dict[State, frozenset[State]] = {
    State.RECEIVED: frozenset({State.PROBED, State.FAILED, State.CANCELLED}),
    State.PROBED: frozenset(
        {State.SURVEYING, State.SURVEYED, State.COMPLETED, State.FAILED, State.CANCELLED}
    ),
    State.SURVEYING: frozenset(
        {State.SURVEYED, State.PROBED, State.COMPLETED, State.FAILED, State.CANCELLED}
    ),
    State.SURVEYED: frozenset({State.RUNNING, State.COMPLETED, State.FAILED, State.CANCELLED}),
    State.RUNNING: frozenset({State.SURVEYED, State.COMPLETED, State.FAILED, State.CANCELLED}),
    State.COMPLETED: frozenset(),
    State.FAILED: frozenset({State.RECEIVED}),
    State.CANCELLED: frozenset({State.RECEIVED}),
}
"""Every move a job can make. `probed -> surveyed` and `surveyed -> completed` are a worker whose
lease ran out while it finished: nobody was granted a newer attempt, so its result is kept."""


@dataclass(frozen=True)
class Stage:
    """One of the two queues a job passes: who waits, who works, what comes after."""

    name: str
    """Names the queue in Redis and the worker that serves it."""
    waiting: State
    working: State


SURVEY = Stage("survey", State.PROBED, State.SURVEYING)
TRANSCRIBE = Stage("transcribe", State.SURVEYED, State.RUNNING)
STAGES = (SURVEY, TRANSCRIBE)

TASKS = ("transcribe", "translate")
"""What may be asked of a recording: its words as they were said, or in English."""

AUTO = "auto"
"""As a language: hear it out, once a channel."""


def public_status(state: State) -> str:
    """The status callers see: `queued` until a speech engine has the job in hand.

    >>> public_status(State.SURVEYING), public_status(State.RUNNING)
    ('queued', 'processing')
    """
    if state in FINAL:
        return state.value
    return "processing" if state is State.RUNNING else "queued"


def states_of(status: str) -> tuple[State, ...]:
    """The states a public status stands for; empty for an unknown word."""
    return tuple(s for s in State if public_status(s) == status)


@dataclass(frozen=True)
class Ticket:
    """What a worker holds after a grant: the job, and the attempt that fences its writes."""

    job_id: str
    attempt: int
    """Fencing token: every write of this worker holds only while the job's attempt is this."""
    tries: int
    """Which grant of its stage this is, from 1."""
    arrival_ms: int
    """When the job came, in ms of Postgres time; kept when it is given back."""
    bucket: int
    """Size bucket it was claimed from (see scheduling/work.py)."""
    storage_key: str
    file_name: str
    language: str | None
    """As asked for: a code, `AUTO`, or None for the installation's default."""
    detected_language: str | None
    """Heard out by an earlier grant: the one of most speech."""
    options: dict[str, Any]
    """What else was asked: `task` (one of `TASKS`), `speakers` (labels of the channels in order),
    `vocabulary` (names and terms likely to be said), `raw_format` (what one without a header
    is)."""
    duration_s: float
    plan_hash: str | None
    model: str | None
    channel_languages: list[str] | None = None
    """Languages heard out by an earlier grant, by channel of its plan."""
    probed_s: float | None = None
    """Length the probe found, seconds; None where none was kept."""


@dataclass(frozen=True)
class JobView:
    """A job as people read it, without its place in the queue."""

    id: str
    batch_id: str | None
    file_name: str
    state: State
    progress: float
    """Windows saved over windows planned, 0..1."""
    duration_s: float | None
    duration_source: str | None
    duration_exact: bool | None
    probed_s: float | None
    """Length the queue first went by; `duration_s` is the decoded one once it is known."""
    probed_source: str | None
    transcribed_s: float | None
    """Speech with words that nobody doubts; None until it is completed."""
    probe_reason: str | None
    """Why a cheaper source was not believed; None when the first one was."""
    channels: int | None
    container: str | None
    codec: str | None
    language: str | None
    """As asked for."""
    detected_language: str | None
    """Heard out, when none was asked for: the one of most speech."""
    channel_languages: list[str] | None
    """The same by channel of its plan; None where it was not heard out by channel."""
    source_url: str | None
    """Where it is fetched from; None when it was uploaded."""
    options: dict[str, Any]
    """See `Ticket.options`."""
    model: str | None
    attempt: int
    """The newest fencing token, counted over both stages."""
    attempts: int
    """How often its present stage was granted to a worker."""
    deadline: datetime | None
    """Wanted by then, as the sender says."""
    wait_budget_s: float | None
    """How long it may wait for an engine, as the sender says."""
    created_at: datetime
    started_at: datetime | None
    """First grant of an engine; the wait is the time from created_at to here."""
    first_text_at: datetime | None
    completed_at: datetime | None
    error_code: str | None
    error_message: str | None
    degraded: str | None
    """Why the transcript is worth less than usual; None when it is not."""
    no_speech: bool
    metadata: dict[str, Any]
    audio_erased_at: datetime | None = None
    """When the recording's days were over; None while it is kept."""
    transcript_erased_at: datetime | None = None
    """When the transcript's days were over."""
