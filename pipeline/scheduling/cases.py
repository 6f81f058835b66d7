"""The workloads people compare orders of work by: arrivals and a house for each seed.

librispeech   500 utterances, Poisson at 25/s over what 20 slots do, 18/s (published experiment)
uniform       500 of 5..30 s, Poisson at 25/s over 13/s
burst         500 utterances at one moment
calls         3,000 calls in windows, Poisson at a load of 32 slots
bulk          2,500 calls, one a millisecond, and a call of 25 s every 5 s until they are done
day           calls: 20 minutes quiet, 30 busy, 10 of surge, 30 of recovery
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from pipeline.scheduling import workloads
from pipeline.scheduling.scenario import Arrival, House

SPELLS = ((1200.0, 0.3), (1800.0, 0.9), (600.0, 1.3), (1800.0, 0.7))
"""A day, shortened: seconds and load."""
TRICKLE_S, TRICKLE_EACH_S = 25.0, 5.0
LEAST, MOST = 1e-6, 1e6
"""Of loads, rates and seconds: beyond, sums of them leave the range of a double."""
JOBS_LIMIT, WORKERS_LIMIT, SLOTS_LIMIT = 200_000, 1024, 4096
FULL_WINDOW_SLOT_S = 1.0
"""Slot seconds of a full window in the calls' house: about what one of 32 slots on a GPU needs."""


