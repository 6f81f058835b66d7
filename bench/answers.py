"""Forecasts of jobs, asked for again and again while they go through the line, and how each ended.

In: ways to submit jobs, and a way to ask for a forecast. Out: a `Run`, whose `verdict` says how far
the answers were from the truth.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text

from pipeline.parts import Parts
from pipeline.steps.forecast.told import Times
from pipeline.store.session import transaction

ASKED = 8
"""Forecasts asked for at each look: enough, and not so many that asking is the load."""
TRUTH_LEAST_S = 0.1
"""A job that ends sooner is no question any more."""

Ask = Callable[[str], Times | None]
"""A job's id -> its forecast."""


@dataclass(frozen=True)
class Sample:
    """One answer."""

    job_id: str
    at_s: float
    """Postgres time."""
    times: Times | None
    state: str
    """Where the job stood."""


@dataclass
class Run:
    """One load: what was asked, and when each job ended."""

    samples: list[Sample] = field(default_factory=list)
    ends_s: dict[str, float] = field(default_factory=dict)

    def told(self, *states: str) -> list[tuple[Times, float]]:
        """(what was said, the truth) of all forecasts, or only of jobs in some states."""
        return [
            (sample.times, truth_s)
            for sample in self.samples
            if sample.times is not None
            and (not states or sample.state in states)
            and (truth_s := self.ends_s[sample.job_id] - sample.at_s) > TRUTH_LEAST_S
        ]

    def errors(self, *states: str) -> list[float]:
        """Relative errors of P50s."""
        return [abs(times.p50_s - truth_s) / truth_s for times, truth_s in self.told(*states)]

    def held(self, *states: str) -> float:
        """Part of the forecasts whose job ended before its P90."""
        told = self.told(*states)
        return sum(truth_s <= times.p90_s for times, truth_s in told) / max(1, len(told))

    def states(self) -> list[str]:
        """Where jobs stood when they were asked for."""
        return sorted({sample.state for sample in self.samples if sample.times is not None})

    def verdict(self) -> dict[str, Any]:
        """All figures."""
        errors = self.errors()
        return {
            "jobs": len(self.ends_s),
            "forecasts": len(errors),
            "without_eta": sum(sample.times is None for sample in self.samples),
            "median_error": round(statistics.median(errors), 3),
            "p90_error": round(statistics.quantiles(errors, n=10)[8], 3),
            "before_p90": round(self.held(), 3),
            "median_eta_over_truth": _median(t.p50_s / truth_s for t, truth_s in self.told()),
            "median_p90_over_p50": _median(t.p90_s / t.p50_s for t, _ in self.told() if t.p50_s),
            "by_state": {
                state: {
                    "forecasts": len(self.told(state)),
                    "median_error": _median(self.errors(state)),
                    "before_p90": round(self.held(state), 3),
                }
                for state in self.states()
            },
        }


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return round(statistics.median(found), 3) if found else None


def measure(
    parts: Parts,
    submits: list[Callable[[], str]],
    pause_s: Callable[[], float],
    ask: Ask,
    *,
    burst: int,
    every_s: float,
    seed: int = 1,
) -> Run:
    """Submit `burst` jobs at once and the others `pause_s()` apart; ask every `every_s` seconds."""
    run, rng = Run(), random.Random(seed)
    mine: set[str] = set()
    due_s = asked_s = time.monotonic()
    while True:
        now_s = time.monotonic()
        while submits and (len(mine) < burst or now_s >= due_s):
            mine.add(submits.pop(0)())
            due_s = now_s + pause_s() if len(mine) >= burst else now_s
        if now_s >= asked_s:
            asked_s = now_s + every_s
            live = _note_ends(parts, mine, run)
            for job_id, state, db_s, read_s in rng.sample(live, min(ASKED, len(live))):
                answer, at_s = ask(job_id), db_s + time.monotonic() - read_s
                run.samples.append(Sample(job_id, at_s, answer, state))
            if not submits and not live:
                break
        time.sleep(0.01)
    run.samples = [sample for sample in run.samples if sample.job_id in run.ends_s]
    return run


def _note_ends(parts: Parts, mine: set[str], run: Run) -> list[tuple[str, str, float, float]]:
    """(id, state, Postgres' time, ours) of each job that has not ended."""
    query = "SELECT id, state, extract(epoch FROM completed_at) AS ended, "
    query += "extract(epoch FROM clock_timestamp()) AS now FROM jobs"
    with transaction(parts.store) as c:
        rows = [row for row in c.execute(text(query)) if str(row.id) in mine]
    read_s = time.monotonic()
    run.ends_s |= {str(row.id): float(row.ended) for row in rows if row.ended is not None}
    return [(str(r.id), r.state, float(r.now), read_s) for r in rows if r.ended is None]
