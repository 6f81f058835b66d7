"""Names and terms likely to be said, as a sender gives them: one line of text, or a mistake."""

from __future__ import annotations

import unicodedata
from typing import Any

from pipeline.errors import BadRequest

LIMIT = 1000
"""Longest vocabulary, characters; the engine takes as much of it as its prompt holds."""


def read_vocabulary(given: Any) -> str:
    r"""The vocabulary on one line; empty when none is given.

    Raises `BadRequest` for what is no text, too long, or holds a control character or half of a
    surrogate pair. Line ends and tabs are white space: lists are often written with them.

    >>> read_vocabulary("Müller,\n Fairscribe"), read_vocabulary(None)
    ('Müller, Fairscribe', '')
    """
    if given in (None, ""):
        return ""
    line = " ".join(given.split()) if isinstance(given, str) else ""
    if not isinstance(given, str) or len(line) > LIMIT or any(map(_is_no_sign, line)):
        raise BadRequest(
            f"vocabulary is a text of at most {LIMIT:,} characters without control characters."
        )
    return line


def as_vocabulary(prompt: str) -> str:
    r"""The vocabulary that OpenAI's `prompt` amounts to, whatever is in it.

    As there, nothing is refused and of a long one the end counts.

    >>> as_vocabulary("Bell\a of\nGrace"), len(as_vocabulary("word " * 400))
    ('Bell of Grace', 999)
    """
    shown = "".join(" " if _is_no_sign(letter) else letter for letter in prompt)
    return " ".join(shown.split())[-LIMIT:].strip()


def _is_no_sign(letter: str) -> bool:
    return unicodedata.category(letter) in ("Cc", "Cs")