@dataclass(frozen=True)
class Asked:
    """What may be varied; None: as the case has it."""

    load: float | None = None
    """Arriving work over what the house can do."""
    rate: float | None = None
    """Arrivals a second, instead of a load."""
    jobs: int | None = None
    slots: int | None = None
    workers: int = 1
    knee: float | None = None
    """Units in a worker up to which each has its full speed; more share the speed of so many."""
    fixed_share: float = 0.25
    """Of clips: the part of a clip's service that does not depend on its length, over the part of
    the mean clip's that does."""
    window_s: float = FULL_WINDOW_SLOT_S
    """Of calls: slot seconds of a full window."""
    durations_s: tuple[float, ...] = ()
    """Measured lengths of LibriSpeech; none: a lognormal fit."""
    trace: tuple[Arrival, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for name in ("load", "rate", "window_s", "knee"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} is above 0, not {value:g}")
            if value is not None and not LEAST <= value <= MOST:
                raise ValueError(f"{name} is {LEAST:g} to {MOST:g}, not {value:g}")
        if self.load is not None and self.rate is not None:
            raise ValueError("a load or a rate, not both")
        if not 0 <= self.fixed_share <= MOST:
            raise ValueError(f"a fixed share is 0 to {MOST:g}, not {self.fixed_share:g}")
        if self.workers < 1 or (self.slots is not None and self.slots < 1):
            raise ValueError("a house has at least one worker with at least one slot")
        if self.workers > WORKERS_LIMIT or (self.slots or 1) > SLOTS_LIMIT:
            raise ValueError(f"at most {WORKERS_LIMIT} workers with {SLOTS_LIMIT} slots")
        if self.jobs is not None and not 1 <= self.jobs <= JOBS_LIMIT:
            raise ValueError(f"1 to {JOBS_LIMIT:,} jobs, not {self.jobs}")

    def house(self, slots: int) -> House:
        """The house asked for, with `slots` a worker if nothing else is."""
        pace = None if self.knee is None else knee_pace(self.knee)
        return House(self.workers, self.slots or slots, pace=pace)


def knee_pace(knee: float) -> Callable[[int], float]:
    """Speed of each of n units: 1 up to `knee` of them, then knee / n.

    >>> [knee_pace(2)(n) for n in (1, 2, 4)]
    [1.0, 1.0, 0.5]
    """
    return lambda n: min(1.0, knee / n)


def full_speed(house: House) -> float:
    """Slot seconds all workers do in a second when every slot is taken."""
    return house.workers * house.slots * house.paces[-1]


@dataclass(frozen=True)
class Case:
    """One seed of a workload."""

    arrivals: tuple[Arrival, ...]
    house: House
    rate: float
    """Arrivals a second; 0 when all come at once."""
    load: float
    skip: int = 0
    """The first jobs, which meet an empty house, are left out of figures."""


def librispeech(seed: int, asked: Asked) -> Case:
    """Utterances of one window each."""
    count = asked.jobs or 500
    rng = Random(seed)
    lengths_s = workloads.librispeech_s(rng, count, asked.durations_s)
    return _poisson_clips(rng, lengths_s, asked, capacity=18.0, load=25 / 18)


def uniform(seed: int, asked: Asked) -> Case:
    """The published mix of 5 to 30 s."""
    rng = Random(seed)
    lengths_s = workloads.uniform_s(rng, asked.jobs or 500)
    return _poisson_clips(rng, lengths_s, asked, capacity=13.0, load=25 / 13)


def burst(seed: int, asked: Asked) -> Case:
    """Utterances at one moment; with a rate, one after the other at that pace, without chance."""
    rng = Random(seed)
    count = asked.jobs or 500
    lengths_s = workloads.librispeech_s(rng, count, asked.durations_s)
    moments = [n / asked.rate for n in range(count)] if asked.rate else workloads.at_once(count)
    return _clips(lengths_s, moments, asked, 18.0, asked.rate or 0.0)


def _poisson_clips(
    rng: Random, lengths_s: Sequence[float], asked: Asked, *, capacity: float, load: float
) -> Case:
    rate = asked.rate or capacity * (asked.load or load)
    moments = workloads.poisson(rng, len(lengths_s), rate)
    return _clips(lengths_s, moments, asked, capacity, rate)


def _clips(
    lengths_s: Sequence[float],
    moments: Sequence[float],
    asked: Asked,
    capacity: float,
    rate: float,
) -> Case:
    """`capacity` clips a second are what all slots together do."""
    house = asked.house(20)
    arrivals = workloads.clips(
        lengths_s,
        moments,
        capacity=capacity,
        slots=full_speed(house),
        fixed_share=asked.fixed_share,
    )
    return Case(tuple(arrivals), house, rate, rate / capacity)


def calls(seed: int, asked: Asked) -> Case:
    """Calls in windows. The rate follows from the load and the mean of this seed's own calls."""
    rng = Random(seed)
    count = asked.jobs or 3000
    lengths_s = workloads.calls_s(rng, count)
    house, capacity = _calls_house(lengths_s, asked)
    rate = asked.rate or capacity * (asked.load or 0.95)
    moments = workloads.poisson(rng, count, rate)
    arrivals = workloads.calls(lengths_s, moments, window_s=asked.window_s)
    return Case(tuple(arrivals), house, rate, rate / capacity, skip=count // 10)


def bulk(seed: int, asked: Asked) -> Case:
    """A bulk of calls at one moment, and short ones that come while it drains.

    Ids begin with `bulk/` and `trickle/`.
    """
    rng = Random(seed)
    lengths_s = workloads.calls_s(rng, asked.jobs or 2500)
    house, capacity = _calls_house(lengths_s, asked)
    drains_s = len(lengths_s) / capacity
    rate = asked.rate or 1 / TRICKLE_EACH_S
    _check_jobs(len(lengths_s) + drains_s * rate)
    moments = [n / rate for n in range(1, math.ceil(drains_s * rate) + 1)]
    both = workloads.together(
        bulk=workloads.calls(lengths_s, workloads.at_once(len(lengths_s)), window_s=asked.window_s),
        trickle=workloads.calls([TRICKLE_S] * len(moments), moments, window_s=asked.window_s),
    )
    return Case(tuple(both), house, rate, math.inf)


def day(seed: int, asked: Asked) -> Case:
    """Calls at the loads of SPELLS, each times `load` if one is given."""
    _not_chosen(asked.jobs, "a day has as many jobs as its loads make")
    rng = Random(seed)
    sample_s = workloads.calls_s(Random(0), 20_000)
    house, capacity = _calls_house(sample_s, asked)
    scale = asked.load or 1.0
    spells = [(lasts_s, scale * load * capacity) for lasts_s, load in SPELLS]
    _check_jobs(sum(lasts_s * per_s for lasts_s, per_s in spells))
    moments = workloads.day(rng, spells)
    lengths_s = workloads.calls_s(rng, len(moments))
    arrivals = workloads.calls(lengths_s, moments, window_s=asked.window_s)
    lasts_s = sum(spell[0] for spell in spells)
    rate = len(arrivals) / lasts_s
    return Case(tuple(arrivals), house, rate, rate / capacity)


def trace(seed: int, asked: Asked) -> Case:
    """Recorded arrivals, alike for every seed."""
    _not_chosen(asked.jobs, "a trace has the jobs that were recorded")
    house = asked.house(32)
    lasts_s = (asked.trace[-1].at_ms - asked.trace[0].at_ms) / 1000
    rate = len(asked.trace) / lasts_s if lasts_s else 0.0
    capacity = full_speed(house) / workloads.mean_slot_s(asked.trace)
    return Case(asked.trace, house, rate, rate / capacity)


def _not_chosen(jobs: int | None, why: str) -> None:
    if jobs is not None:
        raise ValueError(f"{why}, not {jobs}")


def _check_jobs(number: float) -> None:
    """Where their number follows from rates and times, before any of them is made."""
    if number > JOBS_LIMIT:
        raise ValueError(f"that makes {number:.3g} jobs, more than {JOBS_LIMIT:,}")


def _calls_house(lengths_s: Sequence[float], asked: Asked) -> tuple[House, float]:
    """The house for calls, and how many of these it does a second."""
    house = asked.house(32)
    arrivals = workloads.calls(
        lengths_s, workloads.at_once(len(lengths_s)), window_s=asked.window_s
    )
    return house, full_speed(house) / workloads.mean_slot_s(arrivals)


CASES: dict[str, Callable[[int, Asked], Case]] = {
    "librispeech": librispeech,
    "uniform": uniform,
    "burst": burst,
    "calls": calls,
    "bulk": bulk,
    "day": day,
}
"""By name; `trace` besides, where one is given."""
