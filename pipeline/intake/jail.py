"""Give up every right but reading one recording. Called in a child just forked, never elsewhere.

A parser that is taken over then holds the descriptors it was given and a processor, for a while: it
gets no further descriptor, so no file is opened and no socket made whatever the kernel, and no more
memory or time than an honest recording needs. Where the kernel has Landlock it changes no file by
its name, runs no program and (from ABI 6 on) sends no signal to others.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_LANDLOCK_CREATE_RULESET, _LANDLOCK_RESTRICT_SELF = 444, 446  # the same on every architecture


@dataclass(frozen=True)
class Limits:
    """What one reading of one recording may use."""

    wall_s: float
    cpu_s: int
    memory_bytes: int
    """Address space, the parsers' own code (0.3 GB) included."""
    file_bytes: int
    """What it may write to the files it was given."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; `Limits(**raw)` reads them back."""
        return asdict(self)


def die_with_parent(parent_pid: int) -> None:
    """Arrange that this process is killed when its parent's starting thread ends; exit if it has.

    The check closes the gap in which the parent died before the arrangement.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def confine(limits: Limits, keep: Iterable[int]) -> None:
    """Drop all rights and arm the clock; `keep` are the descriptors that stay open beside 0-2.

    Whoever exceeds the wall clock is ended by SIGALRM, the processor time by SIGXCPU, the memory by
    MemoryError. Raises OSError when a limit cannot be set.
    """
    _close_all_but(keep)
    for which, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_AS, limits.memory_bytes),
    ):
        resource.setrlimit(which, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s + 1))
    _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _landlock()
    # Those that are open stay of use; open(), socket(), dup() fail. Landlock knows nothing of UDP
    # and of sockets with a path, and its rules need a descriptor, so this comes after.
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limits.wall_s)


def landlock_abi() -> int:
    """The kernel's Landlock version; 0 when it has none."""
    return max(0, int(_LIBC.syscall(_LANDLOCK_CREATE_RULESET, None, 0, 1)))


def _landlock() -> None:
    """Forbid everything this kernel can forbid. A kernel without Landlock forbids nothing here."""
    abi = landlock_abi()
    if not abi:
        return
    files = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1
    network = 0b11 if abi >= 4 else 0  # TCP bind and connect
    scoped = 0b11 if abi >= 6 else 0  # abstract sockets, signals to processes outside
    rules = struct.pack("<QQQ", files, network, scoped)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = int(_LIBC.syscall(_LANDLOCK_CREATE_RULESET, rules, len(rules), 0))
    if ruleset < 0 or _LIBC.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0):
        raise OSError(ctypes.get_errno(), "Landlock refuses to restrict this process")
    os.close(ruleset)


def _close_all_but(keep: Iterable[int]) -> None:
    first = 3
    for fd in sorted(keep):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
