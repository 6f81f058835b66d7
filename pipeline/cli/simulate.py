"""`fairscribe simulate`: what another order of work would do; nothing that runs is touched."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from pipeline.cli import show
from pipeline.cli.local import Json
from pipeline.errors import BadRequest
from pipeline.scheduling import cases, contest, traces
from pipeline.scheduling.cases import CASES, SLOTS_LIMIT, WORKERS_LIMIT, Asked, Case
from pipeline.scheduling.contest import Entry
from pipeline.scheduling.scenario import LEVELS
from pipeline.settings import DEFAULT_POLICY

app = typer.Typer()

POLICIES = f"file-fcfs,fcfs,sjf,hrrn(1),{DEFAULT_POLICY}"
SEEDS_LIMIT = 1000
TEXT_LIMIT = 64 << 20
"""Characters of a file that is read: a million arrivals are fewer."""

Read = TypeVar("Read")


@app.command()
def simulate(
    workload: Annotated[str, typer.Argument(help=", ".join(CASES))] = "calls",
    policies: Annotated[
        str,
        typer.Option(
            help="Split by commas; hrrn(2.5)@60 promotes after 60 s, file-fcfs: no windows"
        ),
    ] = POLICIES,
    load: Annotated[float | None, typer.Option(help="Arriving work over what the slots do")] = None,
    rate: Annotated[float | None, typer.Option(help="Arrivals a second, instead of a load")] = None,
    jobs: Annotated[int | None, typer.Option(help="How many arrive")] = None,
    slots: Annotated[
        int | None, typer.Option(min=1, max=SLOTS_LIMIT, help="Slots a worker")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=WORKERS_LIMIT, help="Workers")] = 1,
    knee: Annotated[
        float | None, typer.Option(help="Units beyond so many in a worker share its speed")
    ] = None,
    level: Annotated[str, typer.Option(help="What takes a slot: window or file")] = "window",
    fixed_share: Annotated[
        float, typer.Option(help="Of clips: fixed part of their service over the rest")
    ] = 0.25,
    window_s: Annotated[float, typer.Option(help="Of calls: seconds a full window takes")] = 1.0,
    seeds: Annotated[int, typer.Option(min=1, max=SEEDS_LIMIT, help="Runs; medians count")] = 3,
    trace: Annotated[
        Path | None, typer.Option(help="Recorded arrivals, CSV or JSON lines: arrived_s, speech_s")
    ] = None,
    durations: Annotated[
        Path | None, typer.Option(help="Lengths for librispeech and burst: a table, duration_s")
    ] = None,
    json: Json = False,
) -> None:
    """Simulate orders of work on the same arrivals and compare how long people wait."""
    try:
        entries = entries_of(policies, level)
        asked = Asked(
            load=load,
            rate=rate,
            jobs=jobs,
            slots=slots,
            workers=workers,
            knee=knee,
            fixed_share=fixed_share,
            window_s=window_s,
            durations_s=tuple(read_lines(durations, traces.durations_s)) if durations else (),
        )
        if trace:
            recorded = read_lines(trace, lambda li: traces.recorded(li, window_s=window_s))
            asked, workload, seeds = replace(asked, trace=tuple(recorded)), "trace", 1
        answer = answered(workload, asked, entries, seeds)
    except ValueError as wrong:
        raise BadRequest(f"{wrong}.") from None
    if json:
        show.print_json(answer)
    else:
        print_answer(answer)


def read_lines(path: Path, read: Callable[[Iterable[str]], Read]) -> Read:
    """What `read` makes of the lines of a file. Raises ValueError that names the file."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            text = file.read(TEXT_LIMIT + 1)  # a device has no end, and perhaps no line either
        if len(text) > TEXT_LIMIT:
            raise ValueError(f"more than {TEXT_LIMIT >> 20} million characters")
        return read(io.StringIO(text, newline=""))
    except OSError as wrong:
        raise ValueError(f"{path} cannot be read: {wrong.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text") from None
    except ValueError as wrong:
        raise ValueError(f"{path}: {wrong}") from None


