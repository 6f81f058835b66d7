"""Whether a worker's loop, claims and engine still move: written on the loop, read anywhere.

What moves no more is told in two degrees. First its leases are not renewed, so that others take the
jobs over. Then, when nothing else can help, the process ends.
"""

from __future__ import annotations

import asyncio
import time

BEAT_S = 1.0
LOOP_SILENT_S = 30.0
"""A loop that has not turned for this long hangs, whatever it holds."""

RECOVERY_LIMIT_S = 900.0
"""An engine that is not back by then may never be: jobs in hand are kept for it no longer."""

HANG_LIMIT_S = 600.0
"""Nothing that ends at all takes this long: a turn of the loop, a claim."""


class Pulse:
    """The signs of life of one worker's loop."""

    def __init__(self) -> None:
        self._beat_s = time.monotonic()
        self._recovering_since_s: float | None = None
        self._claim: tuple[asyncio.Task[None], float] | None = None

    async def beat(self) -> None:
        """Run as a task of the loop, until it is cancelled."""
        while True:
            self._beat_s = time.monotonic()
            await asyncio.sleep(BEAT_S)

    def note_claim(self, claim: asyncio.Task[None]) -> None:
        """A claim has begun; there is one at a time."""
        self._claim = claim, time.monotonic()

    def note_recovery(self, going_on: bool) -> None:
        """The engine is dead, or back."""
        self._recovering_since_s = time.monotonic() if going_on else None

    @property
    def recovering(self) -> bool:
        """Whether there is no engine now."""
        return self._recovering_since_s is not None

    def moving(self) -> bool:
        """Whether the loop turns, with an engine or one that may still come back."""
        return not (_over(self._beat_s, LOOP_SILENT_S) or self._engine_lost())

    def hangs(self) -> str | None:
        """Why nothing but an end of the process helps any more; None while something may."""
        if _over(self._beat_s, HANG_LIMIT_S):
            return "its loop does not turn"
        claim = self._claim
        if claim is not None and not claim[0].done() and _over(claim[1], HANG_LIMIT_S):
            return "a claim does not end: threads hang"
        return "its engine does not come back" if self._engine_lost() else None

    def _engine_lost(self) -> bool:
        since_s = self._recovering_since_s
        return since_s is not None and _over(since_s, RECOVERY_LIMIT_S)


def _over(since_s: float, limit_s: float) -> bool:
    return time.monotonic() - since_s > limit_s
