"""The way into Postgres: one engine a process, one transaction a question."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from pipeline.errors import PartDown


def open_store(database_url: str) -> Engine:
    """A pool of connections to `database_url` (SQLAlchemy's spelling); connects at first use.

    A connection is tested before it is lent, so a restarted Postgres costs one retry, not an error.
    """
    return create_engine(
        database_url,
        pool_size=5,
        max_overflow=15,
        pool_pre_ping=True,
        connect_args={
            "connect_timeout": 5,
            "application_name": "fairscribe",
            # a worker that is stopped or cut off in mid-transaction keeps nobody waiting for long
            "options": "-c lock_timeout=3s -c statement_timeout=30s"
            " -c idle_in_transaction_session_timeout=10s",
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 20_000,
        },
    )


@contextmanager
def transaction(store: Engine) -> Iterator[Connection]:
    """One transaction: committed at the end, rolled back on any error.

    Raises `PartDown` when Postgres does not answer. If that happens at the commit itself its
    outcome is unknown: every write here can be asked again under its attempt.
    """
    with telling(), store.begin() as connection:
        yield connection


@contextmanager
def telling() -> Iterator[None]:
    """Turn what Postgres' driver raises when it does not answer to `PartDown`."""
    try:
        yield
    except DBAPIError as error:
        # InternalError: read-only after a failover, or ended by a timeout of ours
        down = (OperationalError, InterfaceError, InternalError)
        if isinstance(error, down) or error.connection_invalidated:
            raise PartDown(f"Postgres does not answer: {error.orig}") from error
        raise
    except PoolTimeout as busy:
        raise PartDown(f"Postgres is busy: {busy}") from busy


def clock_ms(connection: Connection) -> int:
    """Postgres' own time, ms: the clock of every arrival."""
    now = connection.execute(text("SELECT extract(epoch FROM clock_timestamp()) * 1000"))
    return int(now.scalar_one())