def entries_of(policies: str, level: str = "window") -> list[Entry]:
    """The entries written in a list with commas. Raises ValueError for one that is none."""
    if level not in LEVELS:
        raise ValueError(f"{level!r} is not what takes a slot: window or file")
    written = contest.split_entries(policies)
    if not written:
        raise ValueError("no policy is named")
    parsed = {entry.name: entry for entry in map(contest.parse_entry, written)}
    return [replace(entry, level=level) if level == "file" else entry for entry in parsed.values()]


def cases_of(workload: str, asked: Asked, seeds: Iterable[int]) -> list[Case]:
    """One case a seed. Raises ValueError for a workload nobody knows."""
    make = cases.trace if workload == "trace" and asked.trace else CASES.get(workload)
    if make is None:
        raise ValueError(f"{workload!r} is not a workload: {', '.join(CASES)}, or a --trace")
    return [make(seed, asked) for seed in seeds]


def answered(workload: str, asked: Asked, entries: Sequence[Entry], seeds: int) -> dict[str, Any]:
    """Play it and tell: what `--json` prints."""
    played_on = cases_of(workload, asked, range(seeds))
    first = played_on[0]
    names = sorted({a.job_id.partition("/")[0] for a in first.arrivals if "/" in a.job_id})
    figures = contest.compete(entries, played_on, ["", *(f"{name}/" for name in names)])
    return {
        "workload": workload,
        "jobs": len(first.arrivals),
        "seeds": seeds,
        "workers": first.house.workers,
        "slots": first.house.slots,
        "rate": round(first.rate, 4),
        "load": round(first.load, 4) if first.load < 1e9 else None,
        "lengths": lengths_from(workload, asked),
        "policies": contest.told(figures[""]),
        "classes": {name: contest.told(figures[f"{name}/"]) for name in names},
    }


def lengths_from(workload: str, asked: Asked) -> str:
    """Where the lengths come from, for whoever judges the figures."""
    if workload in ("librispeech", "burst"):
        return "measured" if asked.durations_s else "lognormal fit to LibriSpeech test-clean"
    if workload == "uniform":
        return "5, 10 ... 30 s alike"
    return "recorded" if workload == "trace" else "lognormal, median 210 s, sigma 1, 5 s to 2 h"


def print_answer(answer: Mapping[str, Any]) -> None:
    """Tables for a person: results, then starts; classes apart where there are some."""
    load = "all at once" if answer["load"] is None else f"load {answer['load']:.2f}"
    head = f"{answer['workload']}: {answer['jobs']} jobs, {answer['workers']} x {answer['slots']} "
    head += f"slots, {load}, medians of {answer['seeds']} seeds; lengths: {answer['lengths']}"
    print(head)
    for name, rows in (answer["classes"] or {"": answer["policies"]}).items():
        of = f" ({name})" if name else ""
        show.print_table(f"Time to result, s{of}", *_table(rows, "", ("throughput",)))
        show.print_table(f"Time to first slot, s{of}", *_table(rows, "start_", ()))


def _table(
    rows: Mapping[str, Mapping[str, Any]], of: str, more: Sequence[str]
) -> tuple[list[str], list[list[Any]]]:
    figures = ["p25_s", "p50_s", "p90_s", "p99_s", "max_s"]
    changes = ["p50", "p90", "p99", "max"]
    columns = ["policy", "P25", "P50", "P90", "P99", "longest"]
    columns += ["jobs/s", "slowdown"] if more else []
    columns += [f"{name} to fcfs" for name in ("P50", "P90", "P99", "longest")]
    body = [
        [name, *(row[of + figure] for figure in figures)]
        + ([row["throughput"], row["mean_slowdown"]] if more else [])
        + [_percent(row.get(f"change_{of}{figure}")) for figure in changes]
        for name, row in rows.items()
    ]
    return columns, body


def _percent(part: float | None) -> str:
    return "–" if part is None else f"{part:+.0%}"
