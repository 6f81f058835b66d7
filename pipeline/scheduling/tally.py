"""What a simulation or a measurement comes to: quantiles of outcomes, medians of several runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields

from pipeline.scheduling.scenario import Arrival, House, Outcome


@dataclass(frozen=True)
class Figures:
    """Times of a run's jobs. Seconds; `start_` to the first slot, the others to the result."""

    p25_s: float
    p50_s: float
    p90_s: float
    p99_s: float
    max_s: float
    mean_s: float
    mean_slowdown: float
    """Time to result over `alone_s`, on average."""
    start_p25_s: float
    start_p50_s: float
    start_p90_s: float
    start_p99_s: float
    start_max_s: float
    throughput: float
    """Jobs a second from the first arrival to the last end."""


def quantile(ordered: Sequence[float], part: float) -> float:
    """The value below which `part` (0..1) of `ordered` lies, linear between two.

    >>> quantile([1.0, 2.0, 4.0], 0.75)
    3.0
    """
    at = part * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def alone_s(arrival: Arrival, house: House) -> float:
    """The least time a job takes: alone in `house` served by windows, whatever its level.

    >>> alone_s(Arrival("a", 0, (1.0,) * 6, 6.0), House(slots=2)), alone_s(
    ...     Arrival("b", 0, (3.0, 1.0), 4.0), House(slots=8))
    (3.0, 3.0)
    """
    paces = house.paces
    side_by_side = min(len(arrival.units), house.slots)
    longest, whole = max(arrival.units), sum(arrival.units)
    return max(longest / paces[0], whole / side_by_side / paces[side_by_side - 1])


def figures(
    outcomes: Sequence[Outcome], alone: Sequence[float], throughput: float, skip: int = 0
) -> Figures:
    """Figures of `outcomes` without the first `skip`; `alone`: `alone_s` of each, in their order.

    Raises ValueError when none are left.
    """
    counted = outcomes[skip:]
    if not counted:
        raise ValueError(f"of {len(outcomes)} jobs none is left after the first {skip}")
    results = sorted(outcome.response_s for outcome in counted)
    starts = sorted(outcome.wait_s for outcome in counted)
    slowdowns = [o.response_s / a for o, a in zip(counted, alone[skip:], strict=True) if a > 0]
    return Figures(
        **_quantiles("", results),
        mean_s=statistics.fmean(results),
        mean_slowdown=statistics.fmean(slowdowns) if slowdowns else math.nan,
        **_quantiles("start_", starts),
        throughput=throughput,
    )


def _quantiles(of: str, ordered: Sequence[float]) -> dict[str, float]:
    parts = {"p25_s": 0.25, "p50_s": 0.5, "p90_s": 0.9, "p99_s": 0.99, "max_s": 1.0}
    return {of + name: quantile(ordered, part) for name, part in parts.items()}


def middle(runs: Sequence[Figures]) -> Figures:
    """The median of each figure over several runs."""
    return Figures(*(statistics.median(getattr(r, f.name) for r in runs) for f in fields(Figures)))


def change(ours: float, theirs: float) -> float | None:
    """`ours` against `theirs` as a part: -0.6 is 60 % less. None where there is nothing to compare.

    >>> change(4.0, 10.0)
    -0.6
    """
    return round(ours / theirs - 1, 4) if theirs > 0 else None
