"""How fast an engine serves, out of a run's own windows: what each needs alone, and how they share.

    pace(n) = 1 / (1 + k (n - 1))       speed of each of n windows in the engine at once
    x = integral of pace(n(t)) dt       over a window's stay: slot seconds it needs alone
    x ~ a + b * seconds of speech       and k is the one for which this line fits best

k = 0: independent servers; k = 1: one server shared evenly. Windows heard one by one as well as
many at once must be among those given, or k cannot be told.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.picks import Begun

SHARING = np.linspace(0.0, 1.0, 101)
"""Values of k that are tried."""


@dataclass(frozen=True)
class Fit:
    """An engine as the simulator takes it."""

    sharing: float
    """k."""
    fixed_s: float
    """a."""
    per_second_s: float
    """b."""
    r2: float
    """Share of the variance of x which the line explains."""
    alone_s: Mapping[tuple[str, int], float]
    """x of each window, by (job, unit)."""

    def pace(self, windows: int) -> float:
        """Speed of each of `windows` (>= 1) windows, 1 for one alone."""
        return 1.0 / (1.0 + self.sharing * (windows - 1))


def fit(windows: Sequence[Begun], lengths_s: Mapping[tuple[str, int], float]) -> Fit:
    """Fit `windows`, all that an engine heard in a stretch of time; `lengths_s`: speech in each."""
    lengths = np.array([lengths_s[w.job_id, w.unit] for w in windows])
    best: tuple[float, float, np.ndarray, np.ndarray] | None = None
    for sharing in SHARING:
        alone = _alone(windows, float(sharing))
        line = np.polyfit(lengths, alone, 1)
        # relative to their size: a large k makes all x small, and residuals with them
        error = float(np.std(alone - np.polyval(line, lengths)) / np.mean(alone))
        if best is None or error < best[0]:
            best = error, float(sharing), alone, line
    assert best is not None
    _, sharing, alone, (per_second_s, fixed_s) = best
    rest = alone - (fixed_s + per_second_s * lengths)
    spread = float(np.var(alone))
    return Fit(
        sharing=sharing,
        fixed_s=float(fixed_s),
        per_second_s=float(per_second_s),
        r2=1.0 - float(np.var(rest)) / spread if spread else 1.0,
        alone_s={(w.job_id, w.unit): float(x) for w, x in zip(windows, alone, strict=True)},
    )


def _alone(windows: Sequence[Begun], sharing: float) -> np.ndarray:
    """Slot seconds alone, for this k."""
    changes = sorted([(w.began_s, 1) for w in windows] + [(w.ended_s, -1) for w in windows])
    moments, clock = [changes[0][0]], [0.0]
    inside = 0
    for at_s, by in changes:
        pace = 1.0 / (1.0 + sharing * (inside - 1)) if inside else 0.0
        clock.append(clock[-1] + pace * (at_s - moments[-1]))
        moments.append(at_s)
        inside += by

    def reading(at_s: float) -> float:
        return clock[bisect_right(moments, at_s) - 1]

    return np.array([reading(w.ended_s) - reading(w.began_s) for w in windows])
