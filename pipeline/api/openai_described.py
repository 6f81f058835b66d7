"""OpenAI's audio endpoints in /openapi.json: their form, their answers, their errors."""

from __future__ import annotations

from typing import Any, get_args

from pipeline.api.described import BINARY, Responses, openai_problems, ref
from pipeline.api.openai_bodies import Transcription, VerboseTranscription
from pipeline.api.openai_errors import BadParameter, ModelNotFound
from pipeline.api.openai_form import FIELDS, WHISPER_1, ResponseFormat
from pipeline.api.transcripts import contents
from pipeline.errors import (
    BacklogFull,
    EmptyRecording,
    EngineCrashedOnJob,
    NotAudio,
    PartDown,
    TooLarge,
    TooLong,
    TranscriptNotReady,
    UploadTooSlow,
)
from pipeline.transcript.formats import OPENAI_FORMATS

NO_MODEL = ModelNotFound(
    "The model 'gpt-4o' is not served here; `tiny.en` is, also as `whisper-1`."
)

_SCHEMAS: dict[str, dict[str, Any]] = {
    "model": {"type": "string", "examples": [WHISPER_1]},
    "language": {"type": "string", "pattern": "^(auto|[a-z]{2,3})$", "examples": ["en"]},
    "response_format": {
        "type": "string",
        "enum": [*get_args(ResponseFormat)],
        "default": "json",
    },
    "timestamp_granularities[]": {
        "type": "array",
        "items": {"type": "string", "enum": ["segment"]},
    },
    "prompt": {"type": "string", "examples": ["Names: Müller, Smith."]},
    "temperature": {"type": "number", "minimum": 0, "maximum": 1, "default": 0},
    "stream": {"type": "boolean", "default": False},
}

FORM_BODY = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["file", "model"],
                "properties": {
                    "file": {**BINARY, "description": "The recording, one"},
                    **{
                        name: {**_SCHEMAS[name], "description": what}
                        for name, what in FIELDS.items()
                    },
                },
            }
        }
    },
}
"""The form both endpoints take. What OpenAI's other models understand is passed over."""

_BODIES = {"json": ref(Transcription), "verbose_json": ref(VerboseTranscription)}

AUDIO_ANSWERS: Responses = {
    200: {
        "description": "What was said, in the format asked for",
        "content": contents(OPENAI_FORMATS, _BODIES, "response_format"),
        "headers": {
            "X-Request-Id": {
                "description": "The job's id: `/v1/jobs/{job_id}` tells more",
                "schema": {"type": "string", "format": "uuid"},
            }
        },
    },
    **openai_problems(
        BadParameter("response_format is one of json, text, srt, ...", "response_format"),
        EmptyRecording(),
        TooLarge(),
        NotAudio(),
        TooLong(),
        NO_MODEL,
        TranscriptNotReady("The recording was cancelled while it was waited for."),
        EngineCrashedOnJob(),
        UploadTooSlow(),
        BacklogFull(30.0),
        PartDown(),
    ),
}
"""Answers and errors of both endpoints."""
