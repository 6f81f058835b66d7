"""A transcript's document in the formats people ask for."""

from __future__ import annotations

from typing import Any


def to_txt(body: dict[str, Any]) -> str:
    r"""Plain text: one line a segment, with the speaker where sides are known.

    >>> to_txt({"segments": [{"speaker": "left", "text": "Hello."}]})
    'left: Hello.\n'
    """
    lines = [
        f"{segment['speaker']}: {segment['text']}" if segment["speaker"] else segment["text"]
        for segment in body["segments"]
    ]
    return "".join(line + "\n" for line in lines)
