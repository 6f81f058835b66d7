"""Names of recordings, which anybody may have chosen, to paths that are safe on any disk."""

from __future__ import annotations

import re
import unicodedata
from pathlib import PurePosixPath

LONGEST_BYTES = 180
"""Of one step of a path, so that a number and an ending still fit into 255."""

DEEPEST = 16
"""Steps of a path; more are left out at its beginning."""

RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.IGNORECASE)
"""Devices, to Windows, whatever the ending."""


def safe_path(name: str) -> PurePosixPath:
    r"""Where to write what is made of the recording `name`, its ending left out.

    Folders stay; nothing leads out of the folder, is hidden, or is a device.

    >>> str(safe_path("monday/call 1.wav")), str(safe_path("../../etc/passwd"))
    ('monday/call 1', 'etc/passwd')
    >>> [str(safe_path(name)) for name in ("a:b\n.mp3", "NUL.wav", "..", ".x")]
    ['a_b_', '_NUL', 'recording', '_x']
    """
    steps = [step for step in re.split(r"[/\\]+", name) if step.strip(" .")]
    if not steps:
        return PurePosixPath("recording")
    stem, dot, ending = steps[-1].rpartition(".")
    if dot and stem.strip(" .") and len(ending) <= 8:
        steps[-1] = stem
    return PurePosixPath(*(_safe_step(step) for step in steps[-DEEPEST:]))


def _safe_step(step: str) -> str:
    step = unicodedata.normalize("NFC", step)
    # Cc, Cf: control characters and those that turn the direction of reading; Cs: not UTF-8
    step = "".join("_" if unicodedata.category(c) in ("Cc", "Cf", "Cs") else c for c in step)
    step = re.sub(r'[<>:"|?*]', "_", step)
    if step.startswith("."):
        step = "_" + step[1:]
    step = step.encode()[:LONGEST_BYTES].decode("utf-8", "ignore").strip(" ").rstrip(" .") or "_"
    return f"_{step}" if RESERVED.fullmatch(step) else step


class Places:
    """Gives each name a path of its own: the second `call.wav` becomes `call-2`.

    Paths differ even where a disk takes capital and small letters for the same, and none is a
    folder on another's way. The same names in the same order get the same paths.
    """

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: set[str] = set()
        self._next: dict[str, int] = {}

    def place(self, name: str, ending: str) -> str:
        """The path for `name`, with `ending` such as ".txt"."""
        wanted = safe_path(name)
        number = self._next.get(f"{wanted}".casefold(), 1)
        while True:
            step = wanted.name if number == 1 else f"{wanted.name}-{number}"
            path = wanted.with_name(step + ending)
            number += 1
            if self._take(path):
                self._next[f"{wanted}".casefold()] = number
                return str(path)
            if number > 2 and self._on_the_way(path):
                wanted = PurePosixPath("_".join(wanted.parts))
                number = 1

    def _take(self, path: PurePosixPath) -> bool:
        own = str(path).casefold()
        if own in self._files or own in self._folders or self._on_the_way(path):
            return False
        self._files.add(own)
        self._folders.update(str(parent).casefold() for parent in path.parents)
        return True

    def _on_the_way(self, path: PurePosixPath) -> bool:
        return any(str(parent).casefold() in self._files for parent in path.parents)
