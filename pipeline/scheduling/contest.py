"""Several orders of work on the same arrivals, seed by seed: medians of their figures, and changes.

An entry is a policy, perhaps with a promotion after so many seconds (`hrrn(2.5)@60`), or what
people have without windows: `file-fcfs`, a slot for each whole file, first come, first served.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pipeline.scheduling import tally
from pipeline.scheduling.adaptive import AUTO, Follower
from pipeline.scheduling.cases import Case
from pipeline.scheduling.policies import Policy, parse_policy
from pipeline.scheduling.scenario import Rule, Run
from pipeline.scheduling.simulator import simulate
from pipeline.scheduling.tally import Figures

FILE_FCFS, WINDOW_FCFS = "file-fcfs", "fcfs"

RULES: dict[str, Callable[[], Rule]] = {AUTO: Follower}
"""Rules of the backlog by name, each made anew for a run."""

WAIT_LIMIT_S = 1e9
"""Longer than anybody waits."""

CHANGED = ("p50", "p90", "p99", "max")
"""Figures that are compared with a baseline's."""


@dataclass(frozen=True)
class Entry:
    """One order of work that takes part."""

    name: str
    policy: Policy | None
    """None: the rule of this name."""
    level: str = "window"
    max_wait_s: float = 0.0


def parse_entry(text: str) -> Entry:
    """Read `fcfs`, `hrrn(2.5)`, `hrrn(2.5)@60`, `file-fcfs`, or the name of a rule.

    Raises ValueError with a sentence for anything else.

    >>> parse_entry("HRRN(2.50)@60").name
    'hrrn(2.5)@60'
    """
    name, at, wait = text.strip().lower().partition("@")
    try:
        max_wait_s = float(wait) if at else 0.0
    except ValueError:
        max_wait_s = math.nan
    if not 0 <= max_wait_s <= WAIT_LIMIT_S:
        raise ValueError(f"{text!r}: behind the @ stand the seconds after which a job is promoted")
    if name == FILE_FCFS:
        return Entry(FILE_FCFS, Policy("fcfs"), "file")
    policy = None if name in RULES else parse_policy(name)
    said = name if policy is None else str(policy)
    return Entry(f"{said}@{max_wait_s:g}" if max_wait_s else said, policy, "window", max_wait_s)


def split_entries(text: str) -> list[str]:
    """The entries of a list with commas; those inside parentheses are an entry's own.

    >>> split_entries("fcfs, hrrn(2.5,300)@60")
    ['fcfs', 'hrrn(2.5,300)@60']
    """
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def compete(
    entries: Iterable[Entry], cases: Iterable[Case], classes: Sequence[str] = ("",)
) -> dict[str, dict[str, Figures]]:
    """The median over `cases` of each entry's figures, by class and by the entry's name.

    A class is the beginning of its jobs' ids: they are counted, the others only compete. A run is
    forgotten when it is counted.
    """
    entered = list(entries)
    made: dict[str, dict[str, list[Figures]]] = {of: {} for of in classes}
    for case in cases:
        alone_s = {arrival.job_id: tally.alone_s(arrival, case.house) for arrival in case.arrivals}
        for entry in entered:
            played = play(entry, case)
            for of, rows in made.items():
                counted = [o for o in played.outcomes[case.skip :] if o.job_id.startswith(of)]
                alone = [alone_s[outcome.job_id] for outcome in counted]
                figures = tally.figures(counted, alone, played.throughput)
                rows.setdefault(entry.name, []).append(figures)
    return {
        of: {name: tally.middle(each) for name, each in rows.items()} for of, rows in made.items()
    }


def play(entry: Entry, case: Case) -> Run:
    """One entry on one case."""
    rule = RULES[entry.name.partition("@")[0]]() if entry.policy is None else entry.policy
    house = replace(case.house, level=entry.level)
    return simulate(case.arrivals, rule, house, max_wait_s=entry.max_wait_s)


def told(figures: Mapping[str, Figures]) -> dict[str, dict[str, Any]]:
    """Figures by name, with the change against each baseline that took part.

    `change_p50` is against window FCFS, `change_file_p50` against a slot for each file: -0.6 is
    60 % less. `change_start_` is of the time to the first slot.
    """
    rows: dict[str, dict[str, Any]] = {}
    for name, made in figures.items():
        row = {key: round(value, 4) for key, value in asdict(made).items()}
        for prefix, baseline in (("change_", WINDOW_FCFS), ("change_file_", FILE_FCFS)):
            if baseline in figures:
                row |= _changes(prefix, made, figures[baseline])
        rows[name] = row
    return rows


def _changes(prefix: str, made: Figures, baseline: Figures) -> dict[str, float | None]:
    ours, theirs = asdict(made), asdict(baseline)
    return {
        f"{prefix}{of}{figure}": tally.change(ours[f"{of}{figure}_s"], theirs[f"{of}{figure}_s"])
        for of in ("", "start_")
        for figure in CHANGED
    }
