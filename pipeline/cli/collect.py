"""Paths, folders, patterns, URLs and lists of them, as typed, to recordings worth sending."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from pipeline.cli.asked import Asked


@dataclass(frozen=True)
class Found:
    """A recording to send: a file, or a URL the service fetches."""

    given: str
    """As it was named: with its folder as typed. Tells it from others when a run is resumed."""
    name: str
    """What the job will be called: the file's name, below a folder the way from there."""
    path: Path | None
    """None for a URL."""
    asked: Asked = field(default_factory=Asked)
    line: int | None = None
    """Of the table it stands in."""
    nth: int = 0
    """How often the same was named before it: rows may repeat a file on purpose."""


@dataclass(frozen=True)
class NotSent:
    """A file, row or argument that became no job; and why."""

    path: str
    reason: str
    line: int | None = None
    """Of the table it stands in."""


def is_url(text: str) -> bool:
    """Whether it is to be fetched.

    >>> is_url("HTTPS://host/call.wav"), is_url("http.wav"), is_url("c:/http://x")
    (True, False, False)
    """
    return text.lower().startswith(("http://", "https://"))


def found_url(url: str) -> Found:
    """A recording named by its URL."""
    return Found(url, urlsplit(url).path.rpartition("/")[2] or url, None)


def read_list(listed: bytes, *, null: bool) -> list[str]:
    r"""The paths and URLs of a list, one a line or, with `null`, ended by NUL.

    >>> read_list(b"a.wav\r\n\n b.wav\n", null=False), read_list(b"a\nb\0c\0", null=True)
    (['a.wav', ' b.wav'], ['a\nb', 'c'])
    """
    lines = listed.split(b"\0") if null else (line.rstrip(b"\r") for line in listed.split(b"\n"))
    return [os.fsdecode(line) for line in lines if line]


def collect(arguments: Iterable[str]) -> tuple[list[Found], list[NotSent]]:
    """Everything the arguments lead to, once, in their order; and what leads nowhere.

    A folder stands for all files below it, except hidden ones; one that cannot be read leads
    nowhere. An argument that is not there may be a pattern (`*`, `?`, `[...]`, `**`).
    """
    found: dict[str, Found] = {}
    lost: list[NotSent] = []
    for argument in arguments:
        if is_url(argument):
            found.setdefault(argument, found_url(argument))
            continue
        there = [] if "\0" in argument else list(_files_of(argument))
        for one in there:
            if isinstance(one, NotSent):
                lost.append(one)
            else:
                found.setdefault(os.path.realpath(one.given), one)
        if not there:
            lost.append(NotSent(argument, why_nothing(argument)))
    return list(found.values()), lost


def _files_of(argument: str) -> Iterator[Found | NotSent]:
    if os.path.lexists(argument):
        yield from _files_at(Path(argument))
    else:
        for match in sorted(glob.glob(argument, recursive=True)):
            # `**` names a folder and what is in it: its files come by themselves
            if "**" not in argument or not os.path.isdir(match):
                yield from _files_at(Path(match))


def _files_at(path: Path) -> Iterator[Found | NotSent]:
    if path.is_file():
        yield Found(str(path), as_text(path.name), path)
    elif path.is_dir():
        unread: list[OSError] = []
        for folder, folders, names in os.walk(path, onerror=unread.append):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                file = Path(folder, name)
                try:
                    there = not name.startswith(".") and file.is_file()
                except OSError as error:
                    unread.append(error)
                else:
                    if there:
                        yield Found(str(file), as_text(file.relative_to(path).as_posix()), file)
        for why in unread:  # what is in there nobody knows: it must not be passed over in silence
            yield NotSent(str(why.filename), why.strerror or str(why))


def why_nothing(argument: str) -> str:
    """Why a path that leads to no file does not."""
    if "\0" in argument or not argument:
        return "that cannot be a path"
    if os.path.isdir(argument):
        return "there is no file in this folder"
    return "it is not a file" if os.path.lexists(argument) else "there is no such file"


def as_text(name: str) -> str:
    """File names are bytes to the system; what is not UTF-8 in them is shown as �."""
    return os.fsencode(name).decode("utf-8", "replace")
