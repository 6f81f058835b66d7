"""backup and restore: all that is known, in a folder of files, and back into an empty installation.

Postgres comes first, then storage: a recording that came in between has no row and is swept up
after a restore, where a row without its recording would be a job that is lost. Packed speech that
was erased in between is made again. The folder is a backup once `backup.json` is in it, which is
written last. Tombstones of erased jobs are added to those that are there, so that an erasure stays
one; Redis is in no backup, for it is made anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Engine

from pipeline.errors import BadRequest, EmptyRecording, RecordingMissing
from pipeline.intake.storage import TOMBSTONES, Storage
from pipeline.store import dump
from pipeline.store.dump import Dump, TableFile
from pipeline.store.session import transaction

INDEX = "backup.json"
FOLDERS = ("recordings", "packed")

_BLOCK = 1 << 20
_NO_LIMIT = 1 << 62


@dataclass(frozen=True)
class Copied:
    """How much a backup or a restore copied."""

    jobs: int
    files: int
    bytes: int
    tombstones: int
    begun_again: int = 0
    """Jobs whose packed speech was not in the backup: they are surveyed again."""


def backup(store: Engine, storage: Storage, folder: Path) -> Copied:
    """Write everything to `folder`, which is made, or empty.

    Raises `BadRequest` for a folder with something in it, `PartDown`, `OSError`.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise BadRequest(f"{folder} is not empty: a backup gets a folder of its own.")
    folder.chmod(0o700)
    tables = folder / "tables"
    tables.mkdir()
    at = datetime.now(UTC).isoformat(timespec="seconds")
    dumped = dump.dump(store, tables)
    kept = Storage(folder / "storage")
    copied = [_copy(storage, kept, name) for name in FOLDERS]
    tombstones, _ = _copy(storage, kept, TOMBSTONES)
    _write_index(folder, {"at": at, **asdict(dumped)})
    files, size = (sum(column) for column in zip(*copied, strict=True))
    return Copied(dumped.tables["jobs"].rows, files, size, tombstones)


def add_tombstones(storage: Storage, folder: Path) -> int:
    """Add the tombstones of jobs erased since to the backup in `folder`; how many were new.

    Raises `BadRequest` when there is no backup, `PartDown`.
    """
    _read_index(folder)
    return _copy(storage, Storage(folder / "storage"), TOMBSTONES)[0]


def restore(store: Engine, storage: Storage, folder: Path, erased: Storage | None = None) -> Copied:
    """Put the backup in `folder` into an installation without jobs. `erased`: storage of the one
    that was lost, as far as it is there: its tombstones count too.

    What has a tombstone is there again until `erase_again` is called. Cut short it can be called
    again: rows come last, all or none. Raises `BadRequest`, `PartDown`, `OSError`.
    """
    dumped = _read_index(folder)
    # before anything is copied: tombstones in an installation with jobs would erase some of these
    dump.check(store, folder / "tables", dumped)
    kept = Storage(folder / "storage")
    tombstones = _copy(kept, storage, TOMBSTONES)[0]
    if erased is not None:
        tombstones += _copy(erased, storage, TOMBSTONES)[0]
    copied = [_copy(kept, storage, name) for name in FOLDERS]
    dump.load(store, folder / "tables", dumped)
    there = {key for key, _ in storage.keys("packed")}
    with transaction(store) as c:
        begun_again = dump.begin_again(c, dump.packed_in_use(c) - there)
    files, size = (sum(column) for column in zip(*copied, strict=True))
    return Copied(dumped.tables["jobs"].rows, files, size, tombstones, begun_again)


def _copy(source: Storage, target: Storage, folder: str) -> tuple[int, int]:
    """Copy what is not there yet: (files, bytes). What is erased meanwhile is left out."""
    there = {key for key, _ in target.keys(folder)}
    files = size = 0
    for key, _ in source.keys(folder):
        if key in there or key.count("/") > 1:  # deeper than any of ours: a link leads elsewhere
            continue
        try:
            fd = source.open_fd(key)
        except RecordingMissing:
            continue
        with suppress(EmptyRecording):
            size += target.put(key, _chunks(fd), _NO_LIMIT)[0]
            files += 1
    return files, size


def _chunks(fd: int) -> Iterator[bytes]:
    with os.fdopen(fd, "rb") as file:
        while block := file.read(_BLOCK):
            yield block


def _write_index(folder: Path, index: dict[str, object]) -> None:
    part = folder / f"{INDEX}.part"
    with part.open("x") as file:
        json.dump(index, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    part.rename(folder / INDEX)


def _read_index(folder: Path) -> Dump:
    try:
        read = json.loads((folder / INDEX).read_text("utf-8"))
        tables = {name: TableFile(**file) for name, file in read["tables"].items()}
        return Dump(str(read["revision"]), tables)
    except FileNotFoundError:
        raise BadRequest(f"{folder} is no backup: there is no {INDEX} in it.") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise BadRequest(f"{folder / INDEX} cannot be read: the backup is damaged.") from None
