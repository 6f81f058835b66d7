"""The outlook of a process: looked at once a second at most, however many ask.

Only who is in hand is read more often, by one small question: with units of half a second a second
is long, and half of all short forecasts hang on it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace

from sqlalchemy import Engine

from pipeline.queue.redis_queue import RedisQueue
from pipeline.scheduling.calibration import Calibration
from pipeline.settings import Settings
from pipeline.steps.forecast.measures import Measures
from pipeline.steps.forecast.outlook import SLICE_S, SLICES, Outlook
from pipeline.store import forecasts, load, policies
from pipeline.store.session import clock_ms, transaction

KEPT_S = 1.0
"""For so long an outlook serves all who ask."""

HANDS_KEPT_S = 0.2
"""Who is in hand, and how far they are, is read again after so long."""

STALE_S = 5.0
"""While one looks anew, the others are told by the old outlook, up to this age; then they wait."""

CALIBRATION_KEPT_S = 5.0
"""Calibration changes slowly, and reading it costs more than all else."""


@dataclass(frozen=True)
class _Last:
    looked_s: float
    """When, monotonic, as the next."""
    hands_s: float
    outlook: Outlook


class Outlooks:
    """Nothing is looked at before somebody asks. May be asked from any thread."""

    def __init__(self, store: Engine, queues: dict[str, RedisQueue], settings: Settings) -> None:
        self._store, self._queues, self._settings = store, queues, settings
        self.kept_s = KEPT_S
        """For tests: shorter, and all that is read is read again sooner."""
        self._looking = threading.Lock()
        self._last: _Last | None = None
        self._calibration: tuple[float, Calibration] | None = None

    def now(self) -> Outlook:
        """How things stand, as of `kept_s` ago at most. Raises `PartDown`."""
        last, now_s = self._last, time.monotonic()
        if last is not None and self._good(last, now_s):
            return last.outlook
        usable = last is not None and now_s - last.looked_s <= min(STALE_S, 5 * self.kept_s)
        if not self._looking.acquire(blocking=not usable):
            assert last is not None
            return last.outlook
        try:
            last, now_s = self._last, time.monotonic()  # somebody may have looked meanwhile
            if last is None or now_s - last.looked_s > self.kept_s:
                last = self._last = _Last(now_s, now_s, self._look())
            elif not self._good(last, now_s):
                last = self._last = _Last(last.looked_s, now_s, self._hands(last.outlook))
            return last.outlook
        finally:
            self._looking.release()

    def _good(self, last: _Last, now_s: float) -> bool:
        hands_kept_s = min(HANDS_KEPT_S, self.kept_s)
        return now_s - last.looked_s <= self.kept_s and now_s - last.hands_s <= hands_kept_s

    def _hands(self, outlook: Outlook) -> Outlook:
        with transaction(self._store) as c:
            return replace(outlook, in_hand=load.in_hand(c), now_ms=clock_ms(c))

    def _look(self) -> Outlook:
        with transaction(self._store) as c:
            in_hand = load.in_hand(c)
            decided = policies.newest_policy(c) or self._settings.start_policy
            now_ms = clock_ms(c)
            slices = load.arrivals(c, now_ms, SLICE_S, SLICES)
        calibration = self._calibrated()
        queues = self._queues
        return Outlook(
            measures=Measures(
                language=self._settings.language,
                speeds={name: q.board.speeds() for name, q in queues.items()},
                slot_speeds={name: q.board.slot_speed_known() for name, q in queues.items()},
            ),
            now_ms=now_ms,
            in_hand=in_hand,
            policies={name: q.policy() or decided for name, q in queues.items()},
            lines={name: q.order.sketch() for name, q in queues.items()},
            slices=slices,
            calibration=calibration,
        )

    def _calibrated(self) -> Calibration:
        last = self._calibration
        if last is None or time.monotonic() - last[0] > min(CALIBRATION_KEPT_S, 5 * self.kept_s):
            with transaction(self._store) as c:
                last = self._calibration = time.monotonic(), Calibration(forecasts.ratios(c))
        return last[1]
