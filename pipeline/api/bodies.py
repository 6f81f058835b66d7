"""What requests and answers look like. Times are RFC 3339; seconds are numbers; absent is null."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pipeline.fetch.urls import shown_url
from pipeline.job import TASKS, JobView, public_status
from pipeline.store.batches import BatchView

Status = Literal["queued", "processing", "completed", "failed", "cancelled"]

_JOB_ID = "01977f6e-8a3b-7c52-9d10-5b1f6c2a4e77"


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
        examples=[_JOB_ID],
    )
    file_name: str = Field(examples=["call-0001.wav"])
    source_url: str | None = Field(None, description="The URL, if it was one")
    status: Status = Field(description="`failed` for what was refused at once")
    error: Reason | None = None


class Submission(BaseModel):
    """The answer to a submission: each file, then each URL, with its job, in their order."""

    batch_id: str = Field(description="As asked for, or chosen", examples=["monday-calls"])
    jobs: list[AcceptedFile]


class Job(BaseModel):
    """A job as it stands."""

    id: str = Field(description="UUIDv7: ids grow with time", examples=[_JOB_ID])
    batch_id: str | None = Field(examples=["monday-calls"])
    file_name: str = Field(description="As sent", examples=["call-0001.wav"])
    status: Status
    stage: str = Field(description="The step inside the status", examples=["surveyed"])
    progress: float = Field(description="Part of the speech that is transcribed, 0..1")
    position: int | None = Field(
        description="Place in the queue of its stage under the policy in force, from 1; "
        "null when it does not wait there",
    )
    eta_s: float | None = Field(description="Seconds until it is done; not forecast yet: null")
    duration_s: float | None = Field(description="Length of the recording", examples=[214.6])
    duration_source: str | None = Field(
        description="Who says so: header, scan, decode or declared", examples=["decode"]
    )
    duration_exact: bool | None = Field(description="True when every sample was counted")
    probed_s: float | None = Field(
        description="Length before it was decoded: what the queue first went by", examples=[214.5]
    )
    probed_source: str | None = Field(description="Who said that", examples=["header"])
    channels: int | None = Field(examples=[2])
    language: str | None = Field(
        description="As detected, else as asked for; null: the default", examples=["en"]
    )
    language_detected: bool = Field(description="Whether it was heard out")
    task: Literal["transcribe", "translate"] = Field(description="As asked for")
    speakers: list[str] | None = Field(
        description="Who is on the left and who on the right channel, as told",
        examples=[["agent", "customer"]],
    )
    source_url: str | None = Field(
        description="Where it was fetched from, without name and password; null: it was uploaded"
    )
    model: str | None = Field(examples=["tiny.en"])
    attempts: int = Field(description="How often a worker was given the job")
    created_at: datetime
    started_at: datetime | None = Field(description="First granted to a speech engine")
    first_text_at: datetime | None = Field(description="First part transcribed")
    completed_at: datetime | None = Field(description="When it ended, well or not")
    wait_s: float | None = Field(description="From created_at to started_at", examples=[12.5])
    run_s: float | None = Field(description="From started_at to completed_at", examples=[7.25])
    error: Reason | None = None
    degraded: str | None = Field(description="Why the transcript is worth less than usual")
    no_speech: bool = Field(description="Completed, and nobody spoke")
    task_url: str | None = Field(
        description="Its task in Flower; null before an engine has it, or where Flower is not known"
    )
    metadata: dict[str, Any] = Field(examples=[{"agent": "7"}])

    @classmethod
    def of(cls, view: JobView, position: int | None = None, flower: str | None = None) -> Job:
        """The answer for a row, its place in its queue, and where Flower is."""
        same = cls.model_fields.keys() & view.__dataclass_fields__.keys()
        own = {"language", "source_url"}
        return cls(
            **{name: getattr(view, name) for name in same - own},
            language=view.detected_language or view.language,
            language_detected=view.detected_language is not None,
            task=view.options.get("task", TASKS[0]),
            speakers=view.options.get("speakers"),
            source_url=shown_url(view.source_url) if view.source_url else None,
            task_url=f"{flower}/task/{view.id}" if flower and view.started_at else None,
            status=public_status(view.state),  # type: ignore[arg-type]
            stage=view.state.value,
            position=position,
            eta_s=None,
            wait_s=_between_s(view.created_at, view.started_at),
            run_s=_between_s(view.started_at, view.completed_at),
            error=_reason(view),
        )


def _between_s(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else round((end - start).total_seconds(), 3)


def _reason(view: JobView) -> Reason | None:
    if view.error_code is None:
        return None
    return Reason(code=view.error_code, message=view.error_message or "")


class JobPage(BaseModel):
    """Some jobs, in the order asked for."""

    jobs: list[Job]
    next_cursor: str | None = Field(
        description="Give it as `cursor` for the next page; null at the end", examples=[_JOB_ID]
    )


class Cancelled(BaseModel):
    """The answer to a cancel."""

    id: str = Field(examples=[_JOB_ID])
    status: Status = Field(description="`cancelled`, or how it had ended before")
    cancelled: bool = Field(description="False when it had ended already")


class BatchCounts(BaseModel):
    """Jobs of a batch by their status."""

    queued: int
    processing: int
    completed: int
    failed: int
    cancelled: int


class Batch(BaseModel):
    """A batch as it stands: all jobs that carry its id."""

    batch_id: str = Field(examples=["monday-calls"])
    created_at: datetime = Field(description="When its first job came")
    completed_at: datetime | None = Field(description="When its last job ended; null before")
    counts: BatchCounts
    jobs: int = Field(description="How many there are")
    duration_s: float = Field(description="Of all its recordings, as far as known")
    duration_done_s: float = Field(description="Of those with a transcript")
    progress: float = Field(description="Part of the work that is done, 0..1, by duration")
    eta_s: float | None = Field(description="Seconds until it is done; not forecast yet: null")

    @classmethod
    def of(cls, view: BatchView, eta_s: float | None) -> Batch:
        """The answer for what the store says, and the forecast."""
        fields = {name: getattr(view, name) for name in cls.model_fields if hasattr(view, name)}
        return cls(**fields, eta_s=eta_s)


class BatchPage(BaseModel):
    """Some batches, newest first."""

    batches: list[Batch]
    next_cursor: str | None = Field(
        description="Give it as `cursor` for the next page; null at the end"
    )


class BatchCancelled(BaseModel):
    """The answer to the cancel of a batch."""

    batch_id: str = Field(examples=["monday-calls"])
    cancelled: int = Field(description="Jobs stopped; those that had ended stay as they ended")


class Counts(BaseModel):
    """Jobs at each of the two stages that have a queue."""

    survey: int = Field(description="Found to be audio; decoded and planned next")
    transcribe: int = Field(description="Planned; transcribed next")


class QueuedJob(BaseModel):
    """One waiting job and why it stands where it does."""

    position: int = Field(description="Place in the queue of its stage, from 1")
    id: str = Field(examples=[_JOB_ID])
    file_name: str
    stage: Literal["survey", "transcribe"]
    wait_s: float = Field(description="W: since it came", examples=[30.0])
    work_s: float = Field(description="S: predicted work in reference slot seconds", examples=[6.0])
    ratio: float = Field(description="Response ratio 1 + W/S", examples=[6.0])
    duration_s: float | None


class QueueView(BaseModel):
    """The queue now."""

    policy: str = Field(examples=["hrrn(1.5)"])
    waiting: Counts
    working: Counts
    head: list[QueuedJob] = Field(
        description="Who goes first at each stage, `transcribe` before `survey`"
    )


class PolicyChange(BaseModel):
    """A new order of work."""

    model_config = ConfigDict(extra="forbid")

    policy: Annotated[str, Field(max_length=100)] = Field(
        description="fcfs, sjf, hrrn(g) or aged(beta)", examples=["hrrn(1.5)"]
    )
    reason: Annotated[str, Field(max_length=1000)] = Field(
        "by hand", description="Kept with the change", examples=["long calls wait too long"]
    )


class PolicyView(BaseModel):
    """The order of work."""

    policy: str = Field(description="As last decided", examples=["hrrn(1.5)"])
    reason: str | None = Field(description="Why; null: nobody changed it since the first start")
    changed_at: datetime | None = Field(description="When; null as `reason`")


class PolicyHistory(BaseModel):
    """The last changes of the order of work, newest first."""

    changes: list[PolicyView]


class Health(BaseModel):
    """The answer of something that lives."""

    status: Literal["ok"] = "ok"
