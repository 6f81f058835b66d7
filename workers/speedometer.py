"""How fast a worker's slots really are: work that ended, over the time it kept a slot busy.

By Little's law the work that passes in a second through N busy slots is

    speed = N * sum(work of the last units) / sum(time each of them kept a slot)

whatever the order they came in, and idle time does not count against it. While slots stand idle it
tells what all of them would do at the pace of those in use: too much, where they share one device.
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


class Speedometer:
    """The speed of one worker. May be read from another thread."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._units: deque[tuple[float, float, float]] = deque(maxlen=KEPT_UNITS)
        self._lock = threading.Lock()

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
