"""A transcript put together: words, who was heard in which language, how long it all is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.engine import Heard
from pipeline.recording import Channel, Lengths, Plan, Transcript
from pipeline.transcript.merge import merge
from pipeline.transcript.sides import speakers_of
from pipeline.transcript.worth import transcribed_s


@dataclass(frozen=True)
class Spoken:
    """Languages of a recording, as codes."""

    main: str
    """The one of most speech."""
    by_channel: Sequence[str] | None = None
    """That of each channel of the plan; None: all have `main`."""


def compose(
    job_id: str,
    plan: Plan,
    heard: Mapping[int, Heard],
    spoken: Spoken,
    *,
    probed_s: float | None,
    options: Mapping[str, Any],
    provenance: Mapping[str, Any],
) -> Transcript:
    """The transcript of what is `heard` of the plan's windows, by index; all, or some so far.

    A plan without windows is a recording in which nobody speaks.
    """
    speakers = options.get("speakers")
    segments = merge(plan, heard, speakers)
    return Transcript(
        job_id=job_id,
        text=" ".join(segment.text for segment in segments),
        language=spoken.main,
        duration_s=plan.duration_s,
        segments=segments,
        no_speech=not plan.windows,
        channels=_channels(plan, spoken, speakers),
        channel_reason=plan.channel_reason,
        speakers_separated=len(plan.channels) > 1,
        lengths=Lengths(
            probed_s=probed_s,
            decoded_s=plan.duration_s,
            speech_s=round(plan.speech_s, 3),
            transcribed_s=transcribed_s(plan, heard),
        ),
        provenance={**provenance, "plan_hash": plan.plan_hash, "options": dict(options)},
    )


def _channels(plan: Plan, spoken: Spoken, speakers: Sequence[str] | None) -> tuple[Channel, ...]:
    languages = spoken.by_channel or ()
    # another survey may have found other channels than those whose languages are known
    if len(languages) != len(plan.channels):
        languages = [spoken.main] * len(plan.channels)
    names = speakers_of(plan, speakers)
    return tuple(
        Channel(label, name, language)
        for label, name, language in zip(plan.channels, names, languages, strict=True)
    )
