"""Paths, folders and patterns as typed, to files worth sending."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Found:
    """A file to send."""

    path: Path
    name: str
    """What the job will be called: the file's name, below a folder the way from there."""


@dataclass(frozen=True)
class NotSent:
    """A file, or an argument that leads to none, that became no job; and why."""

    path: str
    reason: str


def collect(arguments: Iterable[str]) -> tuple[list[Found], list[NotSent]]:
    """Every file the arguments lead to, once, in their order; and what leads nowhere.

    A folder stands for all files below it, except hidden ones; an argument that is not there may
    be a pattern (`*`, `?`, `[...]`, `**`).
    """
    found: dict[str, Found] = {}
    lost: list[NotSent] = []
    for argument in arguments:
        files = list(_files_of(argument))
        for file in files:
            found.setdefault(os.path.realpath(file.path), file)
        if not files:
            lost.append(NotSent(argument, _why_nothing(argument)))
    return list(found.values()), lost


def _files_of(argument: str) -> Iterator[Found]:
    if os.path.lexists(argument):
        yield from _files_at(Path(argument))
    else:
        for match in sorted(glob.glob(argument, recursive=True)):
            # `**` names a folder and what is in it: its files come by themselves
            if "**" not in argument or not os.path.isdir(match):
                yield from _files_at(Path(match))


def _files_at(path: Path) -> Iterator[Found]:
    if path.is_file():
        yield Found(path, _as_text(path.name))
    elif path.is_dir():
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                file = Path(folder, name)
                if not name.startswith(".") and file.is_file():
                    yield Found(file, _as_text(file.relative_to(path).as_posix()))


def _why_nothing(argument: str) -> str:
    path = Path(argument)
    if path.is_dir():
        return "there is no file in this folder"
    return "it is not a file" if os.path.lexists(path) else "there is no such file"


def _as_text(name: str) -> str:
    """File names are bytes to the system; what is not UTF-8 in them is shown as �."""
    return os.fsencode(name).decode("utf-8", "replace")
