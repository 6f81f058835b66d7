"""Tells Redis each second how fast this worker is: what forecasts divide by."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from pipeline.errors import PartDown
from pipeline.queue.board import Board
from workers.speedometer import Speedometer

EVERY_S = 1.0


class SpeedReport:
    """Reports under the worker's name while it runs."""

    def __init__(
        self, board: Board, worker: str, speedometer: Speedometer, slots_wanted: int
    ) -> None:
        self._board, self._worker, self._speedometer = board, worker, speedometer
        self._slots_wanted = slots_wanted

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Report until the end of the block, then take the report back."""
        task = asyncio.create_task(self._repeat())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            with contextlib.suppress(PartDown):
                await asyncio.to_thread(self._board.forget_speed, self._worker)

    async def _repeat(self) -> None:
        while True:
            with contextlib.suppress(PartDown):  # it grows old and is not counted: rightly so
                await asyncio.to_thread(self._report)
            await asyncio.sleep(EVERY_S)

    def _report(self) -> None:
        meter = self._speedometer
        self._board.report_speed(self._worker, meter.speed(), meter.slots, self._slots_wanted)
