"""The work model of an engine, learned from what finished jobs took.

    busy = a + b * windows + c * tokens + noise        tokens = kappa(language) * speech

In: finished jobs, each with its engine busy time (see workers/occupied.py). Out: a `WorkModel` in
that engine's seconds. a, b and c are never negative. A few odd jobs (a machine that was suspended,
a window that looped) do not bend it, and ten jobs do not make nonsense: it starts from the
reference, made as fast as the engine, and data moves it as far as there is data.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from pipeline.scheduling.work import KAPPA_DEFAULT, REFERENCE, WorkModel

PRIOR_JOBS = 5
"""The reference weighs as much as so many finished jobs, for each coefficient."""

HUBER_K, TUKEY_C = 1.345, 4.685
"""Beyond so many standard deviations a residual loses weight, and all of it: each 95 % efficient on
normal noise (Huber, Robust Statistics, 1981; Maronna, Martin, Yohai, Robust Statistics, 2006)."""
MAD_TO_SIGMA = 1.4826
"""Standard deviation over median absolute deviation, of normal noise."""
ROUNDS = 30
"""Reweightings at most, of either kind; a handful is enough."""
SETTLED = 1e-6
"""Reweighting ends when no coefficient moves by more than this part of the prior's."""

MEANT = (1e-9, 1e10)
"""Seconds, windows and tokens of a job are not less and not more."""

NOTICEABLE = 0.02
"""A model that foretells typical jobs this much differently, as a share, is worth writing down."""
TYPICAL = ((8.0, 1), (60.0, 3), (240.0, 10), (1800.0, 70))
"""Those jobs: (seconds of speech, windows)."""


@dataclass(frozen=True)
class Done:
    """What one finished job took."""

    language: str
    """As it was heard."""
    speech_s: float
    windows: int
    tokens: int
    """Decoded, over all windows and tries."""
    busy_s: float
    """Its fair share of the engine's time, seconds; more than 0."""
    predicted_s: float = 0.0
    """What was foretold, by the model in force when it ended, seconds."""


def learn(done: Sequence[Done], reference: WorkModel = REFERENCE) -> WorkModel | None:
    """The work model of the engine that did `done`; None where nothing of it took time.

    Iteratively reweighted least squares: Huber's weights, which find the way from anywhere, then
    Tukey's biweight, for odd jobs are nearly all slow ones and would bend Huber's a little. Noise
    is taken to grow with the root of the work, as a sum of independent windows has it, so neither
    the longest job nor the shortest rules alone. The prior is `reference` times the median of busy
    over foretold time; each coefficient is drawn to it by the weight of `PRIOR_JOBS` of these jobs.
    kappa is, by language, the median of tokens over speech, drawn to the reference likewise.
    """
    done = [d for d in done if is_meant(d.busy_s, d.speech_s, d.windows, d.tokens)]
    if not done:
        return None
    busy = [d.busy_s for d in done]
    unit = [_terms(reference, d) for d in done]
    speed = statistics.median(y / sum(row) for y, row in zip(busy, unit, strict=True))
    prior = [[speed * x for x in row] for row in unit]
    factors = _factors(prior, busy)
    a, b, c = factors
    return WorkModel(
        job_s=a * speed * reference.job_s,
        window_s=b * speed * reference.window_s,
        token_s=c * speed * reference.token_s,
        kappa=_kappa(done, reference.kappa),
        jobs=len(done),
        r2=r2(busy, [_dot(row, factors) for row in prior]),
    )


def _terms(model: WorkModel, d: Done) -> tuple[float, float, float]:
    """What a job costs by `model`: for itself, its windows, its tokens."""
    return model.job_s, model.window_s * d.windows, model.token_s * d.tokens


def is_meant(*numbers: float) -> bool:
    """Whether a job can be of so many: no nan, and nothing whose square leaves a double's range.

    One other row would keep its model, and all after it, from being learned for thousands of jobs.
    """
    return all(MEANT[0] <= number <= MEANT[1] for number in numbers)


def differs(new: WorkModel, old: WorkModel | None) -> bool:
    """Whether `new` foretells typical jobs noticeably differently, in any language it knows."""
    if old is None:
        return True
    for language in (*new.kappa, None):
        for speech_s, windows in TYPICAL:
            was_s = old.predicted_s(speech_s, windows, language)
            change_s = new.predicted_s(speech_s, windows, language) - was_s
            if abs(change_s) > NOTICEABLE * was_s:
                return True
    return False


def r2(truth: Sequence[float], told: Sequence[float]) -> float | None:
    """Share of the variance of `truth` that `told` explains: 1 is all, 0 no more than the mean
    does, below 0 less than that. None with fewer than two different truths.

    >>> r2([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]), r2([1.0, 2.0, 3.0], [2.0, 2.0, 2.0]), r2([1.0], [1.0])
    (1.0, 0.0, None)
    """
    if len(truth) < 2:
        return None
    mean = statistics.fmean(truth)
    total = sum((y - mean) ** 2 for y in truth)
    if total <= 0:
        return None
    return 1 - sum((y - t) ** 2 for y, t in zip(truth, told, strict=True)) / total


