"""How fast a worker's slots really are: work that ended, over the time it kept a slot busy.

By Little's law the work that passes in a second through N busy slots is

    speed = N * sum(work of the last units) / sum(time each of them kept a slot)

whatever the order they came in. A slot that stood free only until the next unit was claimed counts
as kept by that unit: claiming takes time, and with slots always full it takes it from the work.
Real idleness does not count. While slots stand idle it tells what all of them would do at the pace
of those in use: too much, where they share one device.

Where a unit costs something beside its work (opening a sandbox), small units pass slowly and large
ones fast. In a line that is served from the smallest up, the small units would show too low a speed
for the large ones behind them. So the cost beside is learned too, where asked, from

    time / work = (1 + beside / work) / pace                    least squares in 1 / work

and counts as work of every unit, here and in forecasts.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Sequence

KEPT_UNITS = 200
KEPT_S = 120.0
"""Units that ended longer ago are forgotten, so that a change of load shows; the newest
`LEAST_UNITS` are kept all the same: after an idle night they are better than nothing."""
LEAST_UNITS = 20

ALIKE = 0.3
"""Where the variance of n units' 1/work is less than about this / sqrt(n) of its squared mean,
pace and cost beside are told apart badly: then little is taken for cost beside."""

GAP_LIMIT_S = 0.25
"""A slot free for longer was idle, not on its way to the next unit."""


class Speedometer:
    """The speed of one worker. May be read from another thread."""

    def __init__(self, slots: int, *, learns_beside: bool = False) -> None:
        self.slots, self._learns_beside = slots, learns_beside
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
        found = self.measured(now_s)
        return found[0] if found else None

    def measured(self, now_s: float | None = None) -> tuple[float, float] | None:
        """(speed, cost of a unit beside its work, in the unit of work); see `speed`.

        The speed counts the cost beside as work done.
        """
        now_s = time.monotonic() if now_s is None else now_s
        with self._lock:
            while len(self._units) > LEAST_UNITS and self._units[0][0] < now_s - KEPT_S:
                self._units.popleft()
            units = [(work, residence_s) for _, work, residence_s in self._units]
        if not units:
            return None
        beside = cost_beside(units) if self._learns_beside else 0.0
        work = sum(work + beside for work, _ in units)
        return self.slots * work / sum(residence_s for _, residence_s in units), beside


def cost_beside(units: Sequence[tuple[float, float]]) -> float:
    """What a unit costs beside its work, of some (work, seconds), in the unit of work; at least 0
    and at most half of a mean unit's: the first units are often small, and slow for other reasons.

    >>> round(cost_beside([(1.0, 3.0), (10.0, 12.0)] * 50), 1)       # each takes work + 2 seconds
    1.8
    """
    xs = [1 / work for work, _ in units]
    ys = [residence_s / work for work, residence_s in units]
    x, y = statistics.fmean(xs), statistics.fmean(ys)
    spread = sum((one - x) ** 2 for one in xs) + ALIKE * x * x * len(xs) ** 0.5
    fixed_s = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / spread
    pace_s = y - fixed_s * x
    most = statistics.fmean(work for work, _ in units) / 2
    return most if pace_s <= 0 else min(most, max(0.0, fixed_s / pace_s))
