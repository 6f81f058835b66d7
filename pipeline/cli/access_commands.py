"""Commands about recordings themselves and who had them: audio, audit."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.cli import show
from pipeline.cli.job_commands import JobId, time_of
from pipeline.cli.local import Json
from pipeline.cli.service import connect, job_path
from pipeline.errors import BadRequest
from pipeline.settings import read_settings

app = typer.Typer()

PAGE = 1000
"""The most the API gives at once."""


@app.command()
def audio(
    job_id: JobId,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where it is written; - is stdout")
    ],
    json: Json = False,
) -> None:
    """Fetch a recording as it was sent."""
    service = connect(read_settings())
    path = f"{job_path(job_id)}/audio"
    if str(output) == "-":
        if json:
            raise BadRequest("stdout is for the recording or for JSON: name a file.")
        service.download(path, sys.stdout.buffer)
        return
    # under another name until it is whole: what is cut off is not taken for the recording
    part = output.with_name(output.name + ".part")
    try:
        with part.open("wb") as file:
            size_bytes = service.download(path, file)
        os.replace(part, output)
    except OSError as error:
        raise BadRequest(f"{output} cannot be written: {error.strerror}.") from None
    finally:
        part.unlink(missing_ok=True)
    if json:
        show.print_json({"id": job_id, "file": str(output), "size_bytes": size_bytes})
    else:
        print(f"{show.printable(str(output))}  {size_bytes:,} bytes")


@app.command()
def audit(
    job: Annotated[str | None, typer.Option(help="Only to this job")] = None,
    key: Annotated[str | None, typer.Option(help="Only by this API key, or about it")] = None,
    since: Annotated[
        str | None, typer.Option(help="Only newer: 2026-03-02, 2026-03-02T09:00 or 90m, 6h, 2d")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most")] = 100,
    json: Json = False,
) -> None:
    """List who read, heard or erased what, the newest first."""
    service = connect(read_settings())
    asked = {"job": job, "key": key, "since": since and time_of(since)}
    found: list[dict[str, Any]] = []
    cursor = None
    while len(found) < limit:
        size = min(PAGE, limit - len(found))
        page = service.get("/v1/accesses", cursor=cursor, limit=size, **asked)
        found += page["accesses"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    if json:
        show.print_json({"accesses": found, "next_cursor": cursor})
        return
    columns = ("at", "action", "job", "key", "tenant", "detail")
    names = ("action", "job_id", "key_id", "tenant", "detail")
    rows = [[show.moment(one["at"]), *(one[name] for name in names)] for one in found]
    show.print_table("Who had what", columns, rows)
