"""What requests and answers look like. Times are RFC 3339; seconds are numbers; absent is null.

Here: jobs, transcripts, problems. Batches: batch_bodies.py; the queue and its policy:
queue_bodies.py; OpenAI's: openai_bodies.py.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from pipeline.fetch.urls import shown_url
from pipeline.job import TASKS, JobView, public_status
from pipeline.steps.forecast.told import UNKNOWN, Forecast, Times

Status = Literal["queued", "processing", "completed", "failed", "cancelled"]

JOB_ID = "01977f6e-8a3b-7c52-9d10-5b1f6c2a4e77"
"""In examples."""


class Reason(BaseModel):
    """Why a recording has no transcript."""

    code: str = Field(description="Stable, for programs", examples=["not_audio"])
    message: str = Field(
        description="One sentence for people",
        examples=["The file is not audio in any format we read."],
    )


class Problem(BaseModel):
    """What every error answers, as application/problem+json."""

    type: str = Field(examples=["urn:fairscribe:problem:no_such_job"])
    title: str = Field(description="The HTTP status in words", examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(
        description="One sentence for people", examples=["There is no job with this id."]
    )
    code: str = Field(description="Stable, for programs", examples=["no_such_job"])


class AcceptedFile(BaseModel):
    """What became of one file or URL of a submission."""

    id: str | None = Field(
        description="Its job; null when none could be made: `error` says whether to send it again",
        examples=[JOB_ID],
    )
    file_name: str = Field(examples=["call-0001.wav"])
    source_url: str | None = Field(None, description="The URL, if it was one", examples=[None])
    status: Status = Field(description="`failed` for what was refused at once", examples=["queued"])
    error: Reason | None = Field(None, examples=[None])


class Submission(BaseModel):
    """The answer to a submission: each file, then each URL, with its job, in their order."""

    batch_id: str = Field(description="As asked for, or chosen", examples=["monday-calls"])
    jobs: list[AcceptedFile]


class Job(BaseModel):
    """A job as it stands."""

    id: str = Field(description="UUIDv7: ids grow with time", examples=[JOB_ID])
    batch_id: str | None = Field(examples=["monday-calls"])
    file_name: str = Field(description="As sent", examples=["call-0001.wav"])
    status: Status = Field(examples=["completed"])
    stage: str = Field(description="The step inside the status", examples=["completed"])
    progress: float = Field(
        description="Part of the speech that is transcribed, 0..1", examples=[1.0]
    )
    position: int | None = Field(
        description="Place in the queue of its stage under the policy in force, from 1; "
        "null when it does not wait there",
        examples=[None],
    )
    eta_s: float | None = Field(
        description="Seconds until it is done, as forecast now (P50: as likely sooner as later); "
        "null when it has ended, while nobody can say, and in lists",
        examples=[41.5],
    )
    eta_p90_s: float | None = Field(
        description="Seconds until it is done nine times in ten; null as `eta_s`", examples=[56.0]
    )
    duration_s: float | None = Field(description="Length of the recording", examples=[214.6])
    duration_source: str | None = Field(
        description="Who says so: hint (the sender, not trusted), header, scan, decode or declared",
        examples=["decode"],
    )
    duration_exact: bool | None = Field(description="True when every sample was counted")
    probed_s: float | None = Field(
        description="Length before it was decoded: what the queue first went by", examples=[214.5]
    )
    probed_source: str | None = Field(description="Who said that", examples=["header"])
    probe_reason: str | None = Field(
        description="Why a cheaper source was not believed; null when the first one was",
        examples=["the WAV header claims 4294967295 bytes of sound in 160044"],
    )
    transcribed_s: float | None = Field(
        description="Speech with words that nobody doubts; null until it is completed",
        examples=[150.2],
    )
    channels: int | None = Field(examples=[2])
    language: str | None = Field(
        description="As detected (of several the one of most speech), else as asked for; null: the "
        "default",
        examples=["en"],
    )
    language_detected: bool = Field(description="Whether it was heard out")
    task: Literal["transcribe", "translate"] = Field(description="As asked for")
    speakers: list[str] | None = Field(
        description="Who is on which channel, the left one first, as told",
        examples=[["agent", "customer"]],
    )
    vocabulary: str | None = Field(
        description="Names and terms likely to be said, as told", examples=["Müller, Fairscribe"]
    )
    raw_format: str | None = Field(
        description="What a recording without a header was said to be", examples=["sln@16000"]
    )
    source_url: str | None = Field(
        description="Where it was fetched from, without name and password; null: it was uploaded",
        examples=[None],
    )
    model: str | None = Field(examples=["tiny.en"])
    attempts: int = Field(
        description="How often a worker was given it at the stage it is in, since it came or was "
        "tried again",
        examples=[2],
    )
    deadline: datetime | None = Field(description="Wanted by then, as told")
    wait_budget_s: float | None = Field(
        description="How long it may wait for a speech engine, as told", examples=[600.0]
    )
    created_at: datetime
    started_at: datetime | None = Field(description="First granted to a speech engine")
    first_text_at: datetime | None = Field(description="First part transcribed")
    completed_at: datetime | None = Field(description="When it ended, well or not")
    audio_erased_at: datetime | None = Field(
        description="When the recording was erased because its days were over; null: it is kept"
    )
    transcript_erased_at: datetime | None = Field(
        description="When the transcript was erased because its days were over"
    )
    wait_s: float | None = Field(description="From created_at to started_at", examples=[12.5])
    run_s: float | None = Field(description="From started_at to completed_at", examples=[7.25])
    error: Reason | None = Field(None, examples=[None])
    degraded: str | None = Field(
        description="Why the transcript is worth less than usual", examples=[None]
    )
    no_speech: bool = Field(description="Completed, and nobody spoke", examples=[False])
    task_url: str | None = Field(
        description="Its task in Flower; null before an engine has it, or where Flower is not "
        "known",
        examples=["http://127.0.0.1:5555/task/" + JOB_ID],
    )
    metadata: dict[str, Any] = Field(examples=[{"agent": "7"}])

    @classmethod
    def of(
        cls,
        view: JobView,
        stands: Forecast = UNKNOWN,
        flower: str | None = None,
    ) -> Job:
        """The answer for a row, its place in its queue, its forecast, and where Flower is."""
        same = cls.model_fields.keys() & view.__dataclass_fields__.keys()
        own = {"language", "source_url"}
        return cls(
            **{name: getattr(view, name) for name in same - own},
            language=view.detected_language or view.language,
            language_detected=view.detected_language is not None,
            task=view.options.get("task", TASKS[0]),
            speakers=view.options.get("speakers"),
            vocabulary=view.options.get("vocabulary"),
            raw_format=view.options.get("raw_format"),
            source_url=shown_url(view.source_url) if view.source_url else None,
            task_url=f"{flower}/task/{view.id}" if flower and view.started_at else None,
            status=public_status(view.state),  # type: ignore[arg-type]
            stage=view.state.value,
            position=stands.position,
            eta_s=p50_s(stands.times),
            eta_p90_s=p90_s(stands.times),
            wait_s=_between_s(view.created_at, view.started_at),
            run_s=_between_s(view.started_at, view.completed_at),
            error=_reason(view),
        )


def p50_s(times: Times | None) -> float | None:
    """The P50 as it is answered."""
    return None if times is None else round(times.p50_s, 3)


def p90_s(times: Times | None) -> float | None:
    """The P90 as it is answered."""
    return None if times is None else round(times.p90_s, 3)


def _between_s(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else round((end - start).total_seconds(), 3)


def _reason(view: JobView) -> Reason | None:
    if view.error_code is None:
        return None
    return Reason(code=view.error_code, message=view.error_message or "")


class SegmentBody(BaseModel):
    """Words said on one channel between two moments of the recording."""

    start_s: float = Field(examples=[0.4])
    end_s: float = Field(examples=[1.3])
    channel: int = Field(description="From 0", examples=[0])
    speaker: str | None = Field(
        description="Whose side of a call; null where sides are not known", examples=["left"]
    )
    text: str = Field(examples=["Good morning."])
    confidence: float | None = Field(
        description="Mean probability of a token, 0..1; null when the engine does not tell",
        examples=[0.93],
    )
    doubt: str | None = Field(
        None, description="Why these words may not have been said; null: no doubt", examples=[None]
    )


class ChannelBody(BaseModel):
    """A channel that was heard."""

    label: str = Field(description="mono, left, right, or channel 3", examples=["left"])
    speaker: str | None = Field(
        description="Whose side it is; null where several people are on it", examples=["agent"]
    )
    language: str = Field(description="Code of the language heard on it", examples=["en"])


class LengthsBody(BaseModel):
    """One recording measured three ways, seconds: where they part, something is missing."""

    probed_s: float | None = Field(description="Before it was decoded", examples=[214.5])
    decoded_s: float = Field(description="As it plays", examples=[214.6])
    speech_s: float = Field(description="Speech found, over all channels", examples=[150.2])
    transcribed_s: float = Field(
        description="Speech with words that nobody doubts", examples=[150.2]
    )


class TranscriptBody(BaseModel):
    """Everything said in a recording, in order of time, and where it came from."""

    job_id: str = Field(examples=[JOB_ID])
    text: str = Field(examples=["Good morning. Hello."])
    language: str = Field(description="Code", examples=["en"])
    duration_s: float = Field(examples=[214.6])
    segments: list[SegmentBody]
    no_speech: bool = Field(description="True: nobody spoke", examples=[False])
    channels: list[ChannelBody] = Field([], description="As segments number them, from 0")
    channel_reason: str = Field(
        "",
        description="Why these channels, in words",
        examples=["each channel carries its own sound"],
    )
    speakers_separated: bool = Field(
        False, description="Whether segments tell one side from the other", examples=[True]
    )
    lengths: LengthsBody | None = None
    provenance: dict[str, Any] = Field(
        description="model, weights_hash, engine, dtype, plan_hash, options",
        examples=[{"model": "tiny.en", "engine": "vllm", "options": {}}],
    )


class JobPage(BaseModel):
    """Some jobs, in the order asked for."""

    jobs: list[Job]
    next_cursor: str | None = Field(
        description="Give it as `cursor` for the next page; null at the end", examples=[JOB_ID]
    )


class Cancelled(BaseModel):
    """The answer to a cancel."""

    id: str = Field(examples=[JOB_ID])
    status: Status = Field(
        description="`cancelled`, or how it had ended before", examples=["cancelled"]
    )
    cancelled: bool = Field(description="False when it had ended already")


class Health(BaseModel):
    """The answer of something that lives."""

    status: Literal["ok"] = "ok"
