"""How far forecasts can be trusted: the factors that make a P50 and a P90 of queue arithmetic.

    p50 = raw * q50        p90 = raw * q90        q = quantiles of truth / raw of earlier forecasts

of the same kind (where the job stood) and horizon (how large raw was). Split conformal prediction:
if a forecast and the n before it are exchangeable, its truth stays below the k-th smallest of
their ratios, k = ceil(part * (n + 1)), with probability `part` or more, whatever the arithmetic's
faults. (Vovk, Gammerman, Shafer: Algorithmic Learning in a Random World, 2005.)

Forecasts are not quite exchangeable: load and speed change. So only the newest ratios are kept, and
where there are few, others stand in with little weight: those of the same kind at other horizons,
and a shipped distribution, which is also what a fresh installation begins with.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

HORIZONS_S = (2.0, 10.0, 60.0, 600.0)
"""Where a horizon ends and the next begins, seconds of raw forecast."""
CENTRES_S = (1.0, 4.5, 25.0, 190.0, 1900.0)
"""In the middle of each horizon (on a logarithmic scale) its own factors hold; between two
middles they pass into each other, so that who goes later is not foretold to end earlier."""

RAW_LEAST_S = 0.1
"""Below this a forecast says "now": a ratio to it would say nothing."""

KEPT = 200
"""So many of the newest ratios of a kind and horizon count."""
KIND_WEIGHT, SHIPPED_WEIGHT = 10.0, 10.0
"""All ratios of other horizons together, and the shipped distribution, weigh as so many ratios."""

SHIPPED: Mapping[str, Sequence[float]] = {
    "probed": (0.60, 0.68, 0.78, 0.86, 0.92, 0.97, 1.04, 1.15, 1.33, 1.70),
    "surveying": (0.66, 0.76, 0.84, 0.91, 0.97, 1.01, 1.07, 1.15, 1.28, 1.55),
    "surveyed": (0.70, 0.80, 0.86, 0.91, 0.96, 1.01, 1.07, 1.15, 1.30, 1.60),
    "running": (0.45, 0.62, 0.76, 0.88, 1.00, 1.08, 1.18, 1.32, 1.55, 2.00),
}
"""Quantiles of truth / raw by kind, 5, 15, ..., 95 %, about as `python -m bench.eta` found them on
both its lines."""


def horizon(raw_s: float) -> int:
    """0 for what is foretold in seconds, up to len(HORIZONS_S).

    >>> horizon(1.9), horizon(2.0), horizon(9000.0)
    (0, 1, 4)
    """
    return bisect_right(HORIZONS_S, raw_s)


def ratio(truth_s: float, raw_s: float) -> float:
    """Truth over what was foretold.

    >>> ratio(3.0, 2.0), ratio(0.05, 0.0)
    (1.5, 0.5)
    """
    return truth_s / max(raw_s, RAW_LEAST_S)


def conformal(weighted: Iterable[tuple[float, float]], part: float) -> float:
    """The smallest of some (ratio, weight) with `part` of all weight, and of one more, below it.

    The one more is the ratio to come, which may be anything. Falls back on the largest.

    >>> conformal([(r, 1.0) for r in range(1, 10)], 0.9), conformal([(1.0, 1.0)], 0.9)
    (9, 1.0)
    """
    ordered = sorted(weighted)
    wanted = part * (1.0 + sum(weight for _, weight in ordered))
    reached = 0.0
    for found, weight in ordered:
        reached += weight
        if reached >= wanted - 1e-9:
            return found
    return ordered[-1][0]


class Calibration:
    """What was learned, as factors. `ratios`: by kind and horizon."""

    def __init__(self, ratios: Mapping[tuple[str, int], Sequence[float]]) -> None:
        self._factors = {
            kind: [_factors(kind, at, ratios) for at in range(len(CENTRES_S))] for kind in SHIPPED
        }

    def told(self, kind: str, raw_s: float) -> tuple[float, float]:
        """(P50, P90), seconds, of a job foretold `raw_s` by queue arithmetic."""
        raw_s = max(raw_s, RAW_LEAST_S)
        p50, p90 = self._at(kind, raw_s)
        return raw_s * p50, raw_s * max(p50, p90)

    def _at(self, kind: str, raw_s: float) -> tuple[float, float]:
        factors = self._factors[kind]
        if raw_s <= CENTRES_S[0]:
            return factors[0]
        for n, (low_s, high_s) in enumerate(pairwise(CENTRES_S)):
            if raw_s <= high_s:
                along = math.log(raw_s / low_s) / math.log(high_s / low_s)
                low, high = factors[n], factors[n + 1]
                return low[0] + along * (high[0] - low[0]), low[1] + along * (high[1] - low[1])
        return factors[-1]


def _factors(
    kind: str, at: int, ratios: Mapping[tuple[str, int], Sequence[float]]
) -> tuple[float, float]:
    own = ratios.get((kind, at), ())[:KEPT]
    others = [r for (k, h), found in ratios.items() if k == kind and h != at for r in found[:KEPT]]
    pool = [(r, 1.0) for r in own]
    pool += [(r, min(1.0, KIND_WEIGHT / len(others))) for r in others]
    pool += [(r, SHIPPED_WEIGHT / len(SHIPPED[kind])) for r in SHIPPED[kind]]
    return conformal(pool, 0.5), conformal(pool, 0.9)
