"""What a simulation is asked and what it answers: arrivals and a house, outcomes and picks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.scheduling.policies import Policy

LEVELS = ("window", "file")


@dataclass(frozen=True)
class Arrival:
    """A job that comes in."""

    job_id: str
    at_ms: int
    units: tuple[float, ...]
    """Slot seconds each of its windows needs in a worker by itself, in order; at least one."""
    work_s: float
    """Predicted work S, reference slot seconds: what ranks go by, right or wrong."""
    counted_ms: int | None = None
    """Its arrival as ranks count it (shares.py); None: `at_ms`."""
    unit_works: tuple[float, ...] = ()
    """Predicted work of each unit, by which the rest of S falls; empty: as `units`."""


@dataclass(frozen=True)
class House:
    """The workers, all alike."""

    workers: int = 1
    slots: int = 32
    """Units in service at once, each worker."""
    level: str = "window"
    """`window`: a job's units run side by side. `file`: one slot does the whole job."""
    pace: Callable[[int], float] | Sequence[float] | None = None
    """Speed of each of n units in one worker, above 0: `pace(n)` or `pace[n - 1]` (the last one
    holds for more); None: 1 whatever n is."""

    def __post_init__(self) -> None:
        if self.workers < 1 or self.slots < 1:
            raise ValueError(f"a house has workers and slots, not {self.workers} and {self.slots}")
        if self.level not in LEVELS:
            raise ValueError(f"{self.level!r} is not a level of service: window or file")
        if not all(0 < speed < math.inf for speed in self.paces):
            raise ValueError("a pace is a speed above 0 for every number of units")

    @property
    def paces(self) -> tuple[float, ...]:
        """Speed of each unit, with one unit in the worker, with two, and so on."""
        pace, slots = self.pace, self.slots
        if pace is None:
            return (1.0,) * slots
        if callable(pace):
            return tuple(float(pace(n)) for n in range(1, slots + 1))
        if not pace:
            raise ValueError("a pace is a speed above 0 for every number of units")
        return tuple(float(pace[min(n, len(pace) - 1)]) for n in range(slots))


@dataclass(frozen=True)
class View:
    """What a policy that is a rule of the backlog may look at."""

    waiting: int
    """Jobs of which nothing has started."""
    waiting_work_s: float
    """Predicted work that has not started, of all jobs."""
    slots: int
    """Slots of all workers."""


Rule = Callable[[int, View], Policy]
"""(now, ms; what is to be seen) -> the policy from now on."""


@dataclass(frozen=True)
class Outcome:
    """What became of one job; seconds on the clock of the arrivals."""

    job_id: str
    arrived_s: float
    started_s: float
    """Its first unit got a slot."""
    ended_s: float

    @property
    def response_s(self) -> float:
        """From arrival to result."""
        return self.ended_s - self.arrived_s

    @property
    def wait_s(self) -> float:
        """From arrival to the first slot."""
        return self.started_s - self.arrived_s


@dataclass(frozen=True)
class Run:
    """One simulation."""

    outcomes: tuple[Outcome, ...]
    """In order of arrival."""
    picks: tuple[str, ...]
    """Job ids in the order in which their units started."""
    throughput: float
    """Jobs a second from the first arrival to the last end."""
    switches: int
    """How often the policy changed."""
    promoted: int = 0
    """Units that started because their job was overdue, and not by rank."""
