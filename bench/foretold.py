"""What recordings took of an engine, and how much of that is foretold: the figures of predict.py.

Times are shares of the engine's busy time unless said otherwise. What each figure and each way of
foretelling is stands at the top of predict.py.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.demo import word_error_rate
from pipeline.engine import Heard
from pipeline.recording import Plan
from pipeline.scheduling.learning import Done, learn, r2
from pipeline.scheduling.work import REFERENCE

ENOUGH = 10
"""Recordings of a language from which on its R^2 says something."""

Fit = Callable[[Sequence[Done]], Callable[[Done], float] | None]


@dataclass
class Job:
    """One recording and its windows."""

    name: str
    language: str
    words: str | None
    """As spoken; None where they do not matter here."""
    plan: Plan
    pcm: list[bytes]
    """Of each window."""


@dataclass
class Took:
    """What one window took."""

    job: int
    index: int
    speech_s: float
    heard: Heard
    began_s: float
    """Handed over, monotonic."""
    ended_s: float


@dataclass
class Run:
    """All windows once."""

    took: list[Took] = field(default_factory=list)
    foreign: float = 0.0
    """Share of the machine used by others meanwhile."""
    wall_s: float = 0.0
    """From the first hand-over to the last answer."""


Measure = Callable[[Sequence[Took]], float]
"""Seconds, of some windows of a recording."""


def summary(jobs: list[Job], runs: dict[str, Run]) -> dict[str, Any]:
    """The report, but for the model's name."""
    by_share = {kind: rows_of(jobs, run) for kind, run in runs.items()}
    learned = {kind: learn(rows) for kind, rows in by_share.items()}
    return {
        "recordings": len(jobs),
        "windows": sum(len(job.pcm) for job in jobs),
        "speech_s": round(sum(job.plan.speech_s for job in jobs), 1),
        "wer": {kind: round(wer(jobs, run), 4) for kind, run in runs.items()},
        "foreign": {kind: run.foreign for kind, run in runs.items()},
        "busy_s": {kind: round(sum(t.heard.busy_s for t in r.took), 2) for kind, r in runs.items()},
        "wall_s": {kind: round(run.wall_s, 2) for kind, run in runs.items()},
        "r2": {
            "recordings": _table(
                by_share
                | {
                    "shared, elapsed": rows_of(jobs, runs["shared"], elapsed),
                    "shared, passed": rows_of(jobs, runs["shared"], passed),
                }
            ),
            "windows": _table(
                {kind: windows_of(jobs, run) for kind, run in runs.items()}
                | {"shared, elapsed": windows_of(jobs, runs["shared"], elapsed)}
            ),
        },
        "learned": {kind: asdict(model) if model else None for kind, model in learned.items()},
        "languages": languages(by_share),
    }


def share(took: Sequence[Took]) -> float:
    """Of the engine's busy time, for some windows of a recording, seconds."""
    return sum(t.heard.busy_s for t in took)


def elapsed(took: Sequence[Took]) -> float:
    """From hand-over to answer, summed, seconds."""
    return sum(t.ended_s - t.began_s for t in took)


def passed(took: Sequence[Took]) -> float:
    """From the first hand-over to the last answer, seconds."""
    return max(t.ended_s for t in took) - min(t.began_s for t in took)


def rows_of(jobs: list[Job], run: Run, measure: Measure = share) -> list[Done]:
    """What each recording took."""
    rows = []
    for n, job in enumerate(jobs):
        if own := [took for took in run.took if took.job == n]:
            tokens = sum(t.heard.tokens for t in own)
            rows.append(Done(job.language, job.plan.speech_s, len(own), tokens, measure(own)))
    return rows


def windows_of(jobs: list[Job], run: Run, measure: Measure = share) -> list[Done]:
    """What each window took, as if it were a recording."""
    return [
        Done(jobs[t.job].language, t.speech_s, 1, t.heard.tokens, measure([t]))
        for t in sorted(run.took, key=lambda t: (t.job, t.index))
    ]


def _table(targets: dict[str, list[Done]]) -> dict[str, Any]:
    return {
        target if "," in target else f"{target}, share": {
            name: crossed(rows, fit) for name, fit in FITS.items()
        }
        for target, rows in targets.items()
    }


