"""A batch as one table (CSV) for a spreadsheet: a row a recording, or a row a segment."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.cli.export import Written, why_none, write_whole
from pipeline.cli.file_names import safe_path
from pipeline.cli.patience import patiently
from pipeline.cli.service import Service, job_path
from pipeline.cli.side_by_side import side_by_side
from pipeline.errors import BadRequest, FairscribeError, PartDown

Job = dict[str, Any]

ABOUT = (
    *("id", "file_name", "status", "language", "duration_s", "transcribed_s"),
    *("channels", "model"),
)
TIMES = ("created_at", "completed_at", "wait_s", "run_s", "no_speech", "degraded")
SEGMENT = ("start_s", "end_s", "channel", "speaker", "text", "confidence", "doubt")


def write_table(
    service: Service, batch_id: str, jobs: list[Job], folder: Path, *, segments: bool, at_once: int
) -> list[Written]:
    """Write FOLDER/<batch>.csv, or <batch>.segments.csv; always anew, since it holds all.

    A recording without a transcript is a row with its error; with `segments` it has none. Raises
    `BadRequest` when the file cannot be written.
    """
    name = safe_path(f"{batch_id}.csv").name + (".segments.csv" if segments else ".csv")
    bodies = dict(side_by_side(lambda job: (job["id"], _body(service, job)), jobs, at_once))
    keys = sorted({key for job in jobs for key in job["metadata"]})
    rows = _segment_rows if segments else _job_rows
    head = _head(segments=segments) + [f"metadata.{key}" for key in keys]
    out = io.StringIO()
    # the mark tells spreadsheets that it is UTF-8
    out.write("\ufeff")
    table = csv.writer(out, lineterminator="\r\n")
    table.writerow([_cell(name) for name in head])
    for job in jobs:
        more = [job["metadata"].get(key) for key in keys]
        for row in rows(job, bodies[job["id"]]):
            table.writerow([_cell(value) for value in (*row, *more)])
    try:
        write_whole(folder / name, out.getvalue())
    except OSError as error:
        raise BadRequest(f"{folder} cannot be written ({error.strerror}).") from None
    return [_written(job, bodies[job["id"]], name) for job in jobs]


def _written(job: Job, body: Job | str, name: str) -> Written:
    reason = body if isinstance(body, str) else None
    return Written(job["id"], job["file_name"], None if reason else name, not reason, reason)


def _body(service: Service, job: Job) -> Job | str:
    """The transcript, or why there is none."""
    if reason := why_none(job):
        return reason
    try:
        path = f"{job_path(job['id'])}/transcript"
        return dict(patiently(lambda: service.get(path, format="json")))
    except PartDown:
        raise
    except FairscribeError as error:  # erased or tried again meanwhile
        return error.message


def _head(*, segments: bool) -> list[str]:
    if segments:
        return ["id", "file_name", *SEGMENT]
    return [*ABOUT, *TIMES, "error_code", "error_message", "text"]


def _job_rows(job: Job, body: Job | str) -> Iterator[list[Any]]:
    error = job["error"] or {}
    about = [job.get(name) for name in (*ABOUT, *TIMES)]
    if isinstance(body, str):
        yield [*about, error.get("code"), error.get("message"), None]
    else:
        about[ABOUT.index("language")] = body.get("language")
        yield [*about, None, None, body["text"]]


def _segment_rows(job: Job, body: Job | str) -> Iterator[list[Any]]:
    for segment in [] if isinstance(body, str) else body["segments"]:
        yield [job["id"], job["file_name"], *(segment.get(name) for name in SEGMENT)]


def _cell(value: Any) -> Any:
    """A value as a spreadsheet shows it: text that would be a formula there stays text.

    >>> _cell("=1+1"), _cell(" @x"), _cell(-2.5), _cell(None), _cell(True)
    ("'=1+1", "' @x", -2.5, '', 'true')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return (
        f"'{text}"
        if text.lstrip().startswith(("=", "+", "-", "@")) or (text[:1] in "\t\r\n" and text)
        else text
    )
