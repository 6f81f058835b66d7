"""What both engines share: the windows inside one, how long each may take, and the engine's death
under all of them at once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from typing import Any, TypeVar

from pipeline.errors import EngineDead, WindowLate, WindowRefused
from pipeline.recording import SAMPLE_BYTES, SAMPLE_RATE_HZ, WINDOW_LIMIT_S
from workers.occupied import Shares

T = TypeVar("T")

ABORT_WAIT_S = 1.0
"""A cancelled window gets this long to tell the engine; a dead engine may never answer."""


def window_length_s(pcm: bytes) -> float:
    """Seconds of a window of mono s16le at 16 kHz.

    Raises `WindowRefused` when it is empty, not whole samples, or longer than Whisper hears.
    """
    if not pcm:
        raise WindowRefused("The window is empty.")
    if len(pcm) % SAMPLE_BYTES:
        raise WindowRefused(f"The window is {len(pcm)} bytes, not whole 16-bit samples.")
    length_s = len(pcm) / SAMPLE_BYTES / SAMPLE_RATE_HZ
    if length_s > WINDOW_LIMIT_S:
        raise WindowRefused(f"The window lasts {length_s:.3f} s, at most {WINDOW_LIMIT_S:.0f} s.")
    return length_s


class InFlight:
    """The windows an engine works on; belongs to one event loop and one life of the engine."""

    def __init__(self, limit_s: float = math.inf) -> None:
        """`limit_s`: how long the engine may take over what it is asked for one window."""
        loop = asyncio.get_running_loop()
        self._death: asyncio.Future[None] = loop.create_future()
        self._error = EngineDead()
        self._limit_s = None if limit_s == math.inf else limit_s
        self.shares = Shares(loop.time)
        """Who of those in service keeps the engine busy."""

    @property
    def dead(self) -> bool:
        """Whether `die` was called."""
        return self._death.done()

    def die(self, reason: str, kind: type[EngineDead] = EngineDead) -> None:
        """End every window in flight, now and later, with `kind(reason)`; the first holds."""
        if not self._death.done():
            self._error = kind(reason)
            self._death.set_result(None)

    def raise_if_dead(self) -> None:
        """Raises what `die` was called with."""
        if self.dead:
            raise type(self._error)(self._error.message)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, or `EngineDead` as soon as `die` is called, or `WindowLate` when it
        takes longer than the limit.

        Cancelling this, and being late, cancels `work` and waits until it has let go of its slot.
        """
        if self.dead:
            work.close()
        self.raise_if_dead()
        task = asyncio.ensure_future(work)
        try:
            watched: set[asyncio.Future[Any]] = {task, self._death}
            await asyncio.wait(watched, timeout=self._limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            late = not (task.done() or self.dead)
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=ABORT_WAIT_S)
        # Death first: what came out in the same moment may come from a poisoned engine.
        if (self.dead or late) and task.done() and not task.cancelled():
            task.exception()  # looked at, so that asyncio does not report it as forgotten
        self.raise_if_dead()
        if late:
            raise WindowLate(f"The speech engine gave no answer within {self._limit_s:g} s.")
        return task.result()
