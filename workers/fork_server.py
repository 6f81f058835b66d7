"""Starts EngineCore by forking a process that has imported vLLM already, beside the worker.

vLLM's import takes some nine seconds of one core, in the worker and again in a spawned EngineCore,
one after the other. A fork server imports at the same time on another core, and EngineCore is then
there at once; also the next time, after a death. On a CPU only: a forked process must not inherit
anything of an accelerator's driver, and `spawn` is vLLM's own way there.

Belongs to one thread of the worker: when that ends, so does the fork server, and EngineCore with
it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator
from multiprocessing import forkserver
from typing import Any

PRELOAD = "workers.engine_preload"


def start() -> None:
    """Begin to import, beside us; does nothing where it runs. The environment is taken as it is
    now, so everything for vLLM must be set.
    """
    forkserver.set_forkserver_preload([PRELOAD])
    forkserver.ensure_running()


def stop() -> None:
    """End it, and what it forked; does nothing where it does not run."""
    # multiprocessing has no public way, for at the worker's end it goes by itself
    server: Any = forkserver._forkserver
    if server._forkserver_pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server._forkserver_pid, signal.SIGKILL)
        server._stop()


@contextlib.contextmanager
def in_use() -> Iterator[None]:
    """While this holds, vLLM starts its processes by the fork server."""
    from vllm.v1.engine import utils

    # vLLM's CPU platform overwrites the variable that would name a method, with `spawn`. A vLLM
    # without this name goes on spawning.
    theirs = getattr(utils, "get_mp_context", None)
    utils.get_mp_context = lambda: multiprocessing.get_context("forkserver")
    try:
        yield
    finally:
        utils.get_mp_context = theirs
