"""What was really said: recordings beside a manifest, or made here, each with its words.

A manifest is UTF-8 text, columns parted by tabs, the first line their names: `name` (a file beside
the manifest) and `transcript`; `language` (a code of ISO 639-1) where wanted. Lines that begin with
`#` and all other columns are not read. Words in order of time; or, of a call with a side in each
channel, `[L]` and the words of the left side, `[R]` and those of the right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from bench.listed import read_listed
from pipeline.errors import BadRequest

SIDES = {"L": "left", "R": "right"}
_SIDED = re.compile(r"\[([LR])\]([^\[]*)")

GOES_ON = re.compile(r"\s(\.\.\.|…)$")
"""Three dots that stand alone: the transcript stops before the recording does."""

_REMARK = re.compile(r"\([^)]*\)")


@dataclass(frozen=True)
class Said:
    """Words that were said together."""

    text: str
    side: str | None = None
    """The channel they are on, as `Plan.channels` names it; None: not told."""
    start_s: float = 0.0
    end_s: float = 0.0
    """When, in the recording; both 0 where nobody knows."""


@dataclass(frozen=True)
class Truth:
    """A recording and what is said in it, in order of time."""

    name: str
    path: Path
    said: tuple[Said, ...]
    language: str | None = None
    """As told with it; None: to be heard out."""

    @property
    def text(self) -> str:
        """All words."""
        return " ".join(said.text for said in self.said)


@dataclass(frozen=True)
class Skipped:
    """A row without words to compare, and why."""

    name: str
    why: str


def read_manifest(file: Path) -> tuple[list[Truth], list[Skipped]]:
    """The rows of a manifest that have words, and those that have not, in order.

    Raises `BadRequest` in a sentence, with the line where there is one: for a manifest that cannot
    be read, lacks a column, has a line of another shape, names a file that is not beside it, or
    has no row with words.
    """
    truths: list[Truth] = []
    skipped: list[Skipped] = []
    for row in read_listed(file, ("transcript",)):
        words = row.said["transcript"].strip()
        if why := _unusable(words):
            skipped.append(Skipped(row.name, why))
            continue
        language = row.said.get("language", "").strip() or None
        truths.append(Truth(row.name, row.file(), said_in(words), language))
    if not truths:
        raise BadRequest(f"{file.name} has no row with a transcript: there is nothing to compare.")
    return truths, skipped


def said_in(words: str) -> tuple[Said, ...]:
    """The words of a transcript by side, where it tells them apart.

    >>> [(s.side, s.text) for s in said_in("[L] Hello. [R] Good day.")]
    [('left', 'Hello.'), ('right', 'Good day.')]
    >>> said_in("Hello (a door)")[0].side is None
    True
    """
    sides = [Said(text.strip(), SIDES[mark]) for mark, text in _SIDED.findall(words)]
    return tuple(said for said in sides if said.text) or (Said(words),)


def _unusable(words: str) -> str | None:
    if not _SIDED.sub(r"\2", _REMARK.sub("", words)).strip():
        return "a remark and no words" if words else "no transcript"
    if GOES_ON.search(words):
        return "the transcript says that it goes on"
    return None
