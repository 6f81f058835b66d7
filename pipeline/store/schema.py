"""Brings a database to the schema this code expects."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from pipeline.errors import PartDown
from pipeline.store.session import telling, transaction

_LOCK = 0x46616972
"""Advisory lock: processes that start together upgrade one after the other."""

_ASK_AGAIN_S = 0.1

_known: list[str] = []


def upgrade(store: Engine, revision: str = "head") -> None:
    """Apply every migration that is missing; safe to call from several processes at once.

    Each migration is a transaction of its own, but for indexes that are made while others write:
    killed in the middle it can be called again. Raises `PartDown`.
    """
    with _alone(store) as connection:
        command.upgrade(alembic_config(connection), revision)


@contextmanager
def _alone(store: Engine) -> Iterator[Connection]:
    """A connection of its own, while no other process upgrades, with time for large tables.

    The lock is asked for again and again rather than waited for: who waits inside a statement
    holds a snapshot, and an index that is made concurrently waits for all of these.
    """
    with telling(), store.connect() as connection:
        connection.execute(text("SET statement_timeout = 0"))
        connection.execute(text("SET idle_in_transaction_session_timeout = 0"))
        connection.commit()
        while not connection.scalar(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": _LOCK}):
            connection.commit()
            time.sleep(_ASK_AGAIN_S)
        connection.commit()
        try:
            yield connection
        finally:
            connection.invalidate()  # with its lock, and what was set: it is lent to nobody else


def downgrade(store: Engine, revision: str = "base") -> None:
    """Take migrations back to `revision`; data of dropped tables is gone."""
    with transaction(store) as connection:
        command.downgrade(alembic_config(connection), revision)


def alembic_config(connection: Connection) -> Config:
    """Alembic's settings, with migrations/ found wherever it is installed."""
    spec = find_spec("migrations")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package `migrations` is not installed")
    config = Config()
    config.set_main_option("script_location", str(Path(spec.origin).parent))
    config.attributes["connection"] = connection
    return config


def revisions(connection: Connection) -> tuple[str | None, str]:
    """(where the database is, where this code expects it); None for an empty one."""
    expected = ScriptDirectory.from_config(alembic_config(connection)).get_current_head()
    assert expected is not None, "there are migrations"
    return MigrationContext.configure(connection).get_current_revision(), expected


def knows(connection: Connection, revision: str) -> bool:
    """Whether this code has the migrations up to `revision`."""
    return revision in _ladder(connection)


def check_migrated(connection: Connection) -> None:
    """Raise `PartDown` when the tables are those of an older version.

    Those of a newer one are well: its migrations leave what this code needs in place, so that both
    can run side by side.
    """
    found = MigrationContext.configure(connection).get_current_revision()
    known = _ladder(connection)
    if found is None or found in known[1:]:
        raise PartDown(
            f"Postgres has the tables of version {found or 'none'}, expected {known[0]} (run "
            "`python -m workers.migrate` first)."
        )


def _ladder(connection: Connection) -> list[str]:
    """Versions this code knows, the newest first."""
    if not _known:
        script = ScriptDirectory.from_config(alembic_config(connection))
        _known.extend(one.revision for one in script.walk_revisions())
    return _known
