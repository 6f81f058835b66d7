"""A transcript as an answer: in the format asked for, and as a file when it is to be kept."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import Query, Response

from pipeline.api.bodies import TranscriptBody
from pipeline.api.described import Responses, ref
from pipeline.api.openai_bodies import VerboseTranscription
from pipeline.transcript.formats import FORMATS, Format

FormatName = Literal["json", "verbose_json", "srt", "vtt", "txt"]

GivenFormat = Annotated[
    FormatName,
    Query(
        description="`json`: all we know; `verbose_json`: as OpenAI's API tells it; `srt` and "
        "`vtt`: subtitles; `txt`: a line a segment"
    ),
]
GivenDownload = Annotated[
    bool, Query(description="Answer as a file to keep, named after the recording")
]

EXAMPLE = {
    "job_id": "01977f6e-8a3b-7c52-9d10-5b1f6c2a4e77",
    "text": "Good morning. Hello.",
    "language": "en",
    "duration_s": 214.6,
    "segments": [
        {
            "start_s": 0.4,
            "end_s": 1.3,
            "channel": 0,
            "speaker": "left",
            "text": "Good morning.",
            "confidence": 0.93,
            "doubt": None,
        },
        {
            "start_s": 1.6,
            "end_s": 2.1,
            "channel": 1,
            "speaker": "right",
            "text": "Hello.",
            "confidence": 0.88,
            "doubt": None,
        },
    ],
    "no_speech": False,
    "channels": [
        {"label": "left", "speaker": "left", "language": "en"},
        {"label": "right", "speaker": "right", "language": "en"},
    ],
    "channel_reason": "each channel carries its own sound",
    "speakers_separated": True,
    "lengths": {
        "probed_s": 214.5,
        "decoded_s": 214.6,
        "speech_s": 150.2,
        "transcribed_s": 150.2,
    },
    "provenance": {
        "model": "tiny.en",
        "weights_hash": "4f1d6c0b9a27e835",
        "engine": "vllm",
        "dtype": "bfloat16",
        "plan_hash": "4eed3fd78be65672",
        "options": {},
    },
}

_BODIES = {"json": ref(TranscriptBody), "verbose_json": ref(VerboseTranscription)}


def contents(
    formats: Mapping[str, Format],
    bodies: Mapping[str, dict[str, Any]],
    parameter: str,
    example: Mapping[str, Any] = EXAMPLE,
) -> dict[str, Any]:
    """Media types of `formats`, each with what `example` looks like in it, for /openapi.json.

    `bodies`: schemas of those that are JSON; `parameter` is how a caller asks for a format.
    """
    told: dict[str, Any] = {}
    for name, known in formats.items():
        content = told.setdefault(known.media_type, {"schema": {"anyOf": []}, "examples": {}})
        content["schema"]["anyOf"].append(bodies.get(name, {"type": "string"}))
        written = known.write(example)
        shown = json.loads(written) if name in bodies else written
        content["examples"][name] = {"summary": f"{parameter}={name}", "value": shown}
    return told


TRANSCRIPT_ANSWERS: Responses = {
    200: {
        "description": "The transcript in the format asked for",
        "content": contents(FORMATS, _BODIES, "format"),
        "headers": {
            "Content-Disposition": {
                "description": "With `download`: the file's name, after the recording's",
                "schema": {"type": "string"},
            }
        },
    }
}
"""What a transcript looks like in each format, for /openapi.json."""

NAME_BYTES = 200
"""Longest name of a file to keep, UTF-8, without its ending: file systems stop at 255."""


def render(body: dict[str, Any], format: FormatName, save_as: str | None = None) -> Response:
    """The document in `format`; `save_as`, a recording's name, makes it a download."""
    known = FORMATS[format]
    headers = {}
    if save_as is not None:
        headers["Content-Disposition"] = attachment(save_as, known.ending)
    return Response(known.write(body), media_type=known.media_type, headers=headers)


def attachment(file_name: str, ending: str) -> str:
    r"""A Content-Disposition (RFC 6266) that names a file after `file_name`, with `ending`.

    A file name is anything its sender likes; only letters that cannot end a header, name a folder
    or turn the direction of what follows are left, and none is written as it is beyond ASCII.

    >>> print(attachment("Gespräch 1.wav", ".srt"))
    attachment; filename="Gespr_ch 1.srt"; filename*=UTF-8''Gespr%C3%A4ch%201.srt
    >>> print(attachment('../a\r\nSet-Cookie: "x".mp3', ".vtt"))
    attachment; filename="aSet-Cookie_ _x_.vtt"; filename*=UTF-8''aSet-Cookie%3A%20%22x%22.vtt
    """
    name = re.split(r"[/\\]", file_name)[-1]
    stem = name.rpartition(".")[0] or name
    shown = "".join(letter for letter in stem if unicodedata.category(letter)[0] != "C")
    kept = shown.encode("utf-8")[:NAME_BYTES].decode("utf-8", "ignore").strip(" .") or "transcript"
    plain = re.sub(r"[^A-Za-z0-9 ._()+-]", "_", kept)
    coded = quote(kept + ending, safe="")
    return f"attachment; filename=\"{plain}{ending}\"; filename*=UTF-8''{coded}"
