"""Jobs until they have ended: a bar for each in hand, one for all, a line for each that ended."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from pipeline.cli.service import Service
from pipeline.cli.show import ended_line, printable
from pipeline.errors import PartDown
from pipeline.job import FINAL

ENDED = frozenset(state.value for state in FINAL)

BARS = 15
"""Bars of single files at a time; more would not fit on a screen."""

PAGE = 500
TICK_S = 0.5
"""How often to look; less often when a look takes long."""

PATIENCE_S = 60.0
"""How long the service may be gone: it may be restarted meanwhile, and the jobs go on."""


def watch(service: Service, batch_id: str, names: Mapping[str, str], to: Console) -> dict[str, Any]:
    """The jobs of {id: file name}, all ended, by id.

    Raises `PartDown` after PATIENCE_S of silence.
    """
    order = sorted(names)
    ended: dict[str, Any] = {}
    answered_s = time.monotonic()
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=to,
        disable=not to.is_terminal,
    ) as progress:
        bars = _Bars(progress, names)
        while len(ended) < len(order):
            begun_s = time.monotonic()
            try:
                for job in _since_first_unended(service, batch_id, order, ended):
                    if job["id"] in names and job["id"] not in ended:
                        _note(job, ended, bars, to)
                answered_s = time.monotonic()
            except PartDown:
                if time.monotonic() - answered_s > PATIENCE_S:
                    raise
            bars.draw(len(ended))
            if len(ended) < len(order):
                time.sleep(max(TICK_S, 5 * (time.monotonic() - begun_s)))
    return ended


def _since_first_unended(
    service: Service, batch_id: str, order: list[str], ended: Mapping[str, Any]
) -> list[Any]:
    """The batch's jobs from the first that has not ended: ids grow with time."""
    first = next(n for n, job_id in enumerate(order) if job_id not in ended)
    cursor = order[first - 1] if first else None
    found: list[Any] = []
    while True:
        page = service.get("/v1/jobs", batch=batch_id, cursor=cursor, limit=PAGE)
        found += page["jobs"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def _note(job: dict[str, Any], ended: dict[str, Any], bars: _Bars, to: Console) -> None:
    if job["status"] in ENDED:
        ended[job["id"]] = job
        bars.remove(job["id"])
        to.print(Text(ended_line(job)), soft_wrap=True)
    else:
        bars.note(job)


class _Bars:
    """The bars on the screen: jobs in hand first, then those that wait longest."""

    def __init__(self, progress: Progress, names: Mapping[str, str]) -> None:
        self._progress, self._names = progress, names
        self._unended: dict[str, dict[str, Any]] = {}
        self._tasks: dict[str, TaskID] = {}
        self._total = progress.add_task("all recordings", total=len(names))

    def note(self, job: dict[str, Any]) -> None:
        """How a job stands now."""
        self._unended[job["id"]] = job

    def remove(self, job_id: str) -> None:
        """A job has ended."""
        self._unended.pop(job_id, None)

    def draw(self, ended: int) -> None:
        """Show what was noted."""
        jobs = sorted(self._unended.values(), key=lambda j: (j["status"] != "processing", j["id"]))
        shown = {job["id"]: job for job in jobs[:BARS]}
        for job_id in self._tasks.keys() - shown.keys():
            self._progress.remove_task(self._tasks.pop(job_id))
        for job_id, job in shown.items():
            words = f"{printable(self._names[job_id], 40)}  {job['stage']}"
            if job_id not in self._tasks:
                self._tasks[job_id] = self._progress.add_task(words, total=1.0)
            task = self._tasks[job_id]
            self._progress.update(task, completed=job["progress"], description=words)
        self._progress.update(self._total, completed=ended)
