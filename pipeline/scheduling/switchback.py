"""Two orders of work tried in turn on live work: which blocks, what they show, what follows.

Time is cut into blocks of one policy each, in pairs of one A and one B whose order is drawn. Jobs
count for the block they arrived in, but for the first part of it, the wash-out, in which the
backlog of the block before is still worked off. A job that has not ended counts with its age: who
leaves out the unended makes the policy look good that lets long jobs wait.

The pair is the unit of the statistics, not the job: jobs of one block share its backlog, and a
thousand of them say little more than ten. Of each side the quantiles of its pooled jobs are
compared; pairs are drawn anew with replacement (bootstrap) for the standard error of the logarithm
of the ratio B / A, and with Student's t for so few pairs

    interval = ratio * exp(-+ t(pairs - 1) * sqrt(pairs / (pairs - 1)) * error)

LEVEL is the chance to send back, or to keep, a B that is no different, over all looks and both
quantiles that decide, P50 and P95: each single one gets its part of it (Bonferroni). What a block
leaves to the next one after the wash-out makes A and B look more alike than they are.
"""

from __future__ import annotations

import bisect
import itertools
import math
import operator
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

A, B = "A", "B"

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
DECIDING = ("p50", "p95")
"""P99 of so few jobs is noise: it is only looked at for harm, before a better B is kept."""

LEVEL = 0.05
WASH_OUT = 0.25
"""Part of a block that does not count."""

PAIRS_LEAST = 3
"""Before so many pairs nothing is decided."""
JOBS_LEAST = 20
"""Of each side; with fewer nothing is decided."""

MARGIN = 0.1
"""A ratio within 10 % of 1 harms nobody: B is sent back when it is worse by more for certain, and
kept only when its P99 is not worse by more, as far as can be seen."""

DRAWS = 200
"""Bootstrap samples."""
THINNED = 500
"""Values of a block that are kept, evenly over its order: enough for its P99."""


class Verdict(StrEnum):
    """What the comparison says of B."""

    WORSE = "worse"
    BETTER = "better"
    OPEN = "open"


@dataclass(frozen=True)
class Block:
    """What one block showed."""

    side: str
    """A or B."""
    responses_s: Sequence[float]
    """Seconds from arrival to result, or until now, of the jobs that count."""


@dataclass(frozen=True)
class Ratio:
    """One quantile of both sides."""

    a_s: float
    b_s: float
    ratio: float
    """B / A: below 1, B is better."""
    low: float
    high: float
    """Its interval."""


@dataclass(frozen=True)
class Comparison:
    """B against A as far as it goes."""

    pairs: int
    jobs_a: int
    jobs_b: int
    quantiles: dict[str, Ratio]
    """By the names of QUANTILES; empty while there are too few jobs or pairs."""


