"""The very same jobs in the simulator, beside what a real line made of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.arrivals import Came
from bench.picks import Begun, Known, equal_turns, judge
from pipeline.scheduling.policies import Policy
from pipeline.scheduling.scenario import Arrival, House, Run
from pipeline.scheduling.simulator import simulate
from pipeline.scheduling.tally import quantile
from pipeline.scheduling.work import JOB_S

UnitsOf = Callable[[Came], tuple[float, ...]]
"""Slot seconds each window of a job needs."""


def echo_units(fixed_s: float, per_second_s: float) -> UnitsOf:
    """What an echo engine takes for each window."""

    def units(came: Came) -> tuple[float, ...]:
        return tuple(fixed_s + per_second_s * w.length_s for w in came.clip.plan.windows)

    return units


def rehearse(came: Sequence[Came], policy: Policy, house: House, units: UnitsOf) -> Run:
    """These jobs, at the moments they came, in the simulator."""
    arrivals = [
        Arrival(
            one.job_id,
            round(one.seen_s * 1000),
            units(one),
            one.clip.work_s,
            counted_ms=one.arrival_ms,
            unit_works=one.clip.works,
        )
        for one in came
    ]
    return simulate(arrivals, policy, house)


def beside(came: Sequence[Came], policy: Policy, run: Run) -> dict[str, Any]:
    """How the real line and its rehearsal `run` compare.

    turns           windows given a slot
    equal_turns     of them, those that went to the same job in both
    right, raced    turns the rule demands, given what had really arrived and been heard by then
                    (see bench/picks.py); wrong: the others
    p50_ratio, p90_ratio, mean_ratio   of times from the queue to the result, real over rehearsed
    """
    windows = turns_of(came)
    judged = judge(windows, known(came), policy)
    real = sorted(one.ended_s - one.seen_s for one in came)
    rehearsed = sorted(outcome.response_s for outcome in run.outcomes)
    return {
        "turns": len(windows),
        "equal_turns": equal_turns([window.job_id for window in windows], run.picks),
        "right": judged.right,
        "raced": judged.raced,
        "wrong": len(judged.wrong),
        "p50_ratio": round(quantile(real, 0.5) / quantile(rehearsed, 0.5), 4),
        "p90_ratio": round(quantile(real, 0.9) / quantile(rehearsed, 0.9), 4),
        "mean_ratio": round(statistics.mean(real) / statistics.mean(rehearsed), 4),
    }


def as_kept(came: Sequence[Came], slots: int) -> UnitsOf:
    """Slot seconds each window really kept a slot from others, the gap before it included: service
    no engine was told to take. Only for servers that do not slow each other down.
    """
    gaps = _gaps_s(came, slots)

    def units(one: Came) -> tuple[float, ...]:
        by_unit = sorted(one.windows, key=lambda window: window.unit)
        return tuple(w.ended_s - w.began_s + gaps.get(w.turn, 0.0) for w in by_unit)

    return units


def losses(came: Sequence[Came], slots: int) -> dict[str, float]:
    """What a real line spends and a rehearsal does not, medians in ms.

    pickup_ms   a job comes while a slot is free and nobody waits: until it has it, for such a
                worker looks four times a second at least
    gap_ms      a slot stands empty although a job waits: a claim, a grant, a plan are on their way
    commit_ms   from the last window heard to the result in Postgres
    """
    windows, seen_s = turns_of(came), {one.job_id: one.seen_s for one in came}
    firsts = {one.job_id: min(one.windows, key=lambda window: window.turn) for one in came}
    pickups = [
        first.began_s - seen_s[job_id]
        for job_id, first in firsts.items()
        if _idle(windows, firsts, seen_s, job_id, slots)
    ]
    commits = [one.ended_s - max(w.ended_s for w in one.windows) for one in came]
    return {
        "pickup_ms": _median_ms(pickups),
        "gap_ms": _median_ms(list(_gaps_s(came, slots).values())),
        "commit_ms": _median_ms(commits),
    }


def _idle(
    windows: Sequence[Begun],
    firsts: Mapping[str, Begun],
    seen_s: Mapping[str, float],
    job_id: str,
    slots: int,
) -> bool:
    """Whether a slot was free and no other job waited for its first when this one came."""
    at_s = seen_s[job_id]
    busy = sum(window.given_s <= at_s < window.ended_s for window in windows)
    waiting = [j for j, first in firsts.items() if seen_s[j] <= at_s < first.given_s]
    return busy < slots and waiting in ([], [job_id])


def _gaps_s(came: Sequence[Came], slots: int) -> dict[int, float]:
    """For each turn that a job waited for: how long its slot had been empty, seconds."""
    windows, seen_s = turns_of(came), {one.job_id: one.seen_s for one in came}
    ends = sorted(window.ended_s for window in windows)
    # while all slots are taken, the n-th window to end leaves its slot to turn n + slots
    pairs = zip(sorted(windows, key=lambda w: w.began_s)[slots:], ends, strict=False)
    return {w.turn: w.began_s - at_s for w, at_s in pairs if seen_s[w.job_id] < at_s < w.began_s}


def _median_ms(seconds: Sequence[float]) -> float:
    return round(1000 * statistics.median(seconds), 1) if seconds else 0.0


def turns_of(came: Sequence[Came]) -> list[Begun]:
    """All windows in order of their turns. They must be of one worker."""
    return sorted((w for one in came for w in one.windows), key=lambda window: window.turn)


def known(came: Sequence[Came]) -> dict[str, Known]:
    """The jobs as the rule sees them."""
    return {
        one.job_id: Known(one.job_id, one.arrival_ms, one.seen_s, one.clip.works, JOB_S)
        for one in came
    }
