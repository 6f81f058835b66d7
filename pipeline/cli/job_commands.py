"""Commands about single jobs and calls: get, call, list, cancel, retry, delete."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from pipeline.cli import show
from pipeline.cli.local import Json
from pipeline.cli.pages import jobs_of
from pipeline.cli.service import Service, call_path, connect, job_path
from pipeline.cli.watch import ENDED
from pipeline.errors import BadRequest, Erased, FairscribeError, PartDown, TranscriptNotReady
from pipeline.settings import read_settings

app = typer.Typer()

LONGEST_WAIT_S = 60.0
"""What the API waits at most in one request."""


class Format(StrEnum):
    """How a transcript is printed."""

    TXT = "txt"
    JSON = "json"
    VERBOSE_JSON = "verbose_json"
    SRT = "srt"
    VTT = "vtt"


JobId = Annotated[str, typer.Argument(help="As `submit` printed it")]
JobIds = Annotated[list[str] | None, typer.Argument(help="As `submit` printed them")]
Batch = Annotated[str | None, typer.Option(help="All of this batch")]


@app.command()
def get(
    job_id: JobId,
    format: Annotated[Format, typer.Option(help="How the transcript is printed")] = Format.TXT,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for its end")] = 0.0,
    partial: Annotated[bool, typer.Option("--partial", help="What is heard so far")] = False,
    json: Json = False,
) -> None:
    """Print a transcript; with --json the whole job and its transcript."""
    service = connect(read_settings())
    path = f"{job_path(job_id)}/transcript"
    job = _wait(service, job_path(job_id), wait)
    done = job["status"] == "completed"
    asked = {"partial": 1} if partial else {}
    if json:
        show.print_json({**job, "transcript": _transcript(service, path, asked)})
        raise typer.Exit(0 if done else 1)
    _print_transcript(service, path, format, asked)


@app.command()
def call(
    call_id: Annotated[str, typer.Argument(help="The `call_id` of its recordings' metadata")],
    format: Annotated[Format, typer.Option(help="How the transcript is printed")] = Format.TXT,
    partial: Annotated[bool, typer.Option("--partial", help="What is heard so far")] = False,
    json: Json = False,
) -> None:
    """Print one transcript of a call in several files; with --json its legs too."""
    service = connect(read_settings())
    path = f"{call_path(call_id)}/transcript"
    asked = {"partial": 1} if partial else {}
    if json:
        told = service.get(call_path(call_id))
        show.print_json({**told, "transcript": _transcript(service, path, asked)})
        raise typer.Exit(0 if told["ready"] else 1)
    _print_transcript(service, path, format, asked)


def _print_transcript(service: Service, path: str, format: Format, asked: dict[str, int]) -> None:
    if format in (Format.JSON, Format.VERBOSE_JSON):
        show.print_json(service.get(path, format=format.value, **asked))
    else:
        sys.stdout.write(service.get_text(path, format=format.value, **asked))


def _transcript(service: Service, path: str, asked: dict[str, int]) -> Any:
    """As JSON; None while there is none."""
    try:
        return service.get(path, **asked)
    except (TranscriptNotReady, Erased):
        return None


def _wait(service: Service, path: str, wait_s: float) -> Any:
    """The job once it has ended, or after `wait_s` seconds; the API waits a minute at most."""
    deadline_s = time.monotonic() + wait_s
    while True:
        left_s = max(0.0, deadline_s - time.monotonic())
        job = service.get(path, wait=min(LONGEST_WAIT_S, left_s))
        if job["status"] in ENDED or time.monotonic() >= deadline_s:
            return job


@app.command("list")
def list_jobs(
    status: Annotated[str | None, typer.Option(help="Only of this status")] = None,
    batch: Annotated[str | None, typer.Option(help="Only of this batch")] = None,
    since: Annotated[
        str | None, typer.Option(help="Only newer: 2026-03-02, 2026-03-02T09:00 or 90m, 6h, 2d")
    ] = None,
    newest: Annotated[bool, typer.Option("--newest", help="The newest first")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many at most")] = 100,
    json: Json = False,
) -> None:
    """List jobs, oldest first."""
    service = connect(read_settings())
    asked = {"status": status, "batch": batch, "created_after": since and time_of(since)}
    if newest:
        asked["order"] = "newest"
    jobs, cursor = jobs_of(service, limit=limit, **asked)
    if json:
        show.print_json({"jobs": jobs, "next_cursor": cursor})
    else:
        show.print_jobs(jobs, more=cursor is not None)


def time_of(text: str) -> str:
    """A time as the API reads it: with its offset; what names none is local.

    Raises `BadRequest` for what is neither a time nor a length of time.
    """
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = text[:-1], text[-1:]
    try:
        if unit in units and number.replace(".", "", 1).isdecimal():
            return (datetime.now(UTC) - timedelta(seconds=float(number) * units[unit])).isoformat()
        return datetime.fromisoformat(text).astimezone().isoformat()
    except (ValueError, OverflowError):
        raise BadRequest(f"{text[:40]!r} is no time such as 2026-03-02, 90m, 6h or 2d.") from None


@app.command()
def cancel(job_id: JobId, json: Json = False) -> None:
    """Stop a job."""
    service = connect(read_settings())
    answer = service.post(f"{job_path(job_id)}/cancel")
    if json:
        show.print_json(answer)
    else:
        print("cancelled" if answer["cancelled"] else f"it had ended before: {answer['status']}")


@app.command()
def retry(
    job_ids: JobIds = None,
    batch: Annotated[str | None, typer.Option(help="All of this batch that failed")] = None,
    cancelled: Annotated[
        bool, typer.Option("--cancelled", help="With --batch: those cancelled too")
    ] = False,
    json: Json = False,
) -> None:
    """Try failed or cancelled jobs again."""
    service = connect(read_settings())
    ids = list(job_ids or [])
    if batch is not None:
        for status in ("failed", *(["cancelled"] if cancelled else [])):
            ids += [job["id"] for job in jobs_of(service, status=status, batch=batch)[0]]
    if not ids and batch is None:
        raise BadRequest("Name the jobs to try again, or a --batch.")
    _each(ids, "queued", lambda i: service.post(f"{job_path(i)}/retry"), json=json)


@app.command()
def delete(
    job_ids: JobIds = None,
    batch: Batch = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show them, erase nothing")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False,
    json: Json = False,
) -> None:
    """Erase jobs with their recordings and transcripts."""
    service = connect(read_settings())
    ids = list(job_ids or [])
    if batch is not None:
        ids += [job["id"] for job in jobs_of(service, batch=batch)[0]]
    if not ids and batch is None:
        raise BadRequest("Name the jobs to erase, or a --batch.")
    if dry_run:
        found = [str(service.get(job_path(i))["id"]) for i in ids]
        if json:
            told = [{"id": job_id, "done": False, "error": None} for job_id in found]
            show.print_json({"jobs": told})
        else:
            print("\n".join([*found, f"{len(found):,} found, 0 erased"]))
        return
    if ids and not yes:
        if not sys.stdin.isatty():
            raise BadRequest("Nobody can be asked here: say --yes to erase.")
        typer.confirm(f"Erase {len(ids):,} jobs for ever?", abort=True, err=True)
    _each(ids, "deleted", lambda i: service.delete(job_path(i)), json=json)


def _each(ids: list[str], done: str, act: Callable[[str], Any], *, json: bool) -> None:
    """Do it to each, tell of each; one that cannot be helped stops no other. Exit code 1 then."""
    told: list[dict[str, Any]] = []
    for job_id in ids:
        error = None
        try:
            act(job_id)
        except PartDown:
            raise
        except FairscribeError as refused:
            error = {"code": refused.code, "message": refused.message}
            print(f"{show.printable(job_id)}: {refused.message}", file=sys.stderr)
        told.append({"id": job_id, "done": error is None, "error": error})
    if json:
        show.print_json({"jobs": told})
    else:
        for one in told:
            if one["done"]:
                print(f"{one['id']}  {done}")
    if any(one["error"] for one in told):
        raise typer.Exit(1)
