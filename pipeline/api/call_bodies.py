"""What answers about calls in several files look like."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from pipeline.api.bodies import (
    JOB_ID,
    ChannelBody,
    LengthsBody,
    Reason,
    SegmentBody,
    Status,
)
from pipeline.job import State, public_status
from pipeline.steps.join import Recording


class CallLeg(BaseModel):
    """A recording of a call, and how its job stands."""

    job_id: str = Field(examples=[JOB_ID])
    leg: str = Field(
        description="Whose side it is: its metadata's `leg`, else its file's name",
        examples=["agent"],
    )
    leg_offset_s: float = Field(
        description="From the call's start to the recording's", examples=[0.0]
    )
    file_name: str = Field(examples=["agent.wav"])
    status: Status = Field(examples=["completed"])
    progress: float = Field(examples=[1.0])
    duration_s: float | None = Field(examples=[214.6])
    language: str | None = Field(examples=["en"])
    degraded: str | None = Field(examples=[None])
    error: Reason | None = Field(None, examples=[None])
    replaced_by: str | None = Field(
        description="The job that was sent again for this leg and counts in its place; null: this "
        "one counts",
        examples=[None],
    )

    @classmethod
    def of(cls, one: Recording) -> CallLeg:
        """The answer for a recording."""
        view = one.view
        code, message = view.error_code, view.error_message or ""
        return cls(
            job_id=view.id,
            leg=one.place.label,
            leg_offset_s=one.place.offset_s,
            file_name=view.file_name,
            status=public_status(view.state),  # type: ignore[arg-type]
            progress=view.progress,
            duration_s=view.duration_s,
            language=view.detected_language or view.language,
            degraded=view.degraded,
            error=Reason(code=code, message=message) if code else None,
            replaced_by=one.replaced_by,
        )


class Call(BaseModel):
    """A call in several files as it stands."""

    call_id: str = Field(description="As the metadata has it", examples=["2026-03-02/17"])
    ready: bool = Field(description="Whether every leg that counts is completed", examples=[True])
    legs: list[CallLeg]

    @classmethod
    def of(cls, call_id: str, found: list[Recording]) -> Call:
        """The answer for the recordings of a call."""
        counting = [one.view.state for one in found if one.replaced_by is None]
        ready = all(state is State.COMPLETED for state in counting)
        return cls(call_id=call_id, ready=ready, legs=[CallLeg.of(one) for one in found])


class JoinedLeg(BaseModel):
    """A recording as it went into the transcript of its call."""

    job_id: str = Field(examples=[JOB_ID])
    leg: str = Field(examples=["agent"])
    leg_offset_s: float = Field(examples=[0.0])
    duration_s: float = Field(examples=[214.6])
    language: str = Field(examples=["en"])
    channel_reason: str = Field(examples=["one channel"])
    provenance: dict[str, Any] = Field(examples=[{"model": "tiny.en"}])


class CallTranscriptBody(BaseModel):
    """Everything said in a call, in order of time: a transcript whose times are the call's."""

    call_id: str = Field(examples=["2026-03-02/17"])
    text: str = Field(examples=["Good morning. Hello."])
    language: str = Field(description="Code; of several the one of most speech", examples=["en"])
    duration_s: float = Field(description="Until the last leg ends", examples=[215.8])
    segments: list[SegmentBody]
    no_speech: bool = Field(examples=[False])
    channels: list[ChannelBody] = Field(description="Of all legs, as segments number them")
    channel_reason: str = Field(examples=["each leg of the call is a recording of its own"])
    speakers_separated: bool = Field(examples=[True])
    lengths: LengthsBody | None = Field(description="Of all legs together")
    legs: list[JoinedLeg]
    provenance: dict[str, Any] = Field(
        description="options: what was asked of every leg alike", examples=[{"options": {}}]
    )
