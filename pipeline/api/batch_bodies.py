"""What answers about batches look like: see bodies.py."""

from __future__ import annotations

from datetime import datetime, timedelta

from pydantic import BaseModel, Field

from pipeline.api.bodies import p50_s, p90_s
from pipeline.steps.forecast.told import Times
from pipeline.store.batches import BatchView


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
        description="Seconds until its last job is done, as forecast now (P50); null once it is, "
        "while nobody can say, and in lists",
        examples=[1310.5],
    )
    eta_p90_s: float | None = Field(
        description="Seconds until its last job is done nine times in ten; null as `eta_s`",
        examples=[1540.0],
    )
    done_by: datetime | None = Field(description="`eta_s` as a time; null as that")
    done_by_p90: datetime | None = Field(description="`eta_p90_s` as a time; null as that")

    @classmethod
    def of(cls, view: BatchView, times: Times | None = None, now: datetime | None = None) -> Batch:
        """The answer for what the store says, and the forecast, made `now`."""
        fields = {name: getattr(view, name) for name in cls.model_fields if hasattr(view, name)}
        eta_s, eta_p90_s = p50_s(times), p90_s(times)
        return cls(
            **fields,
            eta_s=eta_s,
            eta_p90_s=eta_p90_s,
            done_by=_after(now, eta_s),
            done_by_p90=_after(now, eta_p90_s),
        )


def _after(now: datetime | None, seconds: float | None) -> datetime | None:
    """To the second: no forecast is finer."""
    if now is None or seconds is None:
        return None
    return (now + timedelta(seconds=seconds + 0.5)).replace(microsecond=0)


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
