"""Let no child outlive its parent.

Measured: vLLM's EngineCore survives a parent killed by SIGKILL, and would keep the GPU's memory.

Linux sends a child the signal it chose with `PR_SET_PDEATHSIG` when the *thread* that started it
ends. Whoever starts such a child must do so from a thread that lives as long as the child should:
`VllmEngine` keeps one thread from start to stop for that reason. Elsewhere than on Linux nothing
here does anything.

A weakness: vLLM calls `arm` only when EngineCore has imported everything and greeted its parent,
a moment after it was forked (`fork_server`), some ten seconds after it was spawned. A parent killed
before that leaves it waiting for the greeting: it holds 0.5 GB of memory, no accelerator, and gives
up after five minutes.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable

OWNER_VARIABLE = "_FAIRSCRIBE_ENGINE_OWNER"
"""Environment: process id of the parent whose children `arm` may touch; inherited by others."""

_PR_SET_PDEATHSIG = 1
# Loaded here and not when needed: between fork and exec a library must not be looked up.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent(signal_number: int) -> Callable[[], None]:
    """A `preexec_fn` for `subprocess`: the child gets `signal_number` once this process is gone.

    The setting survives an exec, but not a fork nor a change of user. Start the child from a
    thread that lives as long as the child should.
    """
    parent_id = os.getpid()

    def ask_kernel() -> None:
        die_after(parent_id, signal_number)

    return ask_kernel


def die_after(parent_id: int, signal_number: int) -> bool:
    """Ask the kernel to send this very process `signal_number` once its parent is gone.

    `parent_id` is the parent's process id; where the parent was faster to die than this call,
    the signal is sent at once. Returns whether the kernel agreed.
    """
    if _libc is None or _libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0) != 0:
        return False
    if os.getppid() != parent_id:
        os.kill(os.getpid(), signal_number)
    return True


def own_engines() -> None:
    """Call before an engine is started: the processes it spawns will die with this one."""
    os.environ[OWNER_VARIABLE] = str(os.getpid())


def arm() -> None:
    """The `general_plugins` entry point, called by vLLM in each of its processes.

    Sets SIGKILL on the parent's death in a child whose parent called `own_engines`, and lets the
    child's own children do the same. In any process that merely imports vLLM it does nothing.
    """
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid is None:
        return
    # The kernel's parent: a fork server's child is started for another process than the one that
    # forks it, and dies with the latter.
    if os.environ.get(OWNER_VARIABLE) == str(os.getppid()):
        die_after(os.getppid(), signal.SIGKILL)
        own_engines()
        # here and not above: the fork server imports this, and must be armed before it is killed
        from workers import last_words

        last_words.listen()
