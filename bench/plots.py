"""The plots of docs/scheduling.md, drawn from simulations of fixed seeds.

    python -m bench.plots [--durations FILE] [--seeds 10] [--only frontier,calls,trickle,day]

Writes docs/plots/*.svg. The same numbers give the same file, byte for byte.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot

from bench.policies import FRONTIER, GOALS
from pipeline.cli.simulate import read_lines
from pipeline.scheduling import cases, contest, traces
from pipeline.scheduling.cases import SPELLS, Asked
from pipeline.scheduling.scenario import Outcome
from pipeline.scheduling.tally import quantile
from pipeline.settings import DEFAULT_POLICY

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "plots"

COLOUR = {
    "file-fcfs": "#9a9a9a",
    "fcfs": "#555555",
    "sjf": "#c2453d",
    "hrrn(1)": "#e09b2d",
    DEFAULT_POLICY: "#1f6fb2",
    f"{DEFAULT_POLICY}@60": "#2b9c86",
    "aged": "#8a6fb0",
}
LOOK = {
    "svg.hashsalt": "fairscribe",  # ids of elements would differ from run to run
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.plots", description="Draw docs/plots/*.svg.")
    parser.add_argument("--durations", type=Path, help="measured lengths: column duration_s")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", default=",".join(PLOTS), help="split by commas")
    asked = parser.parse_args()
    durations_s = tuple(read_lines(asked.durations, traces.durations_s)) if asked.durations else ()
    matplotlib.use("svg")
    pyplot.rcParams.update(LOOK)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in asked.only.split(","):
        figure = PLOTS[name](durations_s, asked.seeds)
        path = FOLDER / f"{name}.svg"
        figure.savefig(path, metadata={"Date": None})
        print(path.relative_to(FOLDER.parents[1]))
    return 0


LABELS = {"hrrn(1)": (0, -12), "hrrn(2.5)": (-14, -12), "aged(5)": (6, 4), "aged(10)": (6, 4)}
"""Points of the frontier that are named, and where beside them, in points."""

# -- the plots ------------------------------------------------------------------------------


def frontier(durations_s: tuple[float, ...], seeds: int) -> Any:
    """What each g and beta buys (P50) and costs (P90), under both models of service."""
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.8), sharey=True)
    for axis, share in zip(axes, (0.25, 1.0), strict=True):
        asked = Asked(fixed_share=share, durations_s=durations_s)
        entries = [contest.parse_entry(name) for name in ("fcfs", "sjf", *FRONTIER)]
        played = [cases.librispeech(seed, asked) for seed in range(seeds)]
        rows = contest.told(contest.compete(entries, played)[""])
        _frontier(axis, rows, GOALS["librispeech", share])
        axis.set_title(f"fixed part of service: {share:g} of the mean clip's rest", fontsize=9)
        axis.set_xlabel("P50 against fcfs, %")
    axes[0].set_ylabel("P90 against fcfs, %")
    axes[0].legend(loc="upper right")
    return figure


def _frontier(axis: Any, rows: dict[str, dict[str, Any]], goal: Any) -> None:
    p50, p90 = 100 * goal["change_p50"], 100 * goal["change_p90"]
    axis.set_xlim(-88, 3)
    axis.set_ylim(-5, 50)
    axis.add_patch(pyplot.Rectangle((-88, -5), p50 + 88, p90 + 5, color="#e3f0e3", zorder=0))
    axis.text(-87, -4.2, "goal", color="#5a8a5a", fontsize=8)
    for family, colour in (("hrrn", COLOUR[DEFAULT_POLICY]), ("aged", COLOUR["aged"])):
        # no clip is so long that a knee would matter
        named = {n: r for n, r in rows.items() if n.startswith(family) and "," not in n}
        x = [100 * row["change_p50"] for row in named.values()]
        y = [100 * row["change_p90"] for row in named.values()]
        axis.plot(x, y, marker="o", markersize=3, color=colour, linewidth=1.2, label=family)
        for name, at_x, at_y in zip(named, x, y, strict=True):
            if name in LABELS:
                axis.annotate(
                    name, (at_x, at_y), LABELS[name], textcoords="offset points", color=colour
                )
    row = rows["sjf"]
    x, y = 100 * row["change_p50"], 100 * row["change_p90"]
    axis.plot([x], [y], marker="s", color=COLOUR["sjf"], linestyle="", label="sjf")


def calls(_: tuple[float, ...], __: int) -> Any:
    """How long calls take at load 0.95, all of them: a curve a policy."""
    case = cases.calls(0, Asked())
    figure, axis = pyplot.subplots(figsize=(7, 4))
    for name in ("file-fcfs", "fcfs", "sjf", "hrrn(1)", DEFAULT_POLICY):
        outcomes = contest.play(contest.parse_entry(name), case).outcomes[case.skip :]
        ordered = sorted(outcome.response_s for outcome in outcomes)
        parts = [1 - n / len(ordered) for n in range(len(ordered))]
        axis.plot(ordered, parts, color=COLOUR[name], label=name, linewidth=1.4)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_ylim(1 / len(outcomes), 1)
    axis.set_yticks([1, 0.5, 0.1, 0.01, 0.001], ["all", "half", "1 in 10", "1 in 100", "1 in 1000"])
    axis.minorticks_off()
    axis.set_xlim(0.8, None)
    _plain(axis.xaxis)
    axis.set_xlabel("seconds to the result")
    axis.set_ylabel("calls that take longer")
    axis.legend(loc="lower left")
    return figure


def trickle(_: tuple[float, ...], __: int) -> Any:
    """Short calls that come while 2,500 drain: how long each takes."""
    case = cases.bulk(0, Asked())
    figure, axis = pyplot.subplots(figsize=(7, 3.6))
    for name in ("fcfs", "hrrn(1)", DEFAULT_POLICY, f"{DEFAULT_POLICY}@60"):
        outcomes = contest.play(contest.parse_entry(name), case).outcomes
        short = [o for o in outcomes if o.job_id.startswith("trickle/")]
        x, y = _medians(short, each_s=30.0)
        axis.plot([at / 60 for at in x], y, color=COLOUR[name], label=name, linewidth=1.4)
    axis.axhline(10, color="#7fae7f", linewidth=0.8)
    axis.text(0.1, 10.6, "goal: P50 of 10 s", fontsize=7, color="#5a8a5a")
    axis.set_yscale("log")
    _plain(axis.yaxis)
    axis.set_xlabel("minutes after the bulk came")
    axis.set_ylabel("median seconds to the result")
    axis.legend(loc="upper right")
    return figure


def day(_: tuple[float, ...], __: int) -> Any:
    """Quiet, busy, surge, recovery: the median and the worst tenth, every two minutes."""
    case = cases.day(0, Asked())
    figure, axes = pyplot.subplots(2, 1, figsize=(8, 5.4), sharex=True)
    for name in ("fcfs", "sjf", "hrrn(1)", DEFAULT_POLICY):
        outcomes = contest.play(contest.parse_entry(name), case).outcomes
        for axis, part in zip(axes, (0.5, 0.95), strict=True):
            x, y = _medians(outcomes, each_s=120.0, part=part)
            axis.plot([at / 60 for at in x], y, color=COLOUR[name], label=name, linewidth=1.4)
    began_s = 0.0
    for (lasts_s, load), said in zip(SPELLS, ("quiet", "busy", "surge", "recovery"), strict=True):
        for axis in axes:
            axis.axvline(began_s / 60, color="#cccccc", linewidth=0.8)
        axes[0].text(
            began_s / 60 + 0.5,
            1.0,
            f"{said} {load:g}",
            fontsize=7,
            va="bottom",
            transform=axes[0].get_xaxis_transform(),
        )
        began_s += lasts_s
    for axis, said in zip(axes, ("P50", "P95"), strict=True):
        axis.set_yscale("log")
        _plain(axis.yaxis)
        axis.set_ylabel(f"{said}, seconds to the result")
    axes[0].legend(loc="upper left", ncols=2)
    axes[1].set_xlabel("minutes")
    return figure


def _plain(axis: Any) -> None:
    """Numbers as people write them, not powers of ten."""
    axis.set_major_formatter(lambda value, _: f"{value:g}")


def _medians(
    outcomes: Iterable[Outcome], each_s: float, part: float = 0.5
) -> tuple[Sequence[float], Sequence[float]]:
    """A quantile of the times to result of those that arrived in each stretch of time."""
    stretches: dict[int, list[float]] = {}
    for outcome in outcomes:
        stretches.setdefault(int(outcome.arrived_s // each_s), []).append(outcome.response_s)
    at = sorted(stretches)
    levels = [quantile(sorted(stretches[n]), part) for n in at]
    return [(n + 0.5) * each_s for n in at], levels


PLOTS: dict[str, Callable[[tuple[float, ...], int], Any]] = {
    "frontier": frontier,
    "calls": calls,
    "trickle": trickle,
    "day": day,
}

if __name__ == "__main__":
    sys.exit(main())
