"""What faults work with: the house, chance, who is well, and what is noted down for the proof."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench.chaos_house import House, Seat

Heal = Callable[[], float | None]
"""Returns the seconds after which to ask again, where it is too early."""
Strike = Callable[["Striker"], "tuple[float, Heal] | None"]
"""Returns (seconds until healed, how), or None when there was nothing to strike at."""


@dataclass(frozen=True)
class Killed:
    """A worker killed with jobs in hand."""

    at: Any
    """Postgres' time."""
    attempts: dict[str, int]
    calm: bool
    """Nothing else was broken that a recovery needs."""


@dataclass
class Flushed:
    """Redis emptied under live workers."""

    at: Any
    attempts: dict[str, int]
    """What they had in hand."""
    until: Any = None
    """Postgres' time when all of it had ended or begun again, with nothing else broken."""


@dataclass
class Striker:
    """What the strikes work with, and what they note down."""

    house: House
    chance: random.Random
    put_in_long: Callable[[int], None]
    """Brings so many jobs that stay in hand for some seconds."""
    calm: bool = True
    kills: list[Killed] = field(default_factory=list)
    flushes: list[Flushed] = field(default_factory=list)

    @property
    def lease_s(self) -> float:
        """Of the house."""
        return self.house.lease_s

    def well(self, part: str, warm_s: float = 0.0) -> Seat | None:
        """A seat of this part whose process does what it should, since `warm_s` seconds."""
        since_s = time.monotonic() - warm_s
        seats = [s for s in self.house.seats_of(part) if s.alive and not s.stopped]
        seats = [s for s in seats if s.since_s <= since_s]
        return self.chance.choice(seats) if seats else None

    def in_hand(self, workers: list[str]) -> tuple[Any, dict[str, int]]:
        """(Postgres' time, attempts by job) of what these workers were granted."""
        question = (
            "SELECT clock_timestamp(), id::text, attempt FROM jobs"
            " WHERE state = 'running' AND split_part(worker, '@', 1) = ANY(%s)"
        )
        with contextlib.closing(self.house.database()) as c:
            rows = c.execute(question, (workers,)).fetchall()
        return (rows[0][0] if rows else None), {job_id: attempt for _, job_id, attempt in rows}

    def busy(self, seats: list[Seat]) -> tuple[Any, dict[str, int]]:
        """See `in_hand`: jobs that stay in hand for some seconds are brought until each of these
        has some, or time is up.
        """
        end_s = time.monotonic() + BUSY_WITHIN_S
        while True:
            self.put_in_long(LONG_JOBS)
            for _ in range(10):
                each = [self.in_hand([seat.worker])[1] for seat in seats]
                enough = all(each) and sum(map(len, each)) >= LONG_JOBS
                if enough or time.monotonic() > end_s:
                    return self.in_hand([seat.worker for seat in seats])
                time.sleep(0.1)


LONG_JOBS = 6
"""Brought before a fault that is about what workers have in hand."""
BUSY_WITHIN_S = 20.0
"""On a busy machine a worker takes as long to start."""
