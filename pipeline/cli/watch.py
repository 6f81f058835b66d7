"""Jobs until they have ended: a bar for each in hand, one for all, a line for each that ended."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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

from pipeline.cli.news import news_of
from pipeline.cli.pages import pages_after
from pipeline.cli.patience import PATIENCE_S
from pipeline.cli.service import NotFairscribe, Service, batch_path, job_path
from pipeline.cli.show import clock, done_by, ended_line, printable
from pipeline.errors import FairscribeError, NoSuchJob, PartDown
from pipeline.job import FINAL

ENDED = frozenset(state.value for state in FINAL)

BARS = 15
"""Bars of single files at a time; more would not fit on a screen."""

SINGLY = 20
"""So few jobs of a batch are asked for one by one."""

AT_ONCE = 200
"""So many jobs of no batch are looked at in one tick; those that end make room for others."""

TICK_S = 0.5
"""How often to look; less often when a look takes long."""

NO_LONGER = "no longer watched; the jobs go on"
"""Said after Ctrl-C."""


def watch(
    service: Service, batch_id: str | None, names: Mapping[str, str], to: Console
) -> dict[str, Any]:
    """The jobs of {id: file name}, all ended, by id; of one batch, or of any for None.

    A job that is erased meanwhile is not among them. Raises `PartDown` after PATIENCE_S of silence.
    """
    order = sorted(names)
    ended: dict[str, Any] = {}
    gone: set[str] = set()
    answered_s = time.monotonic()
    with _bars(names, to) as bars, news_of(service, batch_id) as news:
        while len(ended) + len(gone) < len(order):
            begun_s = time.monotonic()
            try:
                for job in _looked_at(service, batch_id, order, ended, gone):
                    if job["id"] in names and job["id"] not in ended:
                        _note(job, ended, bars, to)
                bars.left = _left_of(service, batch_id) if to.is_terminal else ""
                answered_s = time.monotonic()
            except NotFairscribe:
                raise
            except PartDown:
                if time.monotonic() - answered_s > PATIENCE_S:
                    raise
            bars.draw(len(ended))
            if len(ended) + len(gone) < len(order):
                news.wait(max(TICK_S, 5 * (time.monotonic() - begun_s)))
    return ended


@contextmanager
def _bars(names: Mapping[str, str], to: Console) -> Iterator[_Bars]:
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=to,
        disable=not to.is_terminal,
    ) as progress:
        yield _Bars(progress, names)


def _looked_at(
    service: Service,
    batch_id: str | None,
    order: list[str],
    ended: Mapping[str, Any],
    gone: set[str],
) -> Iterator[dict[str, Any]]:
    """The jobs as they stand, at least all that have not ended; those erased go to `gone`.

    Ids grow with time: a batch is read from its first job that has not ended. Few are asked for one
    by one.
    """
    open_ones = [job_id for job_id in order if job_id not in ended and job_id not in gone]
    if batch_id is None or len(open_ones) <= SINGLY:
        for job_id in open_ones[:AT_ONCE]:
            try:
                yield service.get(job_path(job_id))
            except NoSuchJob:
                gone.add(job_id)
        return
    before = order.index(open_ones[0])
    seen = set()
    after = order[before - 1] if before else None
    for job in pages_after(service, after, batch=batch_id):
        seen.add(job["id"])
        yield job
    gone |= set(open_ones) - seen


def _left_of(service: Service, batch_id: str | None) -> str:
    """When the batch will be done, as far as the service can say."""
    if batch_id is None:
        return ""
    try:
        told = service.get(batch_path(batch_id))
    except PartDown:
        raise
    except FairscribeError:  # its jobs are watched all the same
        return ""
    by = done_by(told.get("eta_s"), told.get("eta_p90_s"))
    return f"{_left(told.get('eta_s'))}, {by}" if by else ""


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
        self.left = ""
        """When all will have ended, as far as it is known."""
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
            words = f"{printable(self._names[job_id], 40)}  {job['stage']}{_left(job.get('eta_s'))}"
            if job_id not in self._tasks:
                self._tasks[job_id] = self._progress.add_task(words, total=1.0)
            task = self._tasks[job_id]
            self._progress.update(task, completed=job["progress"], description=words)
        words = f"all recordings  {ended} of {len(self._names)}{self.left}"
        self._progress.update(self._total, completed=ended, description=words)


def _left(eta_s: float | None) -> str:
    return "" if eta_s is None else f"  {clock(eta_s)} left"
