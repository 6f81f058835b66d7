"""Read a list of sound files with what is true of each: tab-separated, files beside it.

The first line that is no comment (`#`) names the columns, in any order; those nobody asks for are
left. Nothing is quoted: a name may hold anything but a tab and a line's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import BadRequest


@dataclass(frozen=True)
class Listed:
    """One line of the list."""

    path: Path
    said: dict[str, str]
    """By column asked for."""
    line: int


def read_listed(manifest: Path, columns: Sequence[str]) -> list[Listed]:
    """The files listed, `name` and `columns` of each.

    Raises `BadRequest`, naming the line, when it cannot be read, lacks a column or a file, or lists
    nothing.
    """
    try:
        text = manifest.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise BadRequest(f"{manifest}: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise BadRequest(f"{manifest} is not UTF-8.") from None
    # by "\n" alone: a name may hold what else Unicode calls the end of a line
    lines = [(n, line.removesuffix("\r")) for n, line in enumerate(text.split("\n"), 1)]
    rows = [(n, line.split("\t")) for n, line in lines if line.strip() and line[0] != "#"]
    if not rows:
        raise BadRequest(f"{manifest} is empty.")
    _, names = rows[0]
    wanted = ("name", *columns)
    if missing := [name for name in wanted if name not in names]:
        raise BadRequest(f"{manifest} has no column {missing[0]}; line 1 names the columns.")
    places = {name: names.index(name) for name in wanted}
    if not rows[1:]:
        raise BadRequest(f"{manifest} lists no file.")
    return [_listed(manifest, number, cells, places) for number, cells in rows[1:]]


def _listed(manifest: Path, number: int, cells: list[str], places: dict[str, int]) -> Listed:
    if len(cells) <= max(places.values()):
        raise BadRequest(f"{manifest}, line {number}: it has {len(cells)} columns, too few.")
    said = {name: cells[place] for name, place in places.items()}
    path = manifest.parent / said["name"]
    try:
        there = bool(said["name"]) and path.is_file()
    except (OSError, ValueError):
        there = False
    if not there:
        raise BadRequest(f"{manifest}, line {number}: there is no file {said['name']!r:.200}.")
    return Listed(path, said, number)
