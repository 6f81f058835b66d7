"""What answers about the queue and its policy look like, and a change of policy: see bodies.py."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pipeline.api.bodies import JOB_ID


class Counts(BaseModel):
    """Jobs at each of the two stages that have a queue."""

    survey: int = Field(description="Found to be audio; decoded and planned next", examples=[2])
    transcribe: int = Field(description="Planned; transcribed next", examples=[8])


class QueuedJob(BaseModel):
    """One waiting job and why it stands where it does."""

    position: int = Field(description="Place in the queue of its stage, from 1", examples=[1])
    id: str = Field(examples=[JOB_ID])
    file_name: str = Field(examples=["call-0001.wav"])
    stage: Literal["survey", "transcribe"] = Field(examples=["transcribe"])
    wait_s: float = Field(description="W: since it came", examples=[30.0])
    work_s: float = Field(description="S: predicted work in reference slot seconds", examples=[6.0])
    ratio: float = Field(description="Response ratio 1 + W/S", examples=[6.0])
    duration_s: float | None = Field(examples=[64.2])
    eta_s: float | None = Field(
        description="Seconds until it is done; null while nobody can say", examples=[7.5]
    )
    eta_p90_s: float | None = Field(
        description="Seconds until it is done nine times in ten", examples=[11.0]
    )
    why: str = Field(
        description="Why it stands here, under the policy in force",
        examples=["waited 30 s for 6 s of work: 30/6^1.5 = 2.041, the highest"],
    )


class JobInHand(BaseModel):
    """One job a worker has."""

    id: str = Field(examples=[JOB_ID])
    file_name: str = Field(examples=["call-0002.wav"])
    stage: Literal["survey", "transcribe"] = Field(examples=["transcribe"])
    worker: str | None = Field(examples=["transcribe@gpu-1"])
    since_s: float = Field(description="Since it was taken in hand", examples=[2.5])
    progress: float = Field(
        description="Part of the speech that is transcribed, 0..1", examples=[0.5]
    )
    eta_s: float | None = Field(description="Seconds until it is done", examples=[1.5])
    eta_p90_s: float | None = Field(
        description="Seconds until it is done nine times in ten", examples=[2.5]
    )


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
    all_done_p90_s: float | None = Field(
        description="Seconds until that nine times in ten; null as `all_done_s`", examples=[360.0]
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
