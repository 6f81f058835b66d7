"""Read a list of sound files with what is true of each: tab-separated, files beside it.

The first line that is no comment (`#`) names the columns, in any order; those nobody asks for are
left. Nothing is quoted: a name may hold anything but a tab and a line's end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import BadRequest


@dataclass(frozen=True)
class Listed:
    """One line of the list."""

    manifest: Path
    line: int
    said: dict[str, str]
    """By column, in small letters."""

    @property
    def name(self) -> str:
        """The file's, as listed."""
        return self.said["name"]

    def file(self) -> Path:
        """The file itself. Raises `BadRequest` when it is not beside the list."""
        path = self.manifest.parent / self.name
        try:
            if path.is_file():
                return path
        except (OSError, ValueError):  # too long a name, or a NUL in it
            pass
        raise self.refused(f"there is no file {self.name!r:.200} beside it.")

    def refused(self, why: str) -> BadRequest:
        """What is wrong with this line, in a sentence that names it."""
        return BadRequest(f"{self.manifest.name}, line {self.line}: {why}")


def read_listed(manifest: Path, needed: Sequence[str]) -> Iterator[Listed]:
    """The lines that list a file, in order; none for an empty list.

    Raises `BadRequest` in a sentence, with the line where there is one, for a list that cannot be
    read, lacks the column `name` or one that is `needed`, or has a line of another shape.
    """
    head: list[str] | None = None
    for at, line in enumerate(_lines(manifest), start=1):
        if line.startswith("#") or not line.strip():
            continue
        cells = line.split("\t")
        if head is None:
            head = _head(manifest, cells, ("name", *needed))
            continue
        listed = Listed(manifest, at, dict(zip(head, cells, strict=False)))
        if len(cells) > len(head) or not {"name", *needed} <= listed.said.keys():
            raise listed.refused(
                f"{len(cells)} columns, but the first line names {len(head)}. Columns are parted "
                "by tabs."
            )
        if not listed.name.strip():
            raise listed.refused("the name is empty.")
        yield listed


def _lines(manifest: Path) -> list[str]:
    try:
        # not splitlines: a name or a transcript may hold what else Unicode calls a line's end
        return manifest.read_text("utf-8-sig").replace("\r\n", "\n").split("\n")
    except FileNotFoundError:
        raise BadRequest(f"There is no manifest {manifest}.") from None
    except OSError as error:
        raise BadRequest(f"The manifest {manifest} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise BadRequest(f"{manifest.name} is not UTF-8 (byte {error.start}).") from None


def _head(manifest: Path, cells: list[str], needed: Sequence[str]) -> list[str]:
    head = [cell.strip().lower() for cell in cells]
    for column in needed:
        if column not in head:
            raise BadRequest(
                f"{manifest.name} has no column {column!r}; its first line names {', '.join(head)}."
            )
    if twice := {column for column in head if column and head.count(column) > 1}:
        raise BadRequest(f"{manifest.name} names the column {sorted(twice)[0]!r} twice.")
    return head
