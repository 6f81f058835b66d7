"""A table of recordings (CSV) to recordings worth sending; broken rows are named by their line.

The first line names the columns: `file` or `url` (or both, one filled a row), and if wanted
`language`, `speakers`, `task`, `vocabulary`, `raw_format`, `deadline`, `wait_budget_s`,
`duration_hint_s`; every other column is metadata, also those that join the legs of a call
(`call_id`, `leg`, `leg_offset_s`). UTF-8, fields separated by comma, semicolon or tab, quoted as
spreadsheets do. A row that cannot be read spoils no other: a quote that is never closed costs its
own line and not the rest of the file.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from pipeline.cli.asked import OPTIONS, Asked, read_asked
from pipeline.cli.collect import Found, NotSent, as_text, found_url, is_url, why_nothing
from pipeline.errors import BadRequest

SEPARATORS = (",", ";", "\t")
PLACES = ("file", "url")
OWN = (*PLACES, *OPTIONS)
"""Columns with a meaning of ours."""

LINES_A_ROW = 50
"""A quoted cell may go on over lines; one that goes on longer was never closed."""


def read_manifest(path: Path) -> tuple[list[Found], list[NotSent]]:
    """The rows that can be sent and those that cannot, both in order.

    Raises `BadRequest` when the file cannot be read or its first line names no recordings.
    """
    lines = _lines(path)
    separator, columns = _header(path, lines[0] if lines else b"")
    found: list[Found] = []
    lost: list[NotSent] = []
    before: Counter[str] = Counter()
    for number, cells in _rows(lines, separator, len(columns)):
        if isinstance(cells, str):
            lost.append(NotSent(str(path), cells, number))
            continue
        try:
            one = _recording(dict(zip(columns, cells, strict=True)), path.parent)
        except BadRequest as refused:
            lost.append(NotSent(_named(columns, cells) or str(path), refused.message, number))
            continue
        found.append(replace(one, line=number, nth=before[one.given]))
        before[one.given] += 1
    return found, lost


def _lines(path: Path) -> list[bytes]:
    try:
        whole = path.read_bytes()
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror or error}.") from None
    if whole.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise BadRequest(f"{path} is UTF-16: save it as UTF-8.")
    return re.split(rb"\r\n|\n|\r", whole.removeprefix(b"\xef\xbb\xbf"))


def _header(path: Path, line: bytes) -> tuple[str, list[str]]:
    """The separator, which is the one that makes column names of the first line, and the names."""
    for separator in SEPARATORS:
        cells = _cells(line, separator)
        if isinstance(cells, str):
            continue
        columns = [cell.strip() for cell in cells]
        columns = [c.lower() if c.lower() in OWN else c for c in columns]
        if not set(PLACES) & set(columns):
            continue
        twice = [name for name, count in Counter(columns).items() if count > 1]
        if twice:
            raise BadRequest(f"{path}: line 1 names the column {twice[0]!r} twice.")
        return separator, columns
    raise BadRequest(f"{path}: line 1 names no column `file` or `url`.")


def _rows(
    lines: Sequence[bytes], separator: str, width: int
) -> Iterator[tuple[int, list[str] | str]]:
    """(line number, cells of the row that begins there, or what is wrong with it)."""
    at = 1
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        cells = _cells(lines[at], separator)
        used = 1
        if cells == UNCLOSED:
            for more in range(2, min(LINES_A_ROW, len(lines) - at) + 1):
                longer = _cells(b"\n".join(lines[at : at + more]), separator)
                if not isinstance(longer, str) and len(longer) == width:
                    cells, used = longer, more
                    break
        if not isinstance(cells, str) and len(cells) != width:
            cells = f"it has {len(cells)} fields where line 1 has {width}"
        yield at + 1, cells
        at += used


UNCLOSED = "a quote is opened and not closed"


def _cells(line: bytes, separator: str) -> list[str] | str:
    """The cells of one row, or what is wrong with it."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return "it is not UTF-8"
    try:
        rows = list(csv.reader([text], delimiter=separator, strict=True))
    except csv.Error as error:
        unclosed = "unexpected end of data" in str(error)
        return UNCLOSED if unclosed else f"bad quoting ({error})"
    return rows[0] if rows else []


def _named(columns: Sequence[str], cells: Sequence[str]) -> str:
    return next((c for n, c in zip(columns, cells, strict=True) if n in PLACES and c), "")


def _recording(row: dict[str, str], folder: Path) -> Found:
    """One row. Raises `BadRequest` with what is wrong in it."""
    places = [(name, row[name].strip()) for name in PLACES if row.get(name, "").strip()]
    if len(places) != 1:
        raise BadRequest("it names a file and a url" if places else "it names no file")
    kind, place = places[0]
    metadata = {name: cell for name, cell in row.items() if name not in OWN and name and cell}
    asked = read_asked(row, metadata)
    if is_url(place):
        return replace(found_url(place), asked=asked)
    if kind == "url":
        raise BadRequest(f"{place[:80]!r} is no http or https URL")
    return _file(place, folder, asked)


def _file(place: str, folder: Path, asked: Asked) -> Found:
    path = folder / place
    try:
        there = path.is_file()
    except (OSError, ValueError):
        raise BadRequest("that cannot be a path") from None
    if not there:
        reason = "it is a folder" if path.is_dir() else why_nothing(str(path))
        raise BadRequest(reason)
    way = PurePath(place)
    inside = not way.is_absolute() and ".." not in way.parts
    return Found(place, as_text(way.as_posix() if inside else path.name), path, asked)