# -- the fit --------------------------------------------------------------------------------


def _factors(prior: Sequence[Sequence[float]], busy: Sequence[float]) -> list[float]:
    """What to multiply each coefficient of the prior by, given its three terms for every job."""
    scale = [sum(row) ** -0.5 for row in prior]
    rows = [[s * x for x in row] for s, row in zip(scale, prior, strict=True)]
    aims = [s * y for s, y in zip(scale, busy, strict=True)]
    factors = [1.0, 1.0, 1.0]
    for weigh in (_huber, _biweight):
        for _ in range(ROUNDS):
            off = [abs(y - _dot(row, factors)) for row, y in zip(rows, aims, strict=True)]
            # by the median, which odd jobs do not inflate; not 0, though all fit but a few
            sigma = max(MAD_TO_SIGMA * statistics.median(off), 1e-6 * statistics.median(aims))
            moved = _weighted(rows, aims, [weigh(r / sigma) for r in off])
            change = max(abs(m - f) for m, f in zip(moved, factors, strict=True))
            factors = moved
            if change < SETTLED:
                break
    return factors


def _huber(off: float) -> float:
    """The weight of a job so many standard deviations off, 0..1."""
    return 1.0 if off <= HUBER_K else HUBER_K / off


def _biweight(off: float) -> float:
    """The same, 0 from `TUKEY_C` on."""
    return (1 - (off / TUKEY_C) ** 2) ** 2 if off < TUKEY_C else 0.0


def _weighted(
    rows: Sequence[Sequence[float]], aims: Sequence[float], weights: Sequence[float]
) -> list[float]:
    """Weighted least squares with no factor below 0, each drawn to 1 by `PRIOR_JOBS` jobs."""
    normal = [[0.0] * 3 for _ in range(3)]
    aim = [0.0] * 3
    for row, y, w in zip(rows, aims, weights, strict=True):
        for i in range(3):
            aim[i] += w * row[i] * y
            for j in range(3):
                normal[i][j] += w * row[i] * row[j]
    for i in range(3):
        # over the weights' sum, so that jobs of no weight do not strengthen the prior either
        drawn = normal[i][i] * PRIOR_JOBS / max(1e-9, sum(weights))
        normal[i][i] += drawn
        aim[i] += drawn
    return _not_negative(normal, aim)


def _not_negative(normal: list[list[float]], aim: list[float]) -> list[float]:
    """The x >= 0 that makes x'Nx/2 - aim'x least. N is positive definite and small: of all ways to
    hold some x at 0, the best one that is allowed.
    """
    best, least = [0.0] * len(aim), 0.0
    for size in range(1, len(aim) + 1):
        for free in combinations(range(len(aim)), size):
            part = _solve([[normal[i][j] for j in free] for i in free], [aim[i] for i in free])
            if any(x < 0 for x in part):
                continue
            # at the minimum x'Nx = aim'x, so what is minimised is -aim'x / 2
            value = -sum(aim[i] * x for i, x in zip(free, part, strict=True))
            if value < least:
                least = value
                best = [dict(zip(free, part, strict=True)).get(i, 0.0) for i in range(len(aim))]
    return best


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gaussian elimination with pivoting, for a few unknowns."""
    rows = [[*row, y] for row, y in zip(matrix, right, strict=True)]
    n = len(rows)
    for i in range(n):
        pivot = max(range(i, n), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(i + 1, n):
            ratio = rows[k][i] / rows[i][i]
            rows[k] = [x - ratio * y for x, y in zip(rows[k], rows[i], strict=True)]
    solved = [0.0] * n
    for i in reversed(range(n)):
        known = sum(rows[i][j] * solved[j] for j in range(i + 1, n))
        solved[i] = (rows[i][n] - known) / rows[i][i]
    return solved


def _dot(row: Sequence[float], factors: Sequence[float]) -> float:
    return sum(x * f for x, f in zip(row, factors, strict=True))


# -- tokens a second of speech --------------------------------------------------------------


def _kappa(done: Sequence[Done], published: Mapping[str, float]) -> dict[str, float]:
    ratios: dict[str, list[float]] = defaultdict(list)
    for d in done:
        ratios[d.language].append(d.tokens / d.speech_s)
    return dict(published) | {
        language: _drawn(found, published.get(language, KAPPA_DEFAULT))
        for language, found in ratios.items()
    }


def _drawn(found: Sequence[float], prior: float) -> float:
    weight = len(found) / (len(found) + PRIOR_JOBS)
    return weight * statistics.median(found) + (1 - weight) * prior
