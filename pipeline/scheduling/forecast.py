"""When will it be done: queue arithmetic for one job at one stage. Numbers in, seconds out.

Work is counted in the stage's own measure (for `transcribe` reference slot seconds, for `survey`
seconds of audio surveyed), and speed is work a second through all slots of all live workers, as
they measure it. A job is `units` that run side by side (windows; a whole file). With

    r = slots * unit work / speed          the time a unit keeps a slot (Little's law)

a waiting job's last unit starts when what goes before it and its other units have been let into
the slots, at the measured speed, and ends r later. Units already in a slot are not ahead of anyone:
as many others take their places.

Two things happen while it waits. Ranks move under hrrn, so who goes before it is asked again for
the moment at which it would be its turn. And newcomers may overtake it: those that would outrank it
at its turn are added at the rate of the last minute (`Inflow`). Under fcfs both are nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.scheduling.policies import Waiting

OVERTAKING_LIMIT = 0.5
"""Newcomers are counted for at most this part of the speed: what overtakes at a rate near 1 now
will not go on doing so; measured: 0.8 makes sjf's forecasts worse."""

SLICES_LEAST = 3
"""Slices of arrivals without which nothing is said about newcomers."""

ROUNDS = 20
"""Steps towards a time that agrees with the newcomers of that time: each step at least halves the
distance."""


@dataclass(frozen=True)
class Capacity:
    """The live workers of a stage, together."""

    speed: float
    """Work a second through all slots; above 0."""
    slots: int
    workers: int
    """A job is in one worker's hands: its own units pass at the speed of one."""

    def residence_s(self, unit_work: float) -> float:
        """How long a unit keeps its slot."""
        return self.slots * unit_work / self.speed


def together(workers: Iterable[tuple[float | None, int]]) -> Capacity | None:
    """Workers of (speed, slots) as one. Those whose speed nobody knows do not count; None when that
    is all of them.

    >>> together([(8.0, 4), (None, 4), (2.0, 1)])
    Capacity(speed=10.0, slots=5, workers=2)
    """
    live = [(speed, slots) for speed, slots in workers if speed]
    if not live:
        return None
    return Capacity(sum(speed for speed, _ in live), sum(slots for _, slots in live), len(live))


@dataclass(frozen=True)
class Amount:
    """Work in so many units: of one job, or of several together."""

    work: float
    units: int

    @property
    def unit_work(self) -> float:
        """Work of one unit, on average."""
        return self.work / max(1, self.units)


NOTHING = Amount(0.0, 0)


def turn_s(capacity: Capacity, waiting_work: float, serving: Amount) -> float:
    """Seconds until a waiting job gets its first slot, when no slot is free.

    `waiting_work` waits before it; `serving` are jobs in hand that outrank it, of which the units
    beyond one for each slot have still to be let in.
    """
    beyond = max(0, serving.units - capacity.slots) * serving.unit_work
    return (waiting_work + beyond) / capacity.speed


def service_s(capacity: Capacity, own: Amount, free_slots: int) -> float:
    """Seconds from a job's first slot to its end, with `free_slots` others to start into.

    >>> one = Capacity(speed=8.0, slots=4, workers=1)       # a unit of 2.0 keeps a slot for 1 s
    >>> service_s(one, Amount(2.0, 1), 0), service_s(one, Amount(16.0, 8), 4)      # two rounds
    (1.0, 2.0)
    """
    at_once = max(1, min(free_slots, capacity.slots // capacity.workers))
    later = max(0.0, own.work - at_once * own.unit_work)
    return later * capacity.workers / capacity.speed + capacity.residence_s(own.unit_work)


def rest_s(
    capacity: Capacity,
    left: Amount,
    *,
    whole: Amount,
    since_s: float,
    serving: Amount,
    waiting_work: float,
    busy_slots: int,
) -> float:
    """Seconds until a job in hand is done.

    `left` of `whole` is not done, `since_s` seconds after it was taken in hand. `serving` are jobs
    in hand and `waiting_work` is waiting work that outrank it: both only matter while units of its
    own have still to be let in.
    """
    if not left.units:
        return 0.0
    residence_s = capacity.residence_s(left.unit_work)
    slots = capacity.slots / capacity.workers
    units = serving.units / capacity.workers + left.units
    if units > slots:
        work = (serving.work + left.work * capacity.workers) * (1 - slots / units)
        waiting = waiting_work if left.units > slots else 0.0
        return (work + waiting) / capacity.speed + residence_s
    if left.units == whole.units:  # none has ended: it goes by the time since it began
        free = 0 if busy_slots >= capacity.slots else left.units
        return max(residence_s / 10, service_s(capacity, whole, free) - since_s)
    # the ages of units in their slots are anything from 0 to r: the youngest of n is r / (n + 1)
    return residence_s * left.units / (left.units + 1)


# -- what comes while it waits --------------------------------------------------------------


@dataclass(frozen=True)
class Inflow:
    """How many jobs come, by size."""

    per_s: Mapping[int, float]
    """Jobs a second, by bucket."""

    def overtaking(
        self,
        place: Waiting,
        table: Sequence[tuple[float, float]],
        now_ms: int,
        turn_s: float,
        work_of: Callable[[int], float],
    ) -> float:
        """Work of jobs that will come in the next `turn_s` and outrank `place` at their end.

        `table`: the pairs of the policy. A newcomer of another bucket, s seconds from now, ranks
        u * (turn_s - s) + v then.
        """
        u, v = table[place.bucket]
        own = u * max(0.0, now_ms + turn_s * 1000 - place.arrival_ms) + v
        work = 0.0
        for bucket, per_s in self.per_s.items():
            nu, nv = table[bucket]
            never_s = turn_s if nv > own else 0.0  # a rank that does not grow: all or none
            before_s = turn_s - (own - nv) / nu / 1000 if nu > 0 else never_s
            work += per_s * work_of(bucket) * min(max(0.0, before_s), turn_s)
        return work


def inflow(
    slices: Sequence[Mapping[int, int]], slice_s: float, work_of: Callable[[int], float]
) -> Inflow:
    """The inflow as the last time slices, each of `slice_s` seconds, tell: {bucket: jobs}.

    The rate of work is the median over the slices, so that a folder of files sent at once is not
    taken for a rate; how it divides among sizes is told by all of them.

    >>> inflow([{50: 2}, {50: 2}, {50: 900}, {}], 5.0, lambda bucket: 1.0).per_s
    {50: 0.4}
    """
    while slices and not slices[-1]:  # before the first of them nothing is known
        slices = slices[:-1]
    together: dict[int, int] = {}
    for counts in slices:
        for bucket, count in counts.items():
            together[bucket] = together.get(bucket, 0) + count
    works = [sum(work_of(b) * count for b, count in counts.items()) for counts in slices]
    total = sum(works)
    if len(slices) < SLICES_LEAST or not total:
        return Inflow({})
    per_job = statistics.median(works) / slice_s / total
    return Inflow({bucket: count * per_job for bucket, count in sorted(together.items())})


def with_overtaking(base_s: float, speed: float, overtaking: Callable[[float], float]) -> float:
    """The time t at which `base_s` plus the work that overtakes until t, over `speed`, is t.

    >>> round(with_overtaking(10.0, 2.0, lambda t: 0.5 * t), 1)      # t = 10 + t / 4
    13.3
    """
    t_s = base_s
    for _ in range(ROUNDS):
        extra = min(overtaking(t_s), OVERTAKING_LIMIT * speed * t_s)
        before_s, t_s = t_s, base_s + extra / speed
        if t_s - before_s < 0.01 * t_s:
            break
    return t_s
