"""The command `submit`: what was typed, to recordings, to jobs, to an answer and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
import uuid_utils.compat as uuid_utils

from pipeline.cli import show
from pipeline.cli.asked import OPTIONS, read_asked, read_pairs
from pipeline.cli.collect import Found, NotSent, as_text, collect, is_url, read_list
from pipeline.cli.journal import Journal, journal_path, read_journal
from pipeline.cli.local import INTERRUPTED, Json
from pipeline.cli.manifest import read_manifest
from pipeline.cli.sending import Sending, as_json, tell_unsent
from pipeline.cli.service import Service, connect
from pipeline.cli.submit import GivenUp, key_of, submit
from pipeline.cli.watch import NO_LONGER
from pipeline.cli.watch import watch as watch_jobs
from pipeline.errors import BadRequest
from pipeline.settings import read_settings

app = typer.Typer()


@dataclass(frozen=True)
class Wanted:
    """A command line, understood."""

    recordings: list[Found]
    lost: list[NotSent]
    batch_id: str | None
    words: list[str]
    """What makes it the same command line again."""


@app.command("submit")
def submit_command(
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="Files, folders, patterns, URLs; - reads a list from stdin"),
    ] = None,
    manifest: Annotated[
        Path | None, typer.Option(help="CSV table: file or url, its options, metadata")
    ] = None,
    batch_id: Annotated[str | None, typer.Option(help="Groups the jobs; else chosen")] = None,
    language: Annotated[str | None, typer.Option(help="Code such as en, or auto")] = None,
    speakers: Annotated[
        str | None, typer.Option(help="Who is on which channel: agent,customer")
    ] = None,
    vocabulary: Annotated[
        str | None, typer.Option(help="Names and terms likely to be said: Müller,Fairscribe")
    ] = None,
    task: Annotated[str | None, typer.Option(help="transcribe or translate")] = None,
    raw_format: Annotated[
        str | None, typer.Option(help="What files without a header are: mulaw, sln@16000, vox@6000")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(help="Wanted by then: 2026-03-02T12:00, local or with offset")
    ] = None,
    wait_budget: Annotated[
        str | None, typer.Option(help="Seconds it may wait for an engine")
    ] = None,
    metadata: Annotated[list[str] | None, typer.Option(help="key=value, kept; repeatable")] = None,
    parallel: Annotated[int, typer.Option(min=1, max=64, help="Uploads side by side")] = 4,
    null: Annotated[bool, typer.Option("--null", help="The list on stdin has NULs")] = False,
    anew: Annotated[bool, typer.Option("--anew", help="Do not resume; send all again")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Stay until all have ended")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be sent")] = False,
    json: Json = False,
) -> None:
    """Send recordings; the same command again sends what is missing."""
    settings = read_settings()
    typed = {"batch_id": batch_id, "language": language, "speakers": speakers, "task": task}
    typed |= {"vocabulary": vocabulary, "raw_format": raw_format}
    typed |= {"deadline": deadline, "wait_budget_s": wait_budget}
    wanted = _understand(paths or [], manifest, typed, metadata or [], null=null)
    for lost in wanted.lost:
        tell_unsent(lost)
    if not wanted.recordings:
        raise BadRequest("There is no recording to send.")
    path = journal_path(settings.api_url or str(settings.home), wanted.words)
    if anew:
        path.unlink(missing_ok=True)
    if dry_run:
        raise typer.Exit(_rehearse(wanted, path, json=json))
    service = connect(settings)
    service.get("/v1/health")  # nothing is begun where nobody answers
    with Journal(path, wanted.batch_id or str(uuid_utils.uuid7())) as journal:
        if journal.sent and not service.get("/v1/jobs", batch=journal.batch_id, limit=1)["jobs"]:
            journal.begin_anew()  # the service was set up anew, or the batch was erased
        sending = Sending(journal, wanted.recordings, wanted.lost)
        try:
            with sending.shown():
                for one, outcome in submit(service, sending.missing, journal.batch_id, parallel):
                    sending.note(one, outcome)
        except KeyboardInterrupt:
            sending.tell_interrupted()
            raise typer.Exit(INTERRUPTED) from None
        sending.end()
        jobs = sending.jobs
    if watch and jobs:
        jobs = _watched(service, sending.batch_id, jobs)
    _answer(sending, jobs, watched=watch, json=json)


def _watched(service: Service, batch_id: str, jobs: list[Any]) -> list[dict[str, Any]]:
    """The jobs once they have ended, but for those erased meanwhile."""
    names = {job["id"]: job["file_name"] for job in jobs}
    try:
        ended = watch_jobs(service, batch_id, names, show.to_stderr())
    except KeyboardInterrupt:
        print(f"batch {show.printable(batch_id)}: {NO_LONGER}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    return [ended[job["id"]] for job in jobs if job["id"] in ended]


def _understand(
    paths: Sequence[str],
    manifest: Path | None,
    typed: dict[str, str | None],
    metadata: Sequence[str],
    *,
    null: bool,
) -> Wanted:
    """Raises `BadRequest` for what cannot be meant."""
    pairs = read_pairs(metadata)
    asked = read_asked(typed, pairs)
    named = [path for path in paths if path != "-"]
    if len(named) < len(paths):
        named += read_list(sys.stdin.buffer.read(), null=null)
    found, lost = collect(named)
    if manifest is not None:
        rows, broken = read_manifest(manifest)
        found, lost = found + rows, lost + broken
    places = sorted({p if is_url(p) else os.path.abspath(p) for p in named})
    words = [*places, str(manifest and manifest.absolute()), repr((sorted(typed.items()), asked))]
    recordings = [replace(one, asked=one.asked.or_else(asked)) for one in found]
    return Wanted(recordings, lost, typed["batch_id"], words)


def _rehearse(wanted: Wanted, path: Path, *, json: bool) -> int:
    """Show what would be sent, and send nothing; the exit code."""
    batch_id, sent = read_journal(path)
    rows: list[dict[str, Any]] = []
    for one in wanted.recordings:
        state = one.path.stat() if one.path else None
        told: dict[str, Any] = {
            "file": as_text(one.given),
            "size_bytes": state.st_size if state else None,
            **{name: getattr(one.asked, name) for name in OPTIONS},
            "metadata": dict(one.asked.metadata),
            "sent": batch_id is not None and key_of(batch_id, one, state) in sent,
        }
        rows.append(told)
    if json:
        lost = [as_json(one) for one in wanted.lost]
        batch_id = batch_id or wanted.batch_id
        show.print_json({"batch_id": batch_id, "recordings": rows, "not_sent": lost})
    else:
        for row in rows:
            print(f"{'was sent' if row['sent'] else 'to send':<9}{show.printable(row['file'])}")
        missing = sum(not row["sent"] for row in rows)
        print(f"{missing:,} to send, {len(wanted.lost):,} cannot be sent", file=sys.stderr)
    return 1 if wanted.lost else 0


def _answer(sending: Sending, jobs: list[dict[str, Any]], *, watched: bool, json: bool) -> None:
    """Say what became of all, with the exit code: 2 when the service was gone too long."""
    batch_id = sending.batch_id
    if json:
        lost = [as_json(one) for one in sending.lost]
        told = {"batch_id": batch_id, "resumed": sending.before, "jobs": jobs, "not_sent": lost}
        show.print_json(told)
    elif watched:
        done = sum(job["status"] == "completed" for job in jobs)
        print(f"{done} of {len(jobs)} completed, batch {show.printable(batch_id)}")
    else:
        for job in jobs:
            why = f"  {job['error']['message']}" if job["error"] else ""
            print(f"{job['id']}  {job['status']:<9}  {show.printable(job['file_name'])}{why}")
        print(f"batch {show.printable(batch_id)}", file=sys.stderr)
    if any(isinstance(one, GivenUp) for one in sending.lost):
        raise typer.Exit(2)
    if sending.lost or any(job["status"] in ("failed", "cancelled") for job in jobs):
        raise typer.Exit(1)
