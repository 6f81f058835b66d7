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
    source_url: str | None = Field(None, description="The URL, if it was one", examples=[None])
    status: Status = Field(description="`failed` for what was refused at once", examples=["queued"])
    error: Reason | None = Field(None, examples=[None])


class Submission(BaseModel):
    """The answer to a submission: each file, then each URL, with its job, in their order."""

    batch_id: str = Field(description="As asked for, or chosen", examples=["monday-calls"])
    jobs: list[AcceptedFile]


class Job(BaseModel):
    """A job as it stands."""

    id: str = Field(description="UUIDv7: ids grow with time", examples=[_JOB_ID])
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
        description="Seconds until it is done, as forecast now; null when it has ended, while "
        "nobody can say, and in lists",
        examples=[41.5],
    )
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
        description="Where it was fetched from, without name and password; null: it was uploaded",
        examples=[None],
    )
    model: str | None = Field(examples=["tiny.en"])
    attempts: int = Field(
        description="How often a worker was given it at the stage it is in, since it came or was "
        "tried again",
        examples=[2],
    )
    created_at: datetime
    started_at: datetime | None = Field(description="First granted to a speech engine")
    first_text_at: datetime | None = Field(description="First part transcribed")
    completed_at: datetime | None = Field(description="When it ended, well or not")
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
        examples=["http://127.0.0.1:5555/task/" + _JOB_ID],
    )
    metadata: dict[str, Any] = Field(examples=[{"agent": "7"}])

    @classmethod
    def of(
        cls,
        view: JobView,
        position: int | None = None,
        eta_s: float | None = None,
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
            source_url=shown_url(view.source_url) if view.source_url else None,
            task_url=f"{flower}/task/{view.id}" if flower and view.started_at else None,
            status=public_status(view.state),  # type: ignore[arg-type]
            stage=view.state.value,
            position=position,
            eta_s=None if eta_s is None else round(eta_s, 3),
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


class TranscriptBody(BaseModel):
    """Everything said in a recording, in order of time, and where it came from."""

    job_id: str = Field(examples=[_JOB_ID])
    text: str = Field(examples=["Good morning. Hello."])
    language: str = Field(description="Code", examples=["en"])
    duration_s: float = Field(examples=[214.6])
    segments: list[SegmentBody]
    no_speech: bool = Field(description="True: nobody spoke", examples=[False])
    provenance: dict[str, Any] = Field(
        description="model, weights_hash, engine, dtype, plan_hash, options",
        examples=[{"model": "tiny.en", "engine": "vllm", "options": {}}],
    )


class JobPage(BaseModel):
    """Some jobs, in the order asked for."""

    jobs: list[Job]
    next_cursor: str | None = Field(
        description="Give it as `cursor` for the next page; null at the end", examples=[_JOB_ID]
    )


class Cancelled(BaseModel):
    """The answer to a cancel."""

    id: str = Field(examples=[_JOB_ID])
    status: Status = Field(
        description="`cancelled`, or how it had ended before", examples=["cancelled"]
    )
    cancelled: bool = Field(description="False when it had ended already")


class BatchCounts(BaseModel):
    """Jobs of a batch by their status."""

    queued: int = Field(examples=[812])
    processing: int = Field(examples=[3])
    completed: int = Field(examples=[181])
    failed: int = Field(examples=[4])
    cancelled: int = Field(examples=[0])


class Batch(BaseModel):
    """A batch as it stands: all jobs that carry its id."""

    batch_id: str = Field(examples=["monday-calls"])
    created_at: datetime = Field(description="When its first job came")
    completed_at: datetime | None = Field(description="When its last job ended; null before")
    counts: BatchCounts
    jobs: int = Field(description="How many there are", examples=[1000])
    duration_s: float = Field(
        description="Of all its recordings, as far as known", examples=[214600.0]
    )
    duration_done_s: float = Field(description="Of those with a transcript", examples=[38843.0])
    progress: float = Field(
        description="Part of the work that is done, 0..1, by duration", examples=[0.181]
    )
    eta_s: float | None = Field(
        description="Seconds until its last job is done; null once it is, while nobody can say, "
        "and in lists",
        examples=[1310.5],
    )

    @classmethod
    def of(cls, view: BatchView, eta_s: float | None = None) -> Batch:
        """The answer for what the store says, and the forecast."""
        fields = {name: getattr(view, name) for name in cls.model_fields if hasattr(view, name)}
        return cls(**fields, eta_s=eta_s)


class BatchPage(BaseModel):
    """Some batches, newest first."""

    batches: list[Batch]
    next_cursor: str | None = Field(
        description="Give it as `cursor` for the next page; null at the end", examples=[None]
    )


class BatchCancelled(BaseModel):
    """The answer to the cancel of a batch."""

    batch_id: str = Field(examples=["monday-calls"])
    cancelled: int = Field(
        description="Jobs stopped; those that had ended stay as they ended", examples=[815]
    )


class Counts(BaseModel):
    """Jobs at each of the two stages that have a queue."""

    survey: int = Field(description="Found to be audio; decoded and planned next", examples=[2])
    transcribe: int = Field(description="Planned; transcribed next", examples=[8])


class QueuedJob(BaseModel):
    """One waiting job and why it stands where it does."""

    position: int = Field(description="Place in the queue of its stage, from 1", examples=[1])
    id: str = Field(examples=[_JOB_ID])
    file_name: str = Field(examples=["call-0001.wav"])
    stage: Literal["survey", "transcribe"] = Field(examples=["transcribe"])
    wait_s: float = Field(description="W: since it came", examples=[30.0])
    work_s: float = Field(description="S: predicted work in reference slot seconds", examples=[6.0])
    ratio: float = Field(description="Response ratio 1 + W/S", examples=[6.0])
    duration_s: float | None = Field(examples=[64.2])
    eta_s: float | None = Field(
        description="Seconds until it is done; null while nobody can say", examples=[7.5]
    )
    why: str = Field(
        description="Why it stands here, under the policy in force",
        examples=["waited 30 s for 6 s of work: 30/6^1.5 = 2.041, the highest"],
    )


class JobInHand(BaseModel):
    """One job a worker has."""

    id: str = Field(examples=[_JOB_ID])
    file_name: str = Field(examples=["call-0002.wav"])
    stage: Literal["survey", "transcribe"] = Field(examples=["transcribe"])
    worker: str | None = Field(examples=["transcribe@gpu-1"])
    since_s: float = Field(description="Since it was taken in hand", examples=[2.5])
    progress: float = Field(
        description="Part of the speech that is transcribed, 0..1", examples=[0.5]
    )
    eta_s: float | None = Field(description="Seconds until it is done", examples=[1.5])


class WorkerSpeedView(BaseModel):
    """How fast one worker is."""

    worker: str = Field(examples=["transcribe@gpu-1"])
    stage: Literal["survey", "transcribe"] = Field(examples=["transcribe"])
    speed: float | None = Field(
        description="Work a second through all its slots: reference slot seconds at `transcribe`, "
        "seconds of audio at `survey`; null before its first is done",
        examples=[125.0],
    )
    slots: int = Field(examples=[32])


class RatiosView(BaseModel):
    """Response ratios 1 + W/S of those who go first at a stage, computed every few seconds."""

    highest: float = Field(examples=[9.5])
    median: float = Field(examples=[2.5])
    of: int = Field(description="How many jobs they are of, at most 1000", examples=[42])
    as_of: datetime


class StageRatios(BaseModel):
    """Both stages; null where nobody waited, or they were not computed lately."""

    survey: RatiosView | None
    transcribe: RatiosView | None


class QueueView(BaseModel):
    """The queue now."""

    policy: str = Field(examples=["hrrn(1.5)"])
    waiting: Counts
    working: Counts
    head: list[QueuedJob] = Field(
        description="Who goes first at each stage, `transcribe` before `survey`"
    )
    in_hand: list[JobInHand] = Field(description="Jobs workers have, those nearest their end first")
    workers: list[WorkerSpeedView] = Field(description="Live workers of both stages")
    ratios: StageRatios
    all_done_s: float | None = Field(
        description="Seconds until all that is probed by now has ended; null while nobody can say",
        examples=[310.0],
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
    reason: str | None = Field(
        description="Why; null: nobody changed it since the first start",
        examples=["long calls wait too long"],
    )
    changed_at: datetime | None = Field(description="When; null as `reason`")


class PolicyHistory(BaseModel):
    """The last changes of the order of work, newest first."""

    changes: list[PolicyView]


class Health(BaseModel):
    """The answer of something that lives."""

    status: Literal["ok"] = "ok"
