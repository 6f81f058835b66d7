"""Arrivals for the simulator: how long recordings are, when they come, how long a slot needs them.

Three choices, made one by one and put together: lengths (seconds of speech), moments (seconds from
the start, in order), and a model of service. All chance comes from the `random.Random` handed in,
so a seed is a workload. Recorded arrivals are read by `traces.py`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random

from pipeline.scheduling.scenario import Arrival
from pipeline.scheduling.shares import ahead_ms, caught_up, equal_share, virtual_arrival
from pipeline.scheduling.work import JOB_S, KAPPA, TOKEN_S, WINDOW_S

LIBRISPEECH_LOG = (1.80, 0.632)
"""Mean and deviation of ln(seconds) of LibriSpeech test-clean's 2,620 utterances: a fall-back for
the lengths themselves."""
LIBRISPEECH_S = (1.3, 35.0)

CALL_MEDIAN_S, CALL_SIGMA, CALL_S = 210.0, 1.0, (5.0, 7200.0)
"""Recorded calls: lognormal, cut off at both ends."""

MIX_S = (5.0, 10.0, 15.0, 20.0, 25.0, 30.0)
"""The uniform mix of the published experiment."""

FULL_WINDOW_S = 30.0
WINDOW_FIXED = 0.11
"""Part of a full window's slot time that does not depend on the speech in it: b / (b + c * tokens)
of work.py for 30 s of English."""


# -- how long --------------------------------------------------------------------------------


def librispeech_s(rng: Random, count: int, measured_s: Sequence[float] = ()) -> list[float]:
    """Lengths of utterances: of `measured_s` without replacement, or by the lognormal fit.

    Raises ValueError when there are fewer than `count` of them.
    """
    if measured_s:
        if count > len(measured_s):
            raise ValueError(f"{count} lengths are wanted and there are {len(measured_s)}")
        return rng.sample(list(measured_s), count)
    return [_between(rng.lognormvariate(*LIBRISPEECH_LOG), LIBRISPEECH_S) for _ in range(count)]


def uniform_s(rng: Random, count: int) -> list[float]:
    """5, 10 ... 30 s, each as likely."""
    return [rng.choice(MIX_S) for _ in range(count)]


def calls_s(rng: Random, count: int) -> list[float]:
    """Lengths of calls: median 210 s, one in six above ten minutes, some above an hour."""
    mean = math.log(CALL_MEDIAN_S)
    return [_between(rng.lognormvariate(mean, CALL_SIGMA), CALL_S) for _ in range(count)]


def _between(value: float, limits: tuple[float, float]) -> float:
    return min(max(value, limits[0]), limits[1])


# -- when ------------------------------------------------------------------------------------


def poisson(rng: Random, count: int, rate: float) -> list[float]:
    """Moments of `count` arrivals at `rate` a second, each by itself."""
    now_s, moments = 0.0, []
    for _ in range(count):
        now_s += rng.expovariate(rate)
        moments.append(now_s)
    return moments


def at_once(count: int) -> list[float]:
    """All at the start, one a millisecond.

    Arrivals are counted in ms, and of two at the same one the smaller goes first: with all of them
    at one moment even fcfs would order by size.
    """
    return [n / 1000 for n in range(count)]


def day(rng: Random, spells: Sequence[tuple[float, float]]) -> list[float]:
    """Poisson arrivals at a rate that changes: `spells` of (seconds, arrivals a second)."""
    now_s, began_s, moments = 0.0, 0.0, []
    for lasts_s, rate in spells:
        ends_s = began_s + lasts_s
        now_s = began_s
        while rate > 0 and (now_s := now_s + rng.expovariate(rate)) < ends_s:
            moments.append(now_s)
        began_s = ends_s
    return moments


# -- how long a slot needs -------------------------------------------------------------------


def clips(
    lengths_s: Sequence[float],
    moments_s: Sequence[float],
    *,
    capacity: float,
    slots: float,
    fixed_share: float,
) -> list[Arrival]:
    """Clips of one window each, in a house of `slots` that serves `capacity` of them a second.

    Whisper encodes 30 s whatever the length, so a clip's service is a fixed part and one that grows
    with its length, fixed_share * mean length + length, scaled so that the mean is
    slots / capacity seconds. Work is predicted exactly.
    """
    mean_s = statistics.fmean(lengths_s)
    scale = slots / capacity / (mean_s * (1 + fixed_share))
    services = [scale * (fixed_share * mean_s + length_s) for length_s in lengths_s]
    return [
        Arrival(_name(n), round(1000 * moment_s), (service,), service)
        for n, (moment_s, service) in enumerate(zip(moments_s, services, strict=True))
    ]


def calls(
    lengths_s: Sequence[float], moments_s: Sequence[float], *, window_s: float = 1.0
) -> list[Arrival]:
    """Recordings in windows of 30 s, the last one shorter; a full one keeps a slot `window_s`.

    Work is predicted by the model of work.py for English, all of it speech.
    """
    return [
        call(_name(n), moment_s, length_s, window_s=window_s)
        for n, (moment_s, length_s) in enumerate(zip(moments_s, lengths_s, strict=True))
    ]


def call(job_id: str, moment_s: float, length_s: float, *, window_s: float = 1.0) -> Arrival:
    """One recording of `length_s` seconds of speech that comes at `moment_s`.

    >>> one = call("a", 0.5, 75.0)
    >>> one.at_ms, [round(unit, 3) for unit in one.units]
    (500, [1.0, 1.0, 0.555])
    """
    full = max(0, math.ceil(length_s / FULL_WINDOW_S) - 1)
    windows = [FULL_WINDOW_S] * full + [length_s - full * FULL_WINDOW_S]
    return in_windows(job_id, moment_s, windows, window_s=window_s)


def in_windows(
    job_id: str, moment_s: float, speech_s: Sequence[float], *, window_s: float = 1.0
) -> Arrival:
    """One recording whose windows hold `speech_s` seconds of speech each."""
    units = [window_s * (WINDOW_FIXED + (1 - WINDOW_FIXED) * s / FULL_WINDOW_S) for s in speech_s]
    works = tuple(WINDOW_S + TOKEN_S * KAPPA["en"] * s for s in speech_s)
    return Arrival(
        job_id, round(1000 * moment_s), tuple(units), JOB_S + sum(works), unit_works=works
    )


def mean_slot_s(arrivals: Iterable[Arrival]) -> float:
    """Slot seconds of a job, on average: slots over this is what a house of pace 1 can serve."""
    return statistics.fmean(sum(arrival.units) for arrival in arrivals)


def _name(number: int) -> str:
    return f"{number:07d}"


# -- together --------------------------------------------------------------------------------


def together(**classes: Sequence[Arrival]) -> list[Arrival]:
    """Several classes of arrivals in one queue; each job's id begins with its class.

    >>> both = together(bulk=[call("1", 0, 60)], trickle=[call("1", 5, 25)])
    >>> [arrival.job_id for arrival in both]
    ['bulk/1', 'trickle/1']
    """
    named = [
        replace(arrival, job_id=f"{name}/{arrival.job_id}")
        for name, arrivals in classes.items()
        for arrival in arrivals
    ]
    return sorted(named, key=lambda arrival: arrival.at_ms)


def by_shares(arrivals: Sequence[Arrival], shares: Mapping[str, float]) -> list[Arrival]:
    """Count arrivals by each tenant's virtual clock (shares.py).

    A job's tenant is what stands before the slash of its id; `shares`: predicted work a second by
    tenant, one that is not named has no limit. Arrivals are in order of time.
    """
    clocks: dict[str, int] = {}
    counted = []
    for arrival in arrivals:
        tenant = arrival.job_id.partition("/")[0]
        counted_ms, clocks[tenant] = virtual_arrival(
            arrival.at_ms, clocks.get(tenant, 0), arrival.work_s, shares.get(tenant, math.inf)
        )
        counted.append(replace(arrival, counted_ms=counted_ms))
    return counted


def by_equal_shares(arrivals: Sequence[Arrival], capacity: float) -> list[Arrival]:
    """Count arrivals as a house does where no tenant has a share of its own.

    `capacity`: predicted work a second, of which `equal_share` is a tenant's. What is left of each
    is reckoned as if all were served alike.
    """
    left: dict[str, float] = {}
    clocks: dict[str, int] = {}
    counted, last_s = [], 0.0
    for arrival in arrivals:
        tenant, now_s = arrival.job_id.partition("/")[0], arrival.at_ms / 1000
        _serve_alike(left, capacity, now_s - last_s)
        last_s, own_s = now_s, left.get(tenant, 0.0)
        share = equal_share(capacity, len({*left, tenant}))
        clock_ms = caught_up(clocks.get(tenant, 0), arrival.at_ms, own_s, share)
        counted_ms, clocks[tenant] = virtual_arrival(
            arrival.at_ms, clock_ms, arrival.work_s, share, ahead_ms(capacity, share)
        )
        left[tenant] = own_s + arrival.work_s
        counted.append(replace(arrival, counted_ms=counted_ms))
    return counted


def _serve_alike(left: dict[str, float], capacity: float, for_s: float) -> None:
    """Serve all tenants with work left at equal parts of `capacity`; who has none is dropped."""
    while left and for_s > 0:
        each = capacity / len(left)
        spell_s = min(for_s, min(left.values()) / each)
        for tenant in list(left):
            left[tenant] -= spell_s * each
            if left[tenant] <= 1e-9:
                del left[tenant]
        for_s -= spell_s
