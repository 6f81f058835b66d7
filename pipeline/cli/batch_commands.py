"""Commands about many jobs: watch, batch, export."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from pipeline.cli import show
from pipeline.cli.export import Kind, Written, export
from pipeline.cli.local import INTERRUPTED, Json
from pipeline.cli.pages import jobs_of
from pipeline.cli.service import Service, batch_path, connect, job_path
from pipeline.cli.tables import write_table
from pipeline.cli.watch import ENDED, NO_LONGER
from pipeline.cli.watch import watch as watch_jobs
from pipeline.errors import NoSuchBatch, NoSuchJob
from pipeline.settings import read_settings

app = typer.Typer()

BatchId = Annotated[str, typer.Argument(help="As `submit` printed it, or was told")]


@app.command()
def watch(
    ids: Annotated[
        list[str] | None, typer.Argument(help="A batch, or jobs; none: all that have not ended")
    ] = None,
    json: Json = False,
) -> None:
    """Stay until a batch or jobs have ended, with their progress."""
    service = connect(read_settings())
    batch_id, jobs = _meant(service, ids or [])
    try:
        ended = _watched(service, batch_id, jobs)
    except KeyboardInterrupt:
        print(NO_LONGER, file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    if json:
        show.print_json({"batch_id": batch_id, "jobs": ended})
    else:
        done = sum(job["status"] == "completed" for job in ended)
        print(f"{done} of {len(ended)} completed")
    raise typer.Exit(0 if all(job["status"] == "completed" for job in ended) else 1)


def _meant(service: Service, ids: Sequence[str]) -> tuple[str | None, list[dict[str, Any]]]:
    """(batch, its jobs) or (None, the jobs themselves).

    Raises `NoSuchBatch` or `NoSuchJob`.
    """
    if not ids:
        waiting = jobs_of(service, status="queued")[0]
        return None, waiting + jobs_of(service, status="processing")[0]
    if len(ids) > 1 or _is_job(service, ids[0]):
        return None, [service.get(job_path(job_id)) for job_id in dict.fromkeys(ids)]
    return ids[0], batch_jobs(service, ids[0])


def _is_job(service: Service, text: str) -> bool:
    try:
        UUID(text)
        service.get(job_path(text))
    except (ValueError, NoSuchJob):
        return False
    return True


def batch_jobs(service: Service, batch_id: str) -> list[dict[str, Any]]:
    """The jobs of a batch, oldest first. Raises `NoSuchBatch` when it has none."""
    jobs, _ = jobs_of(service, batch=batch_id)
    if not jobs:
        raise NoSuchBatch(f"There is no job in batch {batch_id!r}.")
    return jobs


def _watched(
    service: Service, batch_id: str | None, jobs: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The jobs once they have ended, and those a batch was given meanwhile."""
    while True:
        names = {job["id"]: job["file_name"] for job in jobs if job["status"] not in ENDED}
        if not names:
            return jobs
        ended = watch_jobs(service, batch_id, names, show.to_stderr())
        if batch_id is None:
            return [ended.get(job["id"], job) for job in jobs]
        jobs = batch_jobs(service, batch_id)


@app.command()
def batch(batch_id: BatchId, json: Json = False) -> None:
    """Show how a batch stands."""
    service = connect(read_settings())
    told = service.get(batch_path(batch_id))
    if json:
        show.print_json(told)
    else:
        rows = [(name, _words(name, value)) for name, value in told.items()]
        show.print_table("Batch", ("", "value"), rows)


def _words(name: str, value: Any) -> str:
    """One field of a batch for a person.

    >>> _words("counts", {"queued": 0, "completed": 2}), _words("eta_s", 83.0)
    ('2 completed', '1:23')
    """
    if isinstance(value, dict):
        return ", ".join(f"{count} {status}" for status, count in value.items() if count)
    if name.endswith("_s"):
        return show.clock(value)
    if name == "progress":
        return f"{value:.0%}"
    return "–" if value is None else str(value)


@app.command("export")
def export_command(
    batch_id: BatchId,
    to: Annotated[Path, typer.Option(help="Folder; made if needed")],
    format: Annotated[Kind, typer.Option(help="csv: one table of all")] = Kind.TXT,
    segments: Annotated[bool, typer.Option("--segments", help="csv: a row a segment")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write again")] = False,
    parallel: Annotated[int, typer.Option(min=1, max=64, help="Fetched side by side")] = 4,
    wait: Annotated[bool, typer.Option("--wait", help="Until all have ended")] = False,
    json: Json = False,
) -> None:
    """Write the transcripts of a batch into a folder."""
    service = connect(read_settings())
    jobs = batch_jobs(service, batch_id)
    try:
        if wait:
            jobs = _watched(service, batch_id, jobs)
        if format is Kind.CSV:
            written = write_table(service, batch_id, jobs, to, segments=segments, at_once=parallel)
        else:
            written = export(service, jobs, to, format, overwrite=overwrite, at_once=parallel)
    except KeyboardInterrupt:
        print("interrupted; the same command writes what is missing", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    _tell_exported(batch_id, written, json=json)


def _tell_exported(batch_id: str, written: list[Written], *, json: bool) -> None:
    lost = [one for one in written if one.reason is not None]
    for one in lost:
        print(f"not written: {show.printable(one.file_name)}: {one.reason}", file=sys.stderr)
    if json:
        show.print_json({"batch_id": batch_id, "recordings": [asdict(one) for one in written]})
    else:
        fresh = sum(one.fresh for one in written)
        there = len(written) - len(lost) - fresh
        print(f"{fresh:,} written, {there:,} were there, {len(lost):,} are missing")
    raise typer.Exit(1 if lost else 0)
