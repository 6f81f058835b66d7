"""The way into Postgres: one engine a process, one transaction a question, one breaker.

While Postgres does not answer it is asked once a second only (`Breaker`), and everybody is told at
once. One that was stopped in the middle of a question keeps nobody: no timeout of its own runs
then, so the connection looks after itself.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import NullPool

from pipeline.breaker import Breaker, Call
from pipeline.errors import PartDown

READ_ONLY = "25006"
"""What a server says that is no longer the primary."""

NO_ANSWER = ("08", "57P01", "57P02", "57P03", "53300")
"""How the SQLSTATE begins when the server is going, coming, or has no connection to spare."""

REFUSED_VALUES = "22"
"""How the SQLSTATE begins when Postgres' own sentence quotes the value it refused."""

_breakers: WeakKeyDictionary[Engine, Breaker] = WeakKeyDictionary()

_asking: ContextVar[tuple[Breaker, Call] | None] = ContextVar("asking", default=None)
"""The call this thread is in: what a connection that waits asks whether to go on."""


_OPTIONS = {
    "connect_timeout": 2,
    "application_name": "fairscribe",
    # a worker that is stopped or cut off in mid-transaction keeps nobody waiting for long
    "options": "-c lock_timeout=3s -c statement_timeout=30s"
    " -c idle_in_transaction_session_timeout=10s",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


def open_store(database_url: str) -> Engine:
    """A pool of connections to `database_url` (SQLAlchemy's spelling); connects at first use.

    A connection is tested before it is lent, so a restarted Postgres costs one retry, not an error.
    """
    store = create_engine(
        database_url,
        pool_size=5,
        max_overflow=15,
        pool_pre_ping=True,
        connect_args=_OPTIONS,
        hide_parameters=True,  # an error that is logged must not hold what a caller sent
    )
    event.listen(store, "do_connect", _connect)
    # beside the pool, whose connections may all hang
    alone = create_engine(database_url, poolclass=NullPool, connect_args=_OPTIONS)
    _breakers[store] = Breaker("Postgres", lambda: _ask(alone))
    return store


def _ask(store: Engine) -> None:
    with store.connect() as connection:
        clock_ms(connection)


def breaker_of(store: Engine) -> Breaker:
    """The breaker of this Postgres."""
    return _breakers.setdefault(store, Breaker("Postgres"))


@contextmanager
def transaction(store: Engine) -> Iterator[Connection]:
    """One transaction: committed at the end, rolled back on any error.

    Raises `PartDown` when Postgres does not answer, at once where it did not lately. If that
    happens at the commit itself its outcome is unknown: every write here can be asked again under
    its attempt.
    """
    breaker = breaker_of(store)
    call = breaker.call()
    asked = _asking.set((breaker, call))
    there = False
    with telling():
        try:
            with store.begin() as connection, _primary_only(connection):
                there = True
                yield connection
        except DBAPIError as error:
            _tell(breaker, call, error)
            raise
        except BaseException:  # no connection is free, or the caller's own trouble
            (breaker.answered if there else breaker.abandoned)(call)
            raise
        else:
            breaker.answered(call)
        finally:
            _asking.reset(asked)


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


def _tell(breaker: Breaker, call: Call, error: DBAPIError) -> None:
    """Whether that was no answer at all, or one we do not like: a lock held too long, a constraint
    broken, a disk that is full.
    """
    state = getattr(error.orig, "sqlstate", None)
    if state is None or state.startswith(NO_ANSWER):
        breaker.failed(call)
    else:
        breaker.answered(call)


@contextmanager
def _primary_only(connection: Connection) -> Iterator[None]:
    """Let go of a server that became read-only: the next connection finds the new primary."""
    try:
        yield
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == READ_ONLY:
            connection.invalidate(error)
        raise


class _Impatient(psycopg.Connection[Any]):
    """A connection that stops waiting for a server which answers nobody any more, and whose errors
    hold no value of a row.

    psycopg waits for ever, and none of the server's timeouts runs while it is stopped. Every error
    of the server comes out of `wait`: here, before SQLAlchemy words its own by it and anybody (us,
    uvicorn, Celery) writes a traceback.
    """

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        """As psycopg's own, with a look at the breaker whenever nothing came for 0.1 s."""
        try:
            return self._wait(gen, *arguments, **options)
        except psycopg.Error as error:
            _name_no_value(error)
            raise

    def _wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        asking = _asking.get()
        if asking is None:
            return super().wait(gen, *arguments, **options)
        breaker, call = asking

        def look() -> Generator[Any, Any, Any]:
            try:
                wanted = next(gen)
                while True:
                    ready = yield wanted
                    if not ready and breaker.gives_up(call):
                        self.pgconn.finish()
                        raise psycopg.OperationalError("it answers nobody any more")
                    wanted = gen.send(ready)
            except StopIteration as end:
                return end.value

        return super().wait(look(), *arguments, **options)


def _name_no_value(error: psycopg.Error) -> None:
    """Leave of what Postgres says the sentence and the names of things. Its DETAIL and CONTEXT hold
    rows: file names, metadata, words of a transcript.
    """
    diag, state = error.diag, error.sqlstate or ""
    if diag.message_primary is None:
        return  # the server said nothing: the words are psycopg's
    refused = state.startswith(REFUSED_VALUES)
    said = "a value was refused" if refused else diag.message_primary.partition("\n")[0]
    names = [diag.table_name, diag.column_name, diag.constraint_name]
    error.args = (" ".join([said, f"({state})", *(name for name in names if name)]),)


def _connect(_dialect: Any, _record: Any, words: Any, options: Any) -> Any:
    """Connect, unless who asks has waited too long already."""
    asking = _asking.get()
    if asking is not None and asking[0].gives_up(asking[1]):
        raise psycopg.OperationalError("it answers nobody any more")
    return _Impatient.connect(*words, **options)


def clock_ms(connection: Connection) -> int:
    """Postgres' own time, ms: the clock of every arrival."""
    now = connection.execute(text("SELECT extract(epoch FROM clock_timestamp()) * 1000"))
    return int(now.scalar_one())
