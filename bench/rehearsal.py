"""The very same jobs in the simulator, beside what a real line made of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from bench.arrivals import Came
from bench.picks import Begun, Known, equal_turns, judge
from pipeline.scheduling.policies import Policy
from pipeline.scheduling.simulator import Arrival, House, Run, simulate
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
    real = [one.ended_s - one.seen_s for one in came]
    rehearsed = [outcome.response_s for outcome in run.outcomes]
    return {
        "turns": len(windows),
        "equal_turns": equal_turns([window.job_id for window in windows], run.picks),
        "right": judged.right,
        "raced": judged.raced,
        "wrong": len(judged.wrong),
        "p50_ratio": round(quantile(real, 50) / quantile(rehearsed, 50), 4),
        "p90_ratio": round(quantile(real, 90) / quantile(rehearsed, 90), 4),
        "mean_ratio": round(statistics.mean(real) / statistics.mean(rehearsed), 4),
    }


def turns_of(came: Sequence[Came]) -> list[Begun]:
    """All windows in order of their turns. They must be of one worker."""
    return sorted((w for one in came for w in one.windows), key=lambda window: window.turn)


def known(came: Sequence[Came]) -> dict[str, Known]:
    """The jobs as the rule sees them."""
    return {
        one.job_id: Known(one.job_id, one.arrival_ms, one.seen_s, one.clip.works, JOB_S)
        for one in came
    }


def quantile(values: Sequence[float], percent: int) -> float:
    """The `percent` (1..99) quantile, interpolated; of a single value itself."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
