"""How fast a worker's slots really are: work that ended, over the time it kept a slot busy.

By Little's law the work that passes in a second through N busy slots is

    speed = N * sum(work of the last units) / sum(time each of them kept a slot)

whatever the order they came in. A slot that stood free only until the next unit was claimed counts
as kept by that unit: claiming takes time, and with slots always full it takes it from the work.
Real idleness does not count. While slots stand idle it tells what all of them would do at the pace
of those in use: too much, where they share one device.
"""

from __future__ import annotations

import threading
import time
from collections import deque

KEPT_UNITS = 200
KEPT_S = 120.0
"""Units that ended longer ago are forgotten, so that a change of load shows; the newest
`LEAST_UNITS` are kept all the same: after an idle night they are better than nothing."""
LEAST_UNITS = 20

GAP_LIMIT_S = 0.25
"""A slot free for longer was idle, not on its way to the next unit."""


class Speedometer:
    """The speed of one worker. May be read from another thread."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._units: deque[tuple[float, float, float]] = deque(maxlen=KEPT_UNITS)
        self._lock = threading.Lock()
        self._in_use = 0
        self._freed_s: list[float] = []

    def start(self, now_s: float | None = None) -> float:
        """A unit goes into a slot. Returns since when it counts as keeping it (monotonic): since
        the slot was freed, if all the others are full and that was a moment ago.
        """
        now_s = time.monotonic() if now_s is None else now_s
        self._in_use += 1
        freed_s = self._freed_s.pop() if self._freed_s else now_s
        full = self._in_use >= self.slots
        return freed_s if full and now_s - freed_s <= GAP_LIMIT_S else now_s

    def end(self, now_s: float | None = None) -> None:
        """A unit has left its slot, well or not."""
        self._in_use -= 1
        self._freed_s.append(time.monotonic() if now_s is None else now_s)

    def note(self, work: float, residence_s: float, now_s: float | None = None) -> None:
        """A unit of `work` ended that kept a slot busy for `residence_s` seconds.

        `now_s` is monotonic; None takes the present. What is not positive says nothing about speed.
        """
        if work > 0 and residence_s > 0:
            now_s = time.monotonic() if now_s is None else now_s
            with self._lock:
                self._units.append((now_s, work, residence_s))

    def speed(self, now_s: float | None = None) -> float | None:
        """Work a second of all slots together; None before the first unit has ended.

        >>> fast = Speedometer(slots=4)
        >>> fast.note(6.0, 2.0), fast.note(2.0, 2.0), fast.speed()    # 4 * (6 + 2) / (2 + 2)
        (None, None, 8.0)
        """
        now_s = time.monotonic() if now_s is None else now_s
        with self._lock:
            while len(self._units) > LEAST_UNITS and self._units[0][0] < now_s - KEPT_S:
                self._units.popleft()
            work = sum(unit[1] for unit in self._units)
            residence_s = sum(unit[2] for unit in self._units)
        return self.slots * work / residence_s if residence_s else None
