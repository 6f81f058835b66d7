"""What both engines share: the windows inside one, and its death under all of them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from pipeline.errors import EngineDead, WindowRefused
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

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._death: asyncio.Future[None] = loop.create_future()
        self._reason = ""
        self.shares = Shares(loop.time)
        """Who of those in service keeps the engine busy."""

    @property
    def dead(self) -> bool:
        """Whether `die` was called."""
        return self._death.done()

    def die(self, reason: str) -> None:
        """End every window in flight, now and later, with `EngineDead(reason)`."""
        if not self._death.done():
            self._reason = reason
            self._death.set_result(None)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, or `EngineDead` as soon as `die` is called.

        Cancelling this cancels `work` and waits until it has let go of its slot.
        """
        if self.dead:
            work.close()
            raise EngineDead(self._reason)
        task = asyncio.ensure_future(work)
        try:
            watched: set[asyncio.Future[Any]] = {task, self._death}
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=ABORT_WAIT_S)
        # Death first: what came out in the same moment may come from a poisoned engine.
        if self.dead:
            if task.done() and not task.cancelled():
                task.exception()  # looked at, so that asyncio does not report it as forgotten
            raise EngineDead(self._reason)
        return task.result()
