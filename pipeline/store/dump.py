"""All tables to files and back: one snapshot, one file a table, in Postgres' own COPY text.

The schema is not in the files: migrations make it, of the version they were written at. So a dump
is read by any Postgres and any newer release, and no program of Postgres is needed on this machine.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from psycopg.sql import SQL, Composable, Identifier
from sqlalchemy import Connection, Engine, text

from pipeline.errors import BadRequest
from pipeline.store import schema
from pipeline.store.session import telling, transaction
from pipeline.store.tables import metadata

_BLOCK = 1 << 20


@dataclass(frozen=True)
class TableFile:
    """A table as it was written."""

    columns: list[str]
    rows: int
    sha256: str
    """Of the file, hex."""


@dataclass(frozen=True)
class Dump:
    """What was written, in the order in which it is to be read."""

    revision: str
    """The schema's version."""
    tables: dict[str, TableFile]


def dump(store: Engine, folder: Path) -> Dump:
    """Write every table to `folder`/NAME.copy, all of one moment; nobody waits for it.

    Raises `BadRequest` when the tables are those of another version, `PartDown`, `OSError`.
    """
    with telling(), store.connect() as c:
        c = c.execution_options(isolation_level="REPEATABLE READ")
        c.execute(text("SET LOCAL statement_timeout = 0"))
        c.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        revision = _checked(c)
        tables = {}
        for table in metadata.sorted_tables:  # parents first
            columns = [column.name for column in table.columns]
            copy = SQL("COPY {} ({}) TO STDOUT").format(Identifier(table.name), _names(columns))
            tables[table.name] = _write(c, copy, folder / f"{table.name}.copy", columns)
        return Dump(revision, tables)


def check(store: Engine, folder: Path, dumped: Dump) -> None:
    """See that `load` may begin; change nothing.

    Raises `BadRequest` for an installation with jobs, a damaged file, or a version this code does
    not know; `PartDown`, `OSError`.
    """
    _check_files(folder, dumped)
    with transaction(store) as c:
        _check_place(c, dumped.revision)


def load(store: Engine, folder: Path, dumped: Dump) -> None:
    """Put what `dump` wrote into an installation without jobs, and bring it to this version.

    All rows or none. Jobs that were in work wait again. `check` is called before; raises what it
    raises.
    """
    _make_room(store, dumped.revision)
    with transaction(store) as c:
        c.execute(text("SET LOCAL statement_timeout = 0"))
        c.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        c.execute(text("LOCK TABLE jobs IN EXCLUSIVE MODE"))
        _refuse_jobs(c)
        if _tables_there(c) != set(dumped.tables):
            raise BadRequest("Some tables are missing in it: the backup is damaged.")
        names = SQL(", ").join(Identifier(name) for name in dumped.tables)
        _raw(c).execute(SQL("TRUNCATE {} CASCADE").format(names))
        for name, file in dumped.tables.items():
            _read(c, name, file, folder / f"{name}.copy")
    schema.upgrade(store)
    with transaction(store) as c:
        c.execute(text(_WAIT_AGAIN))


_WAIT_AGAIN = """
    UPDATE jobs SET state = CASE state WHEN 'running' THEN 'surveyed' WHEN 'surveying' THEN 'probed'
        ELSE state END, index_pending = true
    WHERE state IN ('probed', 'surveying', 'surveyed', 'running')
"""
"""Redis knows nothing of them: the outbox tells it."""


def begin_again(c: Connection, lost: set[str]) -> int:
    """Send jobs whose packed speech is among the `lost` keys back to their probe; how many."""
    moved = text("""
        WITH hollow AS (
            DELETE FROM plans USING jobs WHERE job_id = jobs.id AND artefact_key = ANY(:lost)
            AND state = 'surveyed' RETURNING job_id)
        UPDATE jobs SET state = 'received', attempt = attempt + 1, survey_attempts = attempt + 1,
            index_pending = false, plan_hash = NULL, windows_total = NULL, windows_done = 0
        FROM hollow WHERE id = job_id
    """)
    return int(c.execute(moved, {"lost": sorted(lost)}).rowcount)


def packed_in_use(c: Connection) -> set[str]:
    """Keys of the packed speech that jobs wait with."""
    query = "SELECT artefact_key FROM plans JOIN jobs ON id = job_id WHERE state = 'surveyed'"
    return set(c.execute(text(query)).scalars())


def _checked(c: Connection) -> str:
    found, expected = schema.revisions(c)
    if found != expected:
        raise BadRequest(
            f"Postgres has the tables of version {found or 'none'}, expected {expected}: run "
            "`python -m workers.migrate` first; `fairscribe up` does."
        )
    return expected


def _make_room(store: Engine, revision: str) -> None:
    """Bring the tables to `revision`: there are no jobs in them that could be lost."""
    with transaction(store) as c:
        found = _check_place(c, revision)
    if found is not None and found != revision:
        schema.downgrade(store)
    schema.upgrade(store, revision)


def _check_place(c: Connection, revision: str) -> str | None:
    """The version of the tables that are there; None for none."""
    found, _ = schema.revisions(c)
    if not schema.knows(c, revision):
        raise BadRequest(f"It was made by a newer version (tables {revision}): install that.")
    if found is not None:
        _refuse_jobs(c)
    return found


def _tables_there(c: Connection) -> set[str]:
    query = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    return set(c.execute(text(query)).scalars()) - {"alembic_version"}


def _refuse_jobs(c: Connection) -> None:
    if c.execute(text("SELECT EXISTS (SELECT FROM jobs)")).scalar_one():
        raise BadRequest("There are jobs here: restore into an installation that is empty.")


def _write(c: Connection, copy: Composable, path: Path, columns: list[str]) -> TableFile:
    digest = hashlib.sha256()
    with path.open("xb") as file, _raw(c) as cursor:
        with cursor.copy(copy) as blocks:
            for block in blocks:
                digest.update(block)
                file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return TableFile(columns, cursor.rowcount, digest.hexdigest())


def _read(c: Connection, name: str, file: TableFile, path: Path) -> None:
    table, columns = Identifier(name), _names(file.columns)
    with path.open("rb") as opened, _raw(c) as cursor:
        with cursor.copy(SQL("COPY {} ({}) FROM STDIN").format(table, columns)) as copy:
            for block in _blocks(opened):
                copy.write(block)
        # numbers go on after the last that was given out
        for column in file.columns:
            found = cursor.execute("SELECT pg_get_serial_sequence(%s, %s)", (name, column))
            (sequence,) = found.fetchone()
            if sequence is not None:
                highest = SQL("SELECT setval(%s, greatest(max({}), 1)) FROM {}")
                cursor.execute(highest.format(Identifier(column), table), (sequence,))


def _check_files(folder: Path, dumped: Dump) -> None:
    for name, file in dumped.tables.items():
        if not re.fullmatch("[a-z_]+", name):
            raise BadRequest(f"{name!r} is no table: the backup is damaged.")
        digest = hashlib.sha256()
        with (folder / f"{name}.copy").open("rb") as opened:
            for block in _blocks(opened):
                digest.update(block)
        if digest.hexdigest() != file.sha256:
            raise BadRequest(f"{name}.copy is not as it was written: the backup is damaged.")


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        yield block


def _raw(c: Connection) -> Any:
    return c.connection.driver_connection.cursor()  # type: ignore[union-attr]


def _names(columns: list[str]) -> Composable:
    return SQL(", ").join(Identifier(column) for column in columns)