def crossed(rows: Sequence[Done], fit: Fit) -> float | None:
    """R^2 of what `fit` foretells of each half, having seen the other; None for too few."""
    halves = rows[::2], rows[1::2]
    truth: list[float] = []
    foretold: list[float] = []
    for seen, unseen in (halves, halves[::-1]):
        foretell = fit(seen) if len(seen) > 1 else None
        if foretell is None:
            return None
        truth += [row.busy_s for row in unseen]
        foretold += [foretell(row) for row in unseen]
    explained = r2(truth, foretold)
    return None if explained is None else round(explained, 3)


def by_speech(seen: Sequence[Done]) -> Callable[[Done], float] | None:
    """A straight line through seconds of speech."""
    try:
        slope, start = statistics.linear_regression(
            [row.speech_s for row in seen], [row.busy_s for row in seen]
        )
    except statistics.StatisticsError:  # all of one length
        return None
    return lambda row: slope * row.speech_s + start


def by_reference(seen: Sequence[Done]) -> Callable[[Done], float]:
    """The model of buckets at this engine's speed."""

    def work_s(row: Done) -> float:
        return REFERENCE.predicted_s(row.speech_s, row.windows, row.language)

    speed = statistics.median(row.busy_s / work_s(row) for row in seen)
    return lambda row: speed * work_s(row)


def by_learned(seen: Sequence[Done]) -> Callable[[Done], float] | None:
    """The model as learned."""
    model = learn(seen)
    return model and (lambda row: model.predicted_s(row.speech_s, row.windows, row.language))


def by_hindsight(seen: Sequence[Done]) -> Callable[[Done], float] | None:
    """The model as learned, told the tokens."""
    model = learn(seen)
    return model and (
        lambda row: model.job_s + model.window_s * row.windows + model.token_s * row.tokens
    )


FITS: dict[str, Fit] = {
    "speech": by_speech,
    "reference": by_reference,
    "learned": by_learned,
    "hindsight": by_hindsight,
}


def wer(jobs: list[Job], run: Run) -> float:
    """Word errors of the recordings whose words are known: proof that they were heard."""
    known = {str(n): job.words for n, job in enumerate(jobs) if job.words is not None}
    heard: dict[str, str] = {}
    for n in known:
        own = sorted((t for t in run.took if t.job == int(n)), key=lambda t: t.index)
        heard[n] = " ".join(took.heard.text for took in own)
    return word_error_rate(known, heard)


def languages(by_share: dict[str, list[Done]]) -> dict[str, Any]:
    """By language: recordings, tokens a second of speech (median), R^2 of the learned model; why
    there is none.
    """
    found: dict[str, Any] = {}
    for language in sorted({row.language for row in by_share["shared"]}):
        own = {k: [r for r in rows if r.language == language] for k, rows in by_share.items()}
        count = len(own["shared"])
        enough = count >= ENOUGH
        kappa = statistics.median(row.tokens / row.speech_s for row in own["shared"])
        found[language] = {
            "recordings": count,
            "kappa": round(kappa, 2),
            "r2": {k: crossed(rows, by_learned) if enough else None for k, rows in own.items()},
            "why": None if enough else f"{count} recordings: at least {ENOUGH} are needed",
        }
    return found


def told(report: dict[str, Any]) -> list[str]:
    """The report for a person."""
    wers = ", ".join(f"{kind} {value:.1%}" for kind, value in report["wer"].items())
    others = ", ".join(f"{kind} {value:.0%}" for kind, value in report["foreign"].items())
    lines = [
        f"{report['model']}, {report['slots']} slots: {report['recordings']} recordings, "
        f"{report['windows']} windows, {report['speech_s']:.0f} s of speech",
        f"WER {wers}; foreign load {others}",
        "engine busy "
        + ", ".join(
            f"{k} {v:.1f} of {report['wall_s'][k]:.1f} s" for k, v in report["busy_s"].items()
        ),
    ]
    for level, table in report["r2"].items():
        lines.append(f"R^2 by {level:<14}" + "".join(f"{name:>11}" for name in FITS))
        for target, row in table.items():
            values = (row[name] for name in FITS)
            shown = "".join(f"{'-' if v is None else format(v, '.3f'):>11}" for v in values)
            lines.append(f"  {target:<19}{shown}")
    for kind, model in report["learned"].items():
        if model:
            a, b, c = (1000 * model[name] for name in ("job_s", "window_s", "token_s"))
            lines.append(f"learned, {kind}: {a:.1f} ms a job, {b:.1f} a window, {c:.2f} a token")
    for language, one in report["languages"].items():
        why = one["why"] or f"R^2 alone {one['r2']['alone']}, shared {one['r2']['shared']}"
        lines.append(f"{language}: {one['kappa']} tokens a second of speech; {why}")
    return lines
