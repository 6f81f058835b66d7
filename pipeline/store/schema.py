"""Brings a database to the schema this code expects."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from pipeline.store.session import transaction

_LOCK = 0x46616972
"""Advisory lock: processes that start together upgrade one after the other."""


def upgrade(store: Engine) -> None:
    """Apply every migration that is missing; safe to call from several processes at once."""
    with transaction(store) as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        command.upgrade(alembic_config(connection), "head")


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
