"""Commands about what is kept: retention, erase, backup, restore.

`retention`, `backup` and `restore` work on Postgres and storage themselves, so they are for
whoever runs the installation, on a machine that reaches both.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli import show
from pipeline.cli.local import Json
from pipeline.cli.service import connect
from pipeline.errors import BadRequest
from pipeline.settings import PREFIX, read_settings

if TYPE_CHECKING:
    from pipeline.parts import Parts

app = typer.Typer()


def _parts() -> Parts:
    """The parts of this installation, as set or as a running `up` brought them."""
    # here, and below: SQLAlchemy and Celery would make every other command start a second later
    from pipeline.cli.checks.verdict import look_around
    from pipeline.logs import configure
    from pipeline.parts import open_parts

    settings = read_settings()
    configure("cli", settings.log_level)  # to stderr: stdout is for answers
    here = look_around(settings, os.environ)
    urls = {"database_url": here.database_url, "redis_url": here.redis_url}
    return open_parts(settings.model_copy(update=urls))


@app.command()
def retention(json: Json = False) -> None:
    """Show how long what is kept, and how much is due to be erased now; erase nothing."""
    from pipeline.steps.tidy import packed_due
    from pipeline.store.retention import due
    from pipeline.store.session import transaction

    parts = _parts()
    keep = parts.keep
    with transaction(parts.store) as c:
        now = due(c, keep)
    rows = [
        ("recordings", "keep_audio_days", keep.audio_days, now.audio),
        (
            "packed speech",
            "keep_packed_days",
            keep.packed_days,
            packed_due(parts.store, parts.storage, keep.packed_days),
        ),
        ("transcripts", "keep_transcripts_days", keep.transcripts_days, now.transcripts),
        ("whole jobs", "keep_jobs_days", keep.jobs_days, now.jobs),
        ("accesses", "keep_accesses_days", keep.accesses_days, now.accesses),
    ]
    if json:
        kept = [
            {"what": what, "setting": name, "days": days, "due": count}
            for what, name, days, count in rows
        ]
        show.print_json({"kept": kept})
        return
    told = [
        (what, "for ever" if days is None else f"{days:g} days", count, PREFIX + name.upper())
        for what, name, days, count in rows
    ]
    show.print_table("Kept after a job ended", ["what", "how long", "due now", "setting"], told)


@app.command()
def erase(
    metadata: Annotated[
        list[str] | None, typer.Option(help="FIELD=VALUE of their metadata; several must all fit")
    ] = None,
    batch: Annotated[str | None, typer.Option(help="Only of this batch")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count them only")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False,
    json: Json = False,
) -> None:
    """Erase all jobs of one person with their recordings and transcripts."""
    service = connect(read_settings())
    asked = {"metadata": _fields(metadata), "batch_id": batch}
    found = service.post("/v1/erasures", {**asked, "dry_run": True})["found"]
    if not dry_run and found and not yes:
        if not sys.stdin.isatty():
            raise BadRequest("Nobody can be asked here: say --yes to erase.")
        typer.confirm(f"Erase {found:,} jobs for ever?", abort=True, err=True)
    erased, more = 0, bool(found) and not dry_run
    while more:
        answer = service.post("/v1/erasures", asked)
        erased, more = erased + answer["erased"], answer["more"]
    if json:
        show.print_json({"found": found, "erased": erased})
    else:
        print(f"{found:,} found, {erased:,} erased")


def _fields(given: list[str] | None) -> dict[str, str] | None:
    fields = {}
    for one in given or []:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise BadRequest("--metadata is FIELD=VALUE, such as customer_id=42.")
        fields[name] = value
    return fields or None


@app.command()
def backup(
    folder: Annotated[Path, typer.Argument(help="Made, or empty")],
    erased_only: Annotated[
        bool, typer.Option("--erased-only", help="Add what was erased since to a backup")
    ] = False,
    json: Json = False,
) -> None:
    """Write Postgres and storage to a folder, while everything goes on."""
    from pipeline.steps.backup import add_tombstones
    from pipeline.steps.backup import backup as back_up

    parts = _parts()
    with _files_told(folder):
        if erased_only:
            told = {"tombstones": add_tombstones(parts.storage, folder)}
        else:
            told = asdict(back_up(parts.store, parts.storage, folder))
            del told["begun_again"]
    _tell(told, json=json)


@app.command()
def restore(
    folder: Annotated[Path, typer.Argument(help="As `backup` wrote it")],
    erased: Annotated[
        Path | None,
        typer.Option(help="Storage of the installation that was lost, if it is there"),
    ] = None,
    json: Json = False,
) -> None:
    """Put a backup into an installation without jobs; erase again what was erased since."""
    from pipeline.intake.storage import Storage
    from pipeline.steps.backup import restore as put_back
    from pipeline.steps.erase import erase_again

    if erased is not None and not erased.is_dir():
        raise BadRequest(f"{erased} is no folder.")
    parts = _parts()
    with _files_told(folder):
        lost = Storage(erased) if erased is not None else None
        told = asdict(put_back(parts.store, parts.storage, folder, lost))
    again = erase_again(parts.store, parts.storage, parts.queues, parts.keep)
    _tell({**told, "erased_again": again}, json=json)


@contextmanager
def _files_told(folder: Path) -> Iterator[None]:
    """Say what the file system refused."""
    try:
        yield
    except OSError as error:
        raise BadRequest(f"{error.filename or folder}: {error.strerror or error}.") from error


def _tell(told: dict[str, int], *, json: bool) -> None:
    if json:
        show.print_json(told)
    else:
        print(", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in told.items()))
