"""Transcripts of calls in several files in /openapi.json."""

from __future__ import annotations

from typing import Any

from pipeline.api.bodies import JOB_ID
from pipeline.api.call_bodies import CallTranscriptBody
from pipeline.api.described import Responses, ref
from pipeline.api.openai_bodies import VerboseTranscription
from pipeline.api.transcripts import EXAMPLE, contents
from pipeline.transcript.formats import FORMATS
from pipeline.transcript.legs import Leg, Place, join

OTHER_ID = "01977f6e-8a41-7e08-b6a2-0c9b7d31f5aa"


def _mono(text: str, start_s: float) -> dict[str, Any]:
    """The example of a transcript with one thing said on one channel."""
    said: dict[str, Any] = {
        "start_s": start_s,
        "end_s": start_s + 0.9,
        "channel": 0,
        "speaker": None,
    }
    said |= {"text": text, "confidence": 0.93, "doubt": None}
    channel = {"label": "mono", "speaker": None, "language": "en"}
    return {
        **EXAMPLE,
        "text": text,
        "segments": [said],
        "channels": [channel],
        "channel_reason": "one channel",
        "speakers_separated": False,
    }


EXAMPLE_CALL = join(
    "2026-03-02/17",
    [
        Leg(JOB_ID, Place("2026-03-02/17", "agent", 0.0), _mono("Good morning.", 0.4)),
        Leg(OTHER_ID, Place("2026-03-02/17", "customer", 1.2), _mono("Hello.", 0.4)),
    ],
)
"""The two legs of a call, joined."""

_BODIES = {"json": ref(CallTranscriptBody), "verbose_json": ref(VerboseTranscription)}

CALL_ANSWERS: Responses = {
    200: {
        "description": "The transcript in the format asked for",
        "content": contents(FORMATS, _BODIES, "format", EXAMPLE_CALL),
        "headers": {
            "Content-Disposition": {
                "description": "With `download`: the file's name, after the call's id",
                "schema": {"type": "string"},
            }
        },
    }
}
"""What the transcript of a call looks like in each format, for /openapi.json."""
