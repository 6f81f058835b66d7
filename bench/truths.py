"""What was really said: recordings beside a manifest, or made here, each with its words.

A manifest is UTF-8 text, columns parted by tabs, the first line their names: `name` (a file beside
the manifest) and `transcript`; `language` (a code of ISO 639-1) where wanted. Lines that begin with
`#` and all other columns are not read. Words in order of time; or, of a call with a side in each
channel, `[L]` and the words of the left side, `[R]` and those of the right.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import BadRequest

NEEDED = ("name", "transcript")

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
    for at, row in _rows(file):
        name, words = row["name"], row["transcript"].strip()
        if not name.strip():
            raise BadRequest(f"{file.name}, line {at}: the name is empty.")
        if why := _unusable(words):
            skipped.append(Skipped(name, why))
            continue
        language = row.get("language", "").strip() or None
        truths.append(Truth(name, _beside(file, at, name), said_in(words), language))
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


def _rows(file: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Each row by column, with its line."""
    head: Sequence[str] | None = None
    for at, line in enumerate(_lines(file), start=1):
        if line.startswith("#") or not line.strip():
            continue
        try:
            cells = next(csv.reader([line], delimiter="\t", quoting=csv.QUOTE_NONE))
        except csv.Error as error:
            raise BadRequest(f"{file.name}, line {at}: {error}.") from None
        if head is None:
            head = _head(file, cells)
            continue
        if len(cells) != len(head):
            raise BadRequest(
                f"{file.name}, line {at}: {len(cells)} columns, but the first line names "
                f"{len(head)}. Columns are parted by tabs."
            )
        yield at, dict(zip(head, cells, strict=True))


def _lines(file: Path) -> list[str]:
    try:
        # not splitlines: a transcript may hold separators of Unicode
        return file.read_text("utf-8-sig").replace("\r\n", "\n").split("\n")
    except FileNotFoundError:
        raise BadRequest(f"There is no manifest {file}.") from None
    except OSError as error:
        raise BadRequest(f"The manifest {file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file.name} is not UTF-8 (byte {error.start}).") from None


def _head(file: Path, cells: list[str]) -> list[str]:
    head = [cell.strip().lower() for cell in cells]
    for column in NEEDED:
        if column not in head:
            raise BadRequest(
                f"{file.name} has no column {column!r}; its first line names {', '.join(head)}."
            )
    if twice := {column for column in head if column and head.count(column) > 1}:
        raise BadRequest(f"{file.name} names the column {sorted(twice)[0]!r} twice.")
    return head


def _beside(file: Path, at: int, name: str) -> Path:
    path = file.parent / name
    try:
        if path.is_file():
            return path
    except ValueError:  # a NUL in the name
        pass
    raise BadRequest(f"{file.name}, line {at}: there is no file {name!r} beside it.")
