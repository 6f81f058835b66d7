"""How much of an engine's time is used, and by whom.

`Occupied` adds up slots taken over time: how full an engine was. `Shares` divides the time in which
it was busy at all among the windows it was busy with: what each of them cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class Occupied:
    """Slot seconds so far. Read from any thread, changed on one."""

    def __init__(self) -> None:
        self._slots, self._until_s, self._total_s = 0, time.monotonic(), 0.0
        self.last_taken = (self._until_s, 0.0)
        """When a slot was last taken, monotonic, and `total_s` then."""

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """A slot is taken as long as this holds."""
        self._change(+1)
        self.last_taken = (self._until_s, self._total_s)
        try:
            yield
        finally:
            self._change(-1)

    def total_s(self) -> float:
        """Slot seconds from the beginning until now."""
        return self._total_s + self._slots * (time.monotonic() - self._until_s)

    def _change(self, by: int) -> None:
        now_s = time.monotonic()
        self._total_s += self._slots * (now_s - self._until_s)
        self._slots, self._until_s = self._slots + by, now_s


@dataclass
class Share:
    """What one window took of its engine."""

    busy_s: float = 0.0
    """Engine seconds, known once the window has left."""


class Shares:
    """An engine's time, divided evenly at each moment among the windows then in service.

    With n(t) windows in service, A(t) is the integral of dt / n(t) over the time in which n > 0,
    and a window's share is A when it leaves less A when it came: processor sharing, as queueing
    theory has it. Whatever comes and goes, shares add up to the time the engine was busy, so no
    second is charged twice, as it is in the elapsed times of windows side by side.

    Encoder and decoder are not told apart: vLLM mixes both in one step and tells nobody how long
    either took. Belongs to one thread.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        """`now_s` tells the time, seconds from anywhere."""
        self._now_s = now_s
        self._until_s, self._windows, self._each_s = now_s(), 0, 0.0

    @contextmanager
    def one_more(self) -> Iterator[Share]:
        """A window is in service as long as this holds; its share is told afterwards."""
        share = Share()
        came_s = self._change(+1)
        try:
            yield share
        finally:
            share.busy_s = self._change(-1) - came_s

    def _change(self, by: int) -> float:
        """A(t) at this moment, from which on so many more windows share."""
        now_s = self._now_s()
        if self._windows:
            self._each_s += (now_s - self._until_s) / self._windows
        self._until_s, self._windows = now_s, self._windows + by
        return self._each_s
