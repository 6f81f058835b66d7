"""Servers that outlived the process that started them: found in /proc, shut down, waited for.

The kernel's death signal ends a server with its parent, so a leftover is one still shutting down,
or one on a machine where that signal was lost. Two servers on one data folder would destroy it.
A number in a pid file proves nothing: after a restart of the machine (or container, where numbers
are low) it belongs to a stranger. So a process counts only by what /proc says it is and works on.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from pipeline.errors import PartDown


def processes_on(names: Sequence[str], folder: Path, socket: Path) -> dict[int, int]:
    """Live processes called one of `names` that work in `folder`: pid -> parent's pid.

    Both servers make their data folder their working directory. Where that may not be read (root
    without CAP_SYS_PTRACE, as in a container), `folder` or `socket` on the command line tells.
    """
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it ended while we looked
            name, state, parent = _stat(entry)
            if name in names and state not in "ZX" and _works_on(entry, folder, socket):
                found[int(entry.name)] = parent
    return found


def _stat(entry: Path) -> tuple[str, str, int]:
    # "pid (name) state ppid ...", where the name itself may hold blanks and brackets
    head, tail = (entry / "stat").read_text(errors="replace").rsplit(")", 1)
    state, parent, *_ = tail.split()
    return head.split("(", 1)[1], state, int(parent)


def _works_on(entry: Path, folder: Path, socket: Path) -> bool:
    try:
        return (entry / "cwd").readlink() == folder
    except PermissionError:
        # Whole words only: another folder may end in the path of this one.
        words = re.split(rb"[\0 ]", (entry / "cmdline").read_bytes())
        return os.fsencode(folder) in words or b"unixsocket:" + os.fsencode(socket) in words


def shut_down(
    names: Sequence[str],
    folder: Path,
    socket: Path,
    steps: Sequence[tuple[signal.Signals, float]],
) -> None:
    """End every process of `processes_on`: each (signal, seconds to wait), then SIGKILL.

    Raises `PartDown` when one belongs to somebody we may not signal, or will not go.
    """
    for number, patience_s in (*steps, (signal.SIGKILL, 10.0)):
        found = processes_on(names, folder, socket)
        # Only the server itself: its own children end with it, and in their order.
        for pid in (pid for pid, parent in found.items() if parent not in found):
            _send(pid, number, folder)
        deadline_s = time.monotonic() + patience_s
        while processes_on(names, folder, socket):
            if time.monotonic() > deadline_s:
                break
            time.sleep(0.02)
        else:
            return
    raise PartDown(f"an older {names[0]} on {folder} does not end, not even by SIGKILL")


def _send(pid: int, number: signal.Signals, folder: Path) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise PartDown(f"process {pid} of another user is using {folder}") from error
