"""Commands that ask the API. Exit codes: 0 done, 1 it failed, 2 not reached or misused."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import quote

import typer
import uuid_utils.compat as uuid_utils

from pipeline.cli import local, queue_table, show
from pipeline.cli.collect import NotSent, collect
from pipeline.cli.local import Json
from pipeline.cli.service import Service, connect
from pipeline.cli.submit import submit as send
from pipeline.cli.watch import ENDED
from pipeline.cli.watch import watch as watch_jobs
from pipeline.errors import (
    BadRequest,
    BadSetting,
    FairscribeError,
    PartDown,
)
from pipeline.settings import read_settings

EXIT = {BadSetting: 2, BadRequest: 2, PartDown: 2}
"""Error class -> exit code; any other is 1."""

app = typer.Typer(
    name="fairscribe",
    help="Call recordings in, transcripts out, in a fair order.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(local.app)

LONGEST_WAIT_S = 60.0
"""What the API waits at most in one request."""


class Format(StrEnum):
    """How a transcript is printed."""

    TXT = "txt"
    JSON = "json"


JobId = Annotated[str, typer.Argument(help="As `submit` printed it")]


def main() -> None:
    """Run the command line. What goes wrong is one sentence on stderr."""
    try:
        app()
    except FairscribeError as error:
        print(show.printable(error.message, 2000), file=sys.stderr)
        sys.exit(next((code for kind, code in EXIT.items() if isinstance(error, kind)), 1))


@app.command()
def submit(
    paths: Annotated[list[str], typer.Argument(help="Files, folders, patterns")],
    batch_id: Annotated[str | None, typer.Option(help="Groups the jobs; else chosen")] = None,
    language: Annotated[str | None, typer.Option(help="Code such as en; else the default")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Stay until all have ended")] = False,
    json: Json = False,
) -> None:
    """Send recordings. Exit code 1 when one failed or could not be sent."""
    service = connect(read_settings())
    files, lost = collect(paths)
    if not files:
        raise BadRequest("; ".join(f"{one.path}: {one.reason}" for one in lost) + ".")
    for one in lost:
        _tell_unsent(one)
    batch_id = batch_id or str(uuid_utils.uuid7())
    jobs = []
    for outcome in send(service, files, {"batch_id": batch_id, "language": language or ""}):
        if isinstance(outcome, NotSent):
            _tell_unsent(outcome)
            lost.append(outcome)
        else:
            jobs.append(outcome)
    if watch and jobs:
        names = {job["id"]: job["file_name"] for job in jobs}
        ended = watch_jobs(service, batch_id, names, show.to_stderr())
        jobs = [ended[job["id"]] for job in jobs]
    if json:
        not_sent = [asdict(one) for one in lost]
        show.print_json({"batch_id": batch_id, "jobs": jobs, "not_sent": not_sent})
    else:
        _tell_submitted(batch_id, jobs, watched=watch)
    bad = ("failed", "cancelled")
    if lost or any(job["status"] in bad for job in jobs):
        raise typer.Exit(1)


def _tell_unsent(one: NotSent) -> None:
    print(f"not sent: {show.printable(one.path)}: {one.reason}", file=sys.stderr)


def _tell_submitted(batch_id: str, jobs: list[dict[str, Any]], *, watched: bool) -> None:
    if watched:
        done = sum(job["status"] == "completed" for job in jobs)
        print(f"{done} of {len(jobs)} completed, batch {show.printable(batch_id)}")
        return
    for job in jobs:
        why = f"  {job['error']['message']}" if job["error"] else ""
        print(f"{job['id']}  {job['status']:<9}  {show.printable(job['file_name'])}{why}")
    print(f"batch {show.printable(batch_id)}", file=sys.stderr)


@app.command()
def get(
    job_id: JobId,
    format: Annotated[Format, typer.Option(help="How the transcript is printed")] = Format.TXT,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for its end")] = 0.0,
    json: Json = False,
) -> None:
    """Print a transcript. With --json the whole job, and its transcript inside."""
    service = connect(read_settings())
    path = f"/v1/jobs/{quote(job_id, safe='')}"
    job = _wait(service, path, wait)
    done = job["status"] == "completed"
    if json:
        transcript = service.get(f"{path}/transcript") if done else None
        show.print_json({**job, "transcript": transcript})
        raise typer.Exit(0 if done else 1)
    if format is Format.JSON:
        show.print_json(service.get(f"{path}/transcript"))
    else:
        sys.stdout.write(service.get_text(f"{path}/transcript", format="txt"))


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
    limit: Annotated[int, typer.Option(min=1, help="How many at most")] = 100,
    json: Json = False,
) -> None:
    """List jobs, oldest first."""
    service = connect(read_settings())
    jobs: list[Any] = []
    cursor = None
    while len(jobs) < limit:
        asked = min(1000, limit - len(jobs))
        page = service.get("/v1/jobs", status=status, batch=batch, cursor=cursor, limit=asked)
        jobs += page["jobs"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    if json:
        show.print_json({"jobs": jobs, "next_cursor": cursor})
    else:
        show.print_jobs(jobs, more=cursor is not None)


@app.command()
def cancel(job_id: JobId, json: Json = False) -> None:
    """Stop a job."""
    service = connect(read_settings())
    answer = service.post(f"/v1/jobs/{quote(job_id, safe='')}/cancel")
    if json:
        show.print_json(answer)
    else:
        print("cancelled" if answer["cancelled"] else f"it had ended before: {answer['status']}")


@app.command()
def queue(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Jobs of each stage")] = 20,
    once: Annotated[bool, typer.Option("--once", help="Print it once and end")] = False,
    json: Json = False,
) -> None:
    """Show who goes first and why, who is in work, and when all is done; until Ctrl-C."""
    service = connect(read_settings())
    if json:
        show.print_json(service.get("/v1/queue", limit=limit))
    elif once or not show.to_stdout().is_terminal:
        console = show.to_stdout()
        console.print(queue_table.drawn(service.get("/v1/queue", limit=limit), width=console.width))
    else:
        queue_table.live(service, limit, show.to_stdout())


@app.command()
def policy(
    new: Annotated[str | None, typer.Argument(help="fcfs, sjf, hrrn(g) or aged(beta)")] = None,
    reason: Annotated[str, typer.Option(help="Kept with the change")] = "by hand",
    json: Json = False,
) -> None:
    """Show the order of work, or change it; waiting jobs follow at once."""
    service = connect(read_settings())
    if new is None:
        answer = service.get("/v1/policy")
    else:
        answer = service.put("/v1/policy", {"policy": new, "reason": reason})
    if json:
        show.print_json(answer)
    else:
        print(answer["policy"])
