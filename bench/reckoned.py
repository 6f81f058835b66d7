"""What runs on real parts come to: figures by policy, beside those of their rehearsals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.arrivals import Came
from bench.rehearsal import UnitsOf, beside, losses, rehearse
from pipeline.scheduling.policies import Policy, parse_policy
from pipeline.scheduling.scenario import Arrival, House, Outcome, Run
from pipeline.scheduling.tally import alone_s, change, figures

AGAIN = " again"
"""A policy that ran before."""

COMPARED = ("p25_s", "p50_s", "p90_s", "p99_s", "max_s")


@dataclass(frozen=True)
class Engine:
    """How the house serves, as the simulator takes it."""

    house: House
    units: UnitsOf


def all_told(
    runs: Mapping[str, tuple[list[Came], dict[str, float]]], engine: Engine
) -> dict[str, dict[str, Any]]:
    """Each policy's figures, its change against fcfs, and its rehearsal's."""
    told: dict[str, dict[str, Any]] = {}
    for name, (came, machine) in runs.items():
        rehearsal = rehearsed(came, name, engine)
        real = [
            Outcome(one.job_id, one.arrival_ms / 1000, one.began_s, one.ended_s) for one in came
        ]
        told[name] = {
            **figures_of(real, came, engine),
            **machine,
            **losses(came, engine.house.slots),
            "beside": beside(came, rule(name), rehearsal),
            "simulated": figures_of(rehearsal.outcomes, came, engine),
        }
    fcfs = told["fcfs"]
    for row in told.values():
        for ours, theirs in ((row, fcfs), (row["simulated"], fcfs["simulated"])):
            for figure in (of + name for of in ("", "start_") for name in COMPARED):
                name = f"change_{figure.removesuffix('_s')}"
                ours[name] = change(ours[figure], theirs[figure])
    return told


def rehearsed(came: Sequence[Came], name: str, engine: Engine) -> Run:
    """The same jobs in the simulator, under the policy of run `name`."""
    return rehearse(came, rule(name), engine.house, engine.units)


def figures_of(
    outcomes: Sequence[Outcome], came: Sequence[Came], engine: Engine
) -> dict[str, float]:
    """Figures of these outcomes of `came`, in the same order."""
    needs = [Arrival(one.job_id, 0, engine.units(one), one.clip.work_s) for one in came]
    alone = [alone_s(arrival, engine.house) for arrival in needs]
    lasted_s = max(o.ended_s for o in outcomes) - min(o.arrived_s for o in outcomes)
    return rounded(asdict(figures(outcomes, alone, len(outcomes) / lasted_s)))


def rounded(values: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers to a tenth of a millisecond."""
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in values.items()}


def middle_rate(ends_s: Sequence[float]) -> float:
    """Jobs a second between one and four fifths of them: without the beginning and the end."""
    ordered = sorted(ends_s)
    first, last = len(ordered) // 5, len(ordered) * 4 // 5
    return (last - first) / (ordered[last] - ordered[first])


def rule(name: str) -> Policy:
    """The policy a run is named for."""
    return parse_policy(name.removesuffix(AGAIN))


def lines_beside(report: Mapping[str, Any]) -> list[str]:
    """How real parts and the simulator compare, a line a run; nothing for a simulation."""
    live = {name: row["beside"] for name, row in report["policies"].items() if "beside" in row}
    stood = {f"{name}, a backlog": row for name, row in report.get("backlog", {}).items()}
    return [
        f"{name}: of {row['turns']} turns {row['right']} by the rule, {row['raced']} raced, "
        f"{row['wrong']} wrong; {row['equal_turns']} as simulated; real over simulated "
        f"P50 {row['p50_ratio']:.3f}, P90 {row['p90_ratio']:.3f}"
        for name, row in (live | stood).items()
    ]
