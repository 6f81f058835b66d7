"""A transcript's document in the formats people ask for: one table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.transcript.openai_json import to_openai_json, to_verbose_json
from pipeline.transcript.subtitles import fold, marked, to_srt, to_vtt


@dataclass(frozen=True)
class Format:
    """How a transcript is written, and what such a file is called."""

    write: Callable[[Mapping[str, Any]], str]
    """The document -> the whole file."""
    media_type: str
    ending: str
    """Of its file's name, with the dot."""


def to_json(body: Mapping[str, Any]) -> str:
    """The document itself."""
    return _dumped(body)


def to_txt(body: Mapping[str, Any]) -> str:
    r"""Plain text: one line a segment, with the speaker where sides are known, and a mark before
    words in doubt.

    >>> to_txt({"segments": [{"speaker": "left", "text": "Hello."}]})
    'left: Hello.\n'
    """
    said = [(fold(s["speaker"] or ""), marked(s)) for s in body["segments"]]
    return "".join(f"{name}: {text}\n" if name else f"{text}\n" for name, text in said if text)


def _text(body: Mapping[str, Any]) -> str:
    text: str = body["text"]
    return text + "\n"


def _brief(body: Mapping[str, Any]) -> str:
    return _dumped(to_openai_json(body))


def _verbose(body: Mapping[str, Any]) -> str:
    return _dumped(to_verbose_json(body))


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


FORMATS = {
    "json": Format(to_json, "application/json", ".json"),
    "verbose_json": Format(_verbose, "application/json", ".json"),
    "srt": Format(to_srt, "application/x-subrip; charset=utf-8", ".srt"),
    "vtt": Format(to_vtt, "text/vtt; charset=utf-8", ".vtt"),
    "txt": Format(to_txt, "text/plain; charset=utf-8", ".txt"),
}
"""Every format by the name callers use."""

OPENAI_FORMATS = {
    "json": Format(_brief, "application/json", ".json"),
    "text": Format(_text, "text/plain; charset=utf-8", ".txt"),
    **{name: FORMATS[name] for name in ("srt", "verbose_json", "vtt")},
}
"""Every format by the name OpenAI gives it: `json` is only the text there."""
