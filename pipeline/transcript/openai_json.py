"""A transcript in the two JSON shapes of OpenAI's audio API.

Nothing is made up: what the engine does not tell is null, though OpenAI's page promises a number.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from typing import Any

from pipeline.transcript.languages import name_of


def to_openai_json(body: Mapping[str, Any]) -> dict[str, Any]:
    """`{"text"}`: all that was said, and nothing else."""
    return {"text": body["text"]}


def to_verbose_json(body: Mapping[str, Any]) -> dict[str, Any]:
    """`{"task", "language", "duration", "text", "segments"}`; seconds throughout.

    Beside OpenAI's keys a segment has our `speaker`, `channel` and `doubt`. A translation's
    language is that of its words, English, whatever was spoken.
    """
    options = (body.get("provenance") or {}).get("options") or {}
    task = options.get("task", "transcribe")
    return {
        "task": task,
        "language": "english" if task == "translate" else name_of(body["language"]),
        "duration": body["duration_s"],
        "text": body["text"],
        "segments": [_segment(number, said) for number, said in enumerate(body["segments"])],
    }


def _segment(number: int, said: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": number,
        "seek": None,
        "start": said["start_s"],
        "end": said["end_s"],
        "text": said["text"],
        "tokens": [],
        "temperature": None,
        "avg_logprob": avg_logprob(said["confidence"]),
        "compression_ratio": compression_ratio(said["text"]),
        "no_speech_prob": None,
        "speaker": said["speaker"],
        "channel": said["channel"],
        "doubt": said.get("doubt"),
    }


def avg_logprob(confidence: float | None) -> float | None:
    """Mean natural logarithm of a token's probability, from a confidence of 0..1.

    None where it is not known, or too small to have one.

    >>> avg_logprob(0.5), avg_logprob(1.0), avg_logprob(0.0)
    (-0.6931, 0.0, None)
    """
    return round(math.log(confidence), 4) if confidence else None


def compression_ratio(text: str) -> float:
    """Bytes of the text over its bytes packed by zlib: above 2.4 Whisper's words repeat.

    >>> compression_ratio("la " * 100) > 2.4 > compression_ratio("How can I help you today?")
    True
    """
    raw = text.encode("utf-8", "replace")
    return round(len(raw) / len(zlib.compress(raw)), 4)
