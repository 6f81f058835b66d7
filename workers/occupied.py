"""How much of an engine's time is used: slots taken, added up over time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


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
