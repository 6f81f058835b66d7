"""Transcripts of a batch to files of a folder, one a recording; what is there is not asked for.

Which file is which job's is written down in INDEX, in the folder: another batch in the same folder
or a job that was tried again is not taken for done. A file is there whole or not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from pipeline.cli.file_names import Places
from pipeline.cli.patience import patiently
from pipeline.cli.service import Service, job_path
from pipeline.cli.side_by_side import side_by_side
from pipeline.errors import BadRequest, FairscribeError, PartDown

INDEX = ".fairscribe-export.jsonl"
"""Lines of {"file", "job_id", "completed_at"}; the last one of a file holds."""


class Kind(StrEnum):
    """What is written; all but csv are the API's own formats."""

    TXT = "txt"
    SRT = "srt"
    VTT = "vtt"
    JSON = "json"
    VERBOSE_JSON = "verbose_json"
    CSV = "csv"


ENDINGS = {Kind.JSON: ".json", Kind.VERBOSE_JSON: ".verbose.json"}
"""Where the ending is not the format's name."""


@dataclass(frozen=True)
class Written:
    """What became of one job's file."""

    job_id: str
    file_name: str
    path: str | None
    """In the folder; None when it was not written."""
    fresh: bool = False
    """False: it was there before, or is not there."""
    reason: str | None = None
    """Why it is not there."""


def export(
    service: Service,
    jobs: Iterable[dict[str, Any]],
    folder: Path,
    kind: Kind,
    *,
    overwrite: bool,
    at_once: int,
) -> list[Written]:
    """Write each job's transcript, in the order of the jobs.

    Raises `BadRequest` when the folder cannot be written or the API does not know the format.
    """
    with _open_index(folder) as index:
        owners = _owners(index)
        places = Places()
        ending = ENDINGS.get(kind, f".{kind.value}")
        # all get their place, also those that have not ended: who comes later moves nobody
        wanted = [(n, job, places.place(job["file_name"], ending)) for n, job in enumerate(jobs)]

        def write(one: tuple[int, dict[str, Any], str]) -> tuple[int, Written]:
            number, job, path = one
            if reason := why_none(job):
                return number, Written(job["id"], job["file_name"], None, reason=reason)
            own = {"file": path, "job_id": job["id"], "completed_at": job["completed_at"]}
            if (folder / path).exists() and not overwrite:
                if owners.get(path) == own:
                    return number, Written(job["id"], job["file_name"], path)
                why = f"{path} is there and not of this job: --overwrite replaces it"
                return number, Written(job["id"], job["file_name"], None, reason=why)
            return number, _write(service, job, folder, kind, own, index)

        done = dict(side_by_side(write, wanted, at_once))
        return [done[number] for number in sorted(done)]


def why_none(job: dict[str, Any]) -> str | None:
    """Why a job has no transcript, in a few words; None when it has one."""
    if job["status"] == "completed":
        return None
    return str(job["error"]["message"]) if job["error"] else f"it is {job['status']}"


def _write(
    service: Service,
    job: dict[str, Any],
    folder: Path,
    kind: Kind,
    own: dict[str, str],
    index: IO[bytes],
) -> Written:
    try:
        path = f"{job_path(job['id'])}/transcript"
        text = patiently(lambda: service.get_text(path, format=kind.value))
    except (BadRequest, PartDown):
        raise
    except FairscribeError as error:  # erased or tried again meanwhile
        return Written(job["id"], job["file_name"], None, reason=error.message)
    try:
        # written down between: a kill costs a second look, not a file nobody knows; a full disk
        # leaves what was there before, and known as that
        line = json.dumps(own, ensure_ascii=False).encode() + b"\n"
        write_whole(folder / own["file"], text, lambda: index.write(line))
    except OSError as error:
        return Written(job["id"], job["file_name"], None, reason=error.strerror or str(error))
    return Written(job["id"], job["file_name"], own["file"], fresh=True)


def write_whole(path: Path, text: str, before: Callable[[], Any] = lambda: None) -> None:
    """Write a file that is there whole or not at all. Raises `OSError`.

    `before` is called when all of it is written and it has not taken its place yet.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, fresh = tempfile.mkstemp(prefix=".part-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(fresh, 0o666 & ~_umask())
        before()
        os.replace(fresh, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise


def _umask() -> int:
    """What new files are not to allow; only setting it tells."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1], 8) for line in status if line.startswith("Umask"))


def _open_index(folder: Path) -> IO[bytes]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # unbuffered and appending: each line is one write, whoever else writes
        return (folder / INDEX).open("a+b", buffering=0)
    except OSError as error:
        raise BadRequest(f"{folder} cannot be written ({error.strerror}).") from None


def _owners(index: IO[bytes]) -> dict[str, dict[str, str]]:
    index.seek(0)
    owners = {}
    for line in index.read().splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            read = json.loads(line)
            owners[str(read["file"])] = read
    return owners