def sides(blocks: int, seed: int) -> tuple[str, ...]:
    """The side of each of `blocks` (even) blocks: pairs of A and B, in an order drawn by `seed`.

    >>> sides(6, 1)
    ('A', 'B', 'B', 'A', 'B', 'A')
    """
    if blocks < 2 or blocks % 2:
        raise ValueError(f"blocks come in pairs, not {blocks}")
    draw = random.Random(seed)
    return tuple(
        side for _ in range(blocks // 2) for side in ((A, B) if draw.random() < 0.5 else (B, A))
    )


def block_of(offset_s: float, block_s: float) -> int | None:
    """The block a job that arrived `offset_s` after the start counts for; None: in a wash-out.

    >>> block_of(1.0, 10.0), block_of(2.5, 10.0), block_of(19.9, 10.0)
    (None, 0, 1)
    """
    block, inside = divmod(offset_s, block_s)
    return None if inside < WASH_OUT * block_s else int(block)


def compare(blocks: Sequence[Block], all_pairs: int, seed: int = 0) -> Comparison:
    """What `blocks`, in their order, show; the last is left out when its pair is not complete.

    `all_pairs`: how many pairs there will be, for the number of looks. `seed`: of the bootstrap.
    """
    pairs = len(blocks) // 2
    a = [_side(blocks[2 * n : 2 * n + 2], A) for n in range(pairs)]
    b = [_side(blocks[2 * n : 2 * n + 2], B) for n in range(pairs)]
    jobs_a, jobs_b = (sum(map(len, side)) for side in (a, b))
    quantiles = {}
    if pairs >= 2 and min(jobs_a, jobs_b) >= JOBS_LEAST:
        found = _bootstrap(_Pool(a), _Pool(b), pairs, random.Random(seed))
        looks = max(1, all_pairs - PAIRS_LEAST + 1)
        level = LEVEL / looks / len(DECIDING)
        for name, (a_s, b_s, error) in found.items():
            reach = student(1 - level, pairs - 1) * math.sqrt(pairs / (pairs - 1)) * error
            ratio = b_s / a_s
            # a spread that is beyond all numbers says nothing
            factor = math.exp(min(700.0, reach))
            quantiles[name] = Ratio(a_s, b_s, ratio, ratio / factor, ratio * factor)
    return Comparison(pairs, jobs_a, jobs_b, quantiles)


def verdict(seen: Comparison) -> Verdict:
    """Whether B is worse for certain, by more than MARGIN; or better for certain, and harmless."""
    if seen.pairs < PAIRS_LEAST or not seen.quantiles:
        return Verdict.OPEN
    deciding = [seen.quantiles[name] for name in DECIDING]
    if any(ratio.low > 1 + MARGIN for ratio in deciding):
        return Verdict.WORSE
    better = any(ratio.high < 1 for ratio in deciding)
    harm = max(ratio.ratio for ratio in seen.quantiles.values()) > 1 + MARGIN
    return Verdict.BETTER if better and not harm else Verdict.OPEN


def in_words(seen: Comparison) -> str:
    """The comparison in one sentence.

    >>> in_words(Comparison(3, 50, 60, {"p50": Ratio(10.0, 5.0, 0.5, 0.4, 0.6)}))
    'after 3 pairs of blocks, 50 and 60 jobs: P50 5.0 s against 10.0 s, ratio 0.50 (0.40 to 0.60)'
    """
    told = [
        f"{name.upper()} {r.b_s:.1f} s against {r.a_s:.1f} s, ratio {r.ratio:.2f} "
        f"({r.low:.2f} to {r.high:.2f})"
        for name, r in seen.quantiles.items()
    ]
    few = "too few to compare"
    jobs = f"{seen.jobs_a} and {seen.jobs_b} jobs"
    return f"after {seen.pairs} pairs of blocks, {jobs}: {', '.join(told) or few}"


# -- arithmetic -----------------------------------------------------------------------------


def student(p: float, freedom: int) -> float:
    """Student's t quantile of `p` (0.5..1) with `freedom` >= 1 degrees of freedom.

    Exact for 1 and 2, else Hill's approximation (Algorithm 396, CACM 13, 1970).

    >>> [round(student(0.975, n), 2) for n in (1, 2, 3, 5, 10, 100)]
    [12.71, 4.3, 3.18, 2.57, 2.23, 1.98]
    """
    tail = 2 * (1 - p)
    if freedom == 1:
        return 1 / math.tan(tail * math.pi / 2)
    if freedom == 2:
        return math.sqrt(2 / (tail * (2 - tail)) - 2)
    n = freedom
    a = 1 / (n - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * n
    y = (d * tail) ** (2 / n)
    if y > a + 0.05:
        x = statistics.NormalDist().inv_cdf(tail / 2)
        y = x * x
        if n < 5:
            c += 0.3 * (n - 4.5) * (x + 0.6)
        c += (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y * y)
    else:
        y = (
            (1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1
        ) * (n + 1) / (n + 2) + 1 / y
    return math.sqrt(n * y)


class _Pool:
    """The jobs of one side, sorted once, each with its pair and how many jobs it stands for."""

    def __init__(self, by_pair: Sequence[Sequence[float]]) -> None:
        rows = sorted(
            (value, pair, weight)
            for pair, values in enumerate(by_pair)
            for value, weight in _thinned(values)
        )
        self._values = [max(1e-3, value) for value, _, _ in rows]
        self._pairs, self._weights = [row[1] for row in rows], [row[2] for row in rows]

    def quantiles(self, drawn: Sequence[int]) -> list[float]:
        """QUANTILES with each pair taken as often as `drawn` says; empty: nothing was drawn."""
        taken = map(drawn.__getitem__, self._pairs)
        passed = list(itertools.accumulate(map(operator.mul, self._weights, taken)))
        if not passed or not passed[-1]:
            return []
        wanted = [part * passed[-1] * (1 - 1e-12) for part in QUANTILES.values()]
        return [self._values[bisect.bisect_left(passed, weight)] for weight in wanted]


def _side(pair: Sequence[Block], side: str) -> list[float]:
    return [value for block in pair if block.side == side for value in block.responses_s]


def _thinned(values: Sequence[float]) -> list[tuple[float, float]]:
    ordered = sorted(values)
    if len(ordered) <= THINNED:
        return [(value, 1.0) for value in ordered]
    step = len(ordered) / THINNED
    return [(ordered[int((n + 0.5) * step)], step) for n in range(THINNED)]


def _bootstrap(
    a: _Pool, b: _Pool, pairs: int, draw: random.Random
) -> dict[str, tuple[float, float, float]]:
    """{quantile: (of A, of B, standard error of the logarithm of B / A)}."""
    plain_a, plain_b = a.quantiles([1] * pairs), b.quantiles([1] * pairs)
    logs: list[list[float]] = [[] for _ in QUANTILES]
    for _ in range(DRAWS):
        drawn = [0] * pairs
        for _ in range(pairs):
            drawn[draw.randrange(pairs)] += 1
        for log, qa, qb in zip(logs, a.quantiles(drawn), b.quantiles(drawn), strict=False):
            log.append(math.log(qb / qa))
    errors = [statistics.stdev(log) if len(log) > 1 else math.inf for log in logs]
    return {
        name: (qa, qb, error)
        for name, qa, qb, error in zip(QUANTILES, plain_a, plain_b, errors, strict=True)
    }
