"""What answers about batches look like: see bodies.py."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

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
