"""Orders of work compared: simulated, or on real parts with the echo engine or vLLM.

    fairscribe bench policies [--engine sim|echo|vllm] [--workload librispeech|uniform|burst|calls]
        [--load X] [--fixed-share X] [--durations FILE] [--policies a,b] [--seeds N] [--json]

Simulated also: `--workload bulk|day`, `--frontier` (every g and beta, and which goals each meets),
`--rates 1,5,25` (one table a rate). Prints for each policy quantiles of time to result and to the
first slot, medians over seeds, and the changes against fcfs with windows (`change_`) and against a
slot a file (`change_file_`). The simulation draws from fixed seeds: the same on every machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.cli.simulate import answered, entries_of, print_answer, read_lines
from pipeline.errors import BadRequest, FairscribeError
from pipeline.scheduling import traces
from pipeline.scheduling.cases import CASES, Asked
from pipeline.scheduling.contest import FILE_FCFS, WINDOW_FCFS, split_entries
from pipeline.settings import DEFAULT_POLICY

POLICIES = f"fcfs,sjf,hrrn(1),{DEFAULT_POLICY}"
IN_WINDOWS = ("calls", "bulk", "day")
"""Workloads of more than one window a job, where a slot a file is another baseline."""

FRONTIER = [f"hrrn({g:g})" for g in (0.25, 0.5, 1, 1.5, 1.75, 2, 2.25, 2.5, 2.75, 3, 4)]
FRONTIER += [f"hrrn({g:g},300)" for g in (2, 2.25, 2.5, 3)]
FRONTIER += [f"aged({beta:g})" for beta in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)]

SEEDS = {"librispeech": 40, "uniform": 40, "burst": 40, "calls": 20, "bulk": 3, "day": 3}

PUBLISHED = {
    "librispeech": {
        "sjf": {"change_p50": -0.73, "change_p90": 0.97},
        "hrrn(1)": {"change_p50": -0.28, "change_p90": 0.24},
    },
    "burst": {"sjf": {"change_p50": -0.107}, "hrrn(1)": {"change_p50": -0.037}},
}
"""arXiv 2603.11273: at high load, and 500 requests at once."""

Limits = Mapping[str, float]
GOALS: dict[tuple[str, float], Limits] = {
    ("librispeech", 0.25): {"change_p50": -0.60, "change_p90": 0.05},
    ("librispeech", 1.0): {"change_p50": -0.45, "change_p90": 0.13},
    ("calls", 0.95): {
        "change_file_p50": -0.85,
        "change_file_p90": -0.80,
        "change_file_p99": -0.60,
        "change_p50": -0.60,
        "change_p90": -0.50,
        "change_p99": 0.40,
        "change_start_max": 3.0,
    },
}
"""Workload and fixed share, or load -> the most that each change may be. The longest wait is the
longest time to the first slot: 3.0 more is four times as long."""


def main() -> int:
    asked = _parser().parse_args()
    try:
        report = measured(asked)
    except FairscribeError as refused:
        print(refused.message, file=sys.stderr)
        return 2
    if asked.json:
        print(json.dumps(report, ensure_ascii=False, indent=2))
    else:
        _print(report)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fairscribe bench policies",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--engine", choices=["sim", "echo", "vllm"], default="sim")
    parser.add_argument("--workload", choices=list(CASES), default="librispeech")
    parser.add_argument("--policies", default=POLICIES, help="split by commas")
    parser.add_argument("--load", type=float, help="arriving work over what the slots do")
    parser.add_argument("--rate", type=float, help="arrivals a second, instead of a load")
    parser.add_argument("--fixed-share", type=float, default=0.25)
    parser.add_argument("--durations", type=Path, help="measured lengths: column duration_s")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--slots", type=int)
    parser.add_argument("--knee", type=float, help="simulated: more units share this speed")
    parser.add_argument("--seeds", type=int, help="simulated: how many runs, from seed 0 on")
    parser.add_argument("--seed", type=int, default=0, help="on real parts: which arrivals")
    parser.add_argument("--model", default="tiny.en", help="with vllm: tiny.en or base")
    parser.add_argument("--frontier", action="store_true", help="every g and beta")
    parser.add_argument("--rates", help="simulated: one contest for each, split by commas")
    parser.add_argument("--json", action="store_true")
    return parser


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    """The report. Raises BadRequest for what cannot be asked."""
    try:
        if asked.engine == "sim":
            return simulated(asked)
        _wanted(asked, asked.rate, ())  # before a house is started for it
    except ValueError as wrong:
        raise BadRequest(f"{wrong}.") from None
    from bench import experiment  # here: it starts a house, and a simulation needs none

    report: dict[str, Any] = experiment.run(asked)
    return report


def simulated(asked: argparse.Namespace) -> dict[str, Any]:
    """The contest, or one for each of several rates."""
    durations_s = tuple(read_lines(asked.durations, traces.durations_s)) if asked.durations else ()
    if not asked.rates:
        return contest_at(asked, durations_s, asked.rate)
    try:
        rates = [float(rate) for rate in asked.rates.split(",")]
    except ValueError:
        raise ValueError(f"{asked.rates!r} are not rates, split by commas") from None
    return {"rates": {f"{rate:g}": contest_at(asked, durations_s, rate) for rate in rates}}


def _wanted(asked: argparse.Namespace, rate: float | None, durations_s: tuple[float, ...]) -> Asked:
    return Asked(
        load=asked.load,
        rate=rate,
        jobs=asked.jobs,
        slots=asked.slots,
        knee=asked.knee,
        fixed_share=asked.fixed_share,
        durations_s=durations_s,
    )


def contest_at(
    asked: argparse.Namespace, durations_s: tuple[float, ...], rate: float | None
) -> dict[str, Any]:
    """One contest as the command promises it."""
    wanted = _wanted(asked, rate, durations_s)
    seeds = asked.seeds or SEEDS[asked.workload]
    if not 1 <= seeds <= 1000:
        raise ValueError(f"1 to 1000 seeds, not {seeds}")
    in_windows = asked.workload in IN_WINDOWS
    entries = entries_of(",".join(_taking_part(asked, in_windows)))
    answer = answered(asked.workload, wanted, entries, seeds)
    goals = _goals_met(asked, answer["policies"])
    return {
        **answer,
        "fixed_share": None if in_windows else asked.fixed_share,
        "baselines": {
            "file-fcfs": FILE_FCFS if in_windows else WINDOW_FCFS,
            "window-fcfs": WINDOW_FCFS,
        },
        "default": DEFAULT_POLICY,
        **({"published": PUBLISHED[asked.workload]} if asked.workload in PUBLISHED else {}),
        **({"goals_met": goals} if goals else {}),
    }


def _taking_part(asked: argparse.Namespace, in_windows: bool) -> list[str]:
    """The baselines always; a job of one window is a file, so one of them is enough there."""
    baselines = [FILE_FCFS, WINDOW_FCFS] if in_windows else [WINDOW_FCFS]
    more = FRONTIER if asked.frontier else []
    return [*baselines, *split_entries(asked.policies), *more]


def _goals_met(
    asked: argparse.Namespace, rows: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[str]]:
    """For each goal of this workload the policies that meet it, and `all` of them."""
    at = asked.fixed_share if asked.workload != "calls" else asked.load or 0.95
    limits = GOALS.get((asked.workload, at))
    if limits is None or asked.rate is not None or asked.rates:
        return {}
    met = {
        f"{figure} <= {most:+.2f}": [
            name for name, row in rows.items() if row[figure] is not None and row[figure] <= most
        ]
        for figure, most in limits.items()
    }
    met["all"] = [name for name in rows if all(name in names for names in met.values())]
    return met


def _print(report: Mapping[str, Any]) -> None:
    if "rates" in report:
        for each in report["rates"].values():
            print_answer(each)
        return
    print_answer(report)
    if report.get("engine") in ("echo", "vllm"):
        from bench.reckoned import lines_beside

        print(*lines_beside(report), sep="\n")
    for name, row in report.get("published", {}).items():
        said = ", ".join(f"{figure[7:].upper()} {part:+.1%}" for figure, part in row.items())
        print(f"published for {name}: {said}")
    for goal, names in report.get("goals_met", {}).items():
        print(f"meets {goal}: {', '.join(names) or 'none'}")


if __name__ == "__main__":
    sys.exit(main())
