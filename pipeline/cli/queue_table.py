"""The queue on a screen: totals, who waits and why there, who is in hand, how fast each worker is.

`drawn` makes the picture of one answer of `GET /v1/queue`; `live` asks and draws until Ctrl-C.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pipeline.cli.service import Service
from pipeline.cli.show import clock, done_by, printable
from pipeline.errors import PartDown

TICK_S = 1.0
"""How often to ask; less often when an answer takes long."""

UNITS = {"transcribe": "slot seconds", "survey": "seconds of audio"}
"""What a stage's speed is measured in."""

NUMBERS, REASON = 75, 62
"""Columns that all but the file's name and the reason take, and that a reason takes on one line."""

UNTOLD = "(not yours to read)"
"""Where the file's name would stand."""

NARROW = 120
"""Below so many columns the reasons are left out rather than broken into pieces."""


def live(service: Service, limit: int, to: Console) -> None:
    """Draw the queue each second until Ctrl-C. A service that is away is waited for.

    Raises `PartDown` when it does not answer the first time.
    """
    view = service.get("/v1/queue", limit=limit)
    with contextlib.suppress(KeyboardInterrupt), Live(console=to, auto_refresh=False) as screen:
        away = ""
        while True:
            fits = max(1, (to.height - 14) // 2)
            screen.update(drawn(view, rows=fits, width=to.width, note=away), refresh=True)
            begun_s = time.monotonic()
            time.sleep(TICK_S)
            try:
                view, away = service.get("/v1/queue", limit=limit), ""
            except PartDown as down:
                away = down.message
            time.sleep(min(10.0, 4 * max(0.0, time.monotonic() - begun_s - TICK_S)))


def drawn(
    view: dict[str, Any], *, rows: int | None = None, width: int = NARROW, note: str = ""
) -> Group:
    """The picture of an answer; at most `rows` of each table, for a screen of `width` columns."""
    parts: list[RenderableType] = [Text(_totals(view))]
    if note:
        parts.append(Text(printable(note, 200), style="red"))
    parts.append(_waiting(view, rows, width))
    if view["in_hand"]:
        parts.append(_in_hand(view, rows))
    parts.append(_workers(view))
    return Group(*parts)


def _totals(view: dict[str, Any]) -> str:
    by = {"auto": " (auto: it follows the backlog)", "trial": " (on trial)"}.get(view["mode"], "")
    lines = [f"policy {view['policy']}{by}"]
    for stage in ("transcribe", "survey"):
        ratios = view["ratios"][stage]
        told = ""
        if ratios:
            told = f", ratio {ratios['median']:.1f} (median) to {ratios['highest']:.1f}"
        lines.append(
            f"{stage}: {view['waiting'][stage]} wait, {view['working'][stage]} in work{told}"
        )
    busy = any(view[kind][stage] for kind in ("waiting", "working") for stage in UNITS)
    left_s = view["all_done_s"]
    if busy and left_s is not None:
        lines.append(f"all done in {clock(left_s)}, {done_by(left_s, view['all_done_p90_s'])}")
    elif busy:
        lines.append("all done: nobody can say yet")
    return "\n".join(lines)


def _waiting(view: dict[str, Any], rows: int | None, width: int) -> Table:
    reasons = width >= NARROW
    name = min(40, max(12, width - NUMBERS - (REASON if reasons else 0)))
    columns = ["place", "file", "stage", "waited", "work", "ratio", "done in", "at most"]
    table = _table("who waits", [*columns, "why there"] if reasons else columns)
    for job in _first(view["head"], rows):
        cells = [
            *(str(job["position"]), printable(job["file_name"] or UNTOLD, name), job["stage"]),
            *(clock(job["wait_s"]), clock(job["work_s"]), f"{job['ratio']:.1f}"),
            *(clock(job["eta_s"]), clock(job["eta_p90_s"])),
        ]
        table.add_row(*(Text(cell) for cell in [*cells, job["why"]][: len(table.columns)]))
    return table


def _in_hand(view: dict[str, Any], rows: int | None) -> Table:
    table = _table(
        "who is in work", ["file", "stage", "worker", "since", "done", "done in", "at most"]
    )
    for job in _first(view["in_hand"], rows):
        progress = f"{job['progress']:.0%}" if job["stage"] == "transcribe" else ""
        cells = [
            *(
                printable(job["file_name"] or UNTOLD, 40),
                job["stage"],
                printable(job["worker"] or ""),
            ),
            *(clock(job["since_s"]), progress),
            *(clock(job["eta_s"]), clock(job["eta_p90_s"])),
        ]
        table.add_row(*map(Text, cells))
    return table


def _workers(view: dict[str, Any]) -> Table:
    table = _table("workers", ["worker", "stage", "slots", "speed"])
    for worker in view["workers"]:
        speed = "not measured yet"
        if worker["speed"] is not None:
            speed = f"{worker['speed']:.1f} {UNITS[worker['stage']]} a second"
        cells = (printable(worker["worker"]), worker["stage"], str(worker["slots"]), speed)
        table.add_row(*map(Text, cells))
    if not view["workers"]:
        table.add_row(Text("none"))
    return table


RIGHT = ("place", "waited", "work", "ratio", "done in", "at most", "since", "done", "slots")


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=Text(title), box=box.SIMPLE, title_justify="left")
    for name in columns:
        overflow = "ellipsis" if name == "file" else "fold"
        justify = "right" if name in RIGHT else "left"
        wraps = name == "why there"  # what is too narrow for all is taken from here
        table.add_column(name, justify=justify, no_wrap=not wraps, overflow=overflow)  # type: ignore[arg-type]
    return table


def _first(jobs: list[dict[str, Any]], rows: int | None) -> list[dict[str, Any]]:
    """At most `rows` jobs, shared among the stages, so that none is crowded out."""
    if rows is None or len(jobs) <= rows:
        return jobs
    stages = {job["stage"] for job in jobs}
    each = max(1, rows // len(stages))
    return [job for s in UNITS for job in [j for j in jobs if j["stage"] == s][:each]]
