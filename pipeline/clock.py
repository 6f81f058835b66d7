"""Time as a thing that can be handed over, so that tests set it and do not sleep."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time in seconds."""

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed on this clock."""
        ...


class SystemClock:
    """The machine's own clock."""

    def monotonic_s(self) -> float:
        """See `Clock`."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See `Clock`."""
        time.sleep(seconds)


class SetClock:
    """A clock that moves only when told to."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def monotonic_s(self) -> float:
        """See `Clock`."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Advance without waiting."""
        self.now_s += seconds
