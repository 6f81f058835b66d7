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
    file_name: str | None = Field(
        description="null: the key may not read this job", examples=["call-0001.wav"]
    )
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
    file_name: str | None = Field(
        description="null: the key may not read this job", examples=["call-0002.wav"]
    )
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

    policy: str = Field(description="In force now", examples=["hrrn(2.5,300)"])
    mode: Literal["fixed", "auto", "trial"] = Field(
        description="Who decides it", examples=["fixed"]
    )
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
        description="fcfs, sjf, hrrn(g), hrrn(g,K), aged(beta) or auto", examples=["hrrn(2.5,300)"]
    )
    reason: Annotated[str, Field(max_length=1000)] = Field(
        "by hand", description="Kept with the change", examples=["long calls wait too long"]
    )


class PolicyView(BaseModel):
    """The order of work."""

    policy: str = Field(description="As last asked for", examples=["auto"])
    in_force: str = Field(description="What claims go by now", examples=["hrrn(2.5,300)"])
    mode: Literal["fixed", "auto", "trial"] = Field(
        description="Who decides: a person or the setting, the backlog, a trial", examples=["auto"]
    )
    reason: str | None = Field(
        description="Why; null: nobody changed it since the first start",
        examples=["long calls wait too long"],
    )
    changed_at: datetime | None = Field(description="When; null as `reason`")


class TrialRequest(BaseModel):
    """Another policy, to be tried against the one in force."""

    model_config = ConfigDict(extra="forbid")

    policy: Annotated[str, Field(max_length=100)] = Field(
        description="B: fcfs, sjf, hrrn(g), hrrn(g,K) or aged(beta)", examples=["hrrn(3)"]
    )
    block_s: Annotated[float, Field(ge=1, le=86_400)] = Field(
        600.0, description="Seconds of a block, which is of one policy", examples=[600.0]
    )
    blocks: Annotated[int, Field(ge=6, le=1000, multiple_of=2)] = Field(
        12, description="Even: they come in pairs of A and B, in an order that is drawn"
    )
    keep_better: bool = Field(
        False, description="Keep B at the end if it is better for certain; else A comes back"
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = Field(
        None, description="Of the order of the blocks; drawn when absent", examples=[7]
    )


class RatioView(BaseModel):
    """One quantile of the time to result under both policies."""

    a_s: float = Field(examples=[31.0])
    b_s: float = Field(examples=[12.4])
    ratio: float = Field(description="B / A: below 1, B is better", examples=[0.4])
    low: float = Field(description="Its interval", examples=[0.31])
    high: float = Field(examples=[0.52])


class ComparisonView(BaseModel):
    """B against A, by complete pairs of blocks."""

    pairs: int = Field(examples=[3])
    jobs_a: int = Field(description="Jobs that count for A", examples=[412])
    jobs_b: int = Field(examples=[398])
    quantiles: dict[str, RatioView] = Field(
        description="`p50`, `p95`, `p99`; empty while there are too few jobs or pairs"
    )


class TrialView(BaseModel):
    """A policy tried on live work."""

    id: int = Field(examples=[3])
    state: Literal["running", "kept", "returned", "stopped"] = Field(
        description="Under way; B stays; A came back; somebody ended it", examples=["running"]
    )
    policy_a: str = Field(description="In force before", examples=["hrrn(2.5,300)"])
    policy_b: str = Field(description="On trial", examples=["hrrn(3)"])
    block_s: float = Field(examples=[600.0])
    blocks: int = Field(examples=[12])
    block: int | None = Field(
        description="The block of now, from 1; null when it has ended", examples=[7]
    )
    seed: int = Field(examples=[7])
    keep_better: bool
    comparison: ComparisonView
    reason: str | None = Field(description="Why it ended", examples=[None])
    started_at: datetime
    ended_at: datetime | None = Field(examples=[None])


class TrialList(BaseModel):
    """Trials, the newest first."""

    trials: list[TrialView]


class ReplayedView(BaseModel):
    """What the simulator says of one policy: time to result."""

    policy: str = Field(examples=["hrrn(3)"])
    p50_s: float = Field(examples=[12.4])
    p95_s: float = Field(examples=[90.1])
    p99_s: float = Field(examples=[203.0])
    max_s: float = Field(description="The longest", examples=[410.5])


class ReplayView(BaseModel):
    """Recorded arrivals under two policies, simulated: no live work is touched."""

    jobs: int = Field(description="Replayed recordings", examples=[1200])
    hours: float = Field(description="From the first arrival to the last", examples=[5.9])
    slots: int = Field(examples=[32])
    speed: float = Field(description="Reference slot seconds a second", examples=[125.0])
    a: ReplayedView = Field(description="The policy in force")
    b: ReplayedView = Field(description="The policy asked about")


class PolicyHistory(BaseModel):
    """The last changes of the order of work, newest first."""

    changes: list[PolicyView]
