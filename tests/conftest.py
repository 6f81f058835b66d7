"""Real Postgres and a real Redis server for every test that asks, in throw-away folders."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import Engine, text

from bench.sets import CORPUS
from pipeline.intake.prober import Prober
from pipeline.parts import Parts, open_parts
from pipeline.queue.redis_queue import connect
from pipeline.settings import Settings, read_settings, sqlalchemy_url
from pipeline.store import schema
from pipeline.store.session import open_store
from tests.servers import start_servers

# A shell starts background commands with these ignored, and every process below inherits that: a
# test that sends Ctrl-C would wait in vain.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """`database_url` and `redis_url` of servers that live as long as the test run."""
    database_url, redis_url, stop = start_servers(tmp_path_factory.mktemp("servers"))
    store = open_store(sqlalchemy_url(database_url))
    schema.upgrade(store)
    store.dispose()
    yield SimpleNamespace(database_url=database_url, redis_url=redis_url)
    stop()


@pytest.fixture
def environ(servers: SimpleNamespace, tmp_path: Path) -> dict[str, str]:
    """FAIRSCRIBE_* variables of a fresh installation on emptied servers, with the echo engine."""
    _empty(servers)
    return {
        "FAIRSCRIBE_HOME": str(tmp_path / "home"),
        "FAIRSCRIBE_DATABASE_URL": servers.database_url,
        "FAIRSCRIBE_REDIS_URL": servers.redis_url,
        "FAIRSCRIBE_ENGINE": "echo",
        "FAIRSCRIBE_API_PORT": "0",
        "FAIRSCRIBE_FLOWER_PORT": "0",
        "FAIRSCRIBE_HEALTH_CHECK_S": "0",  # tests count what their engine hears
    }


@pytest.fixture
def settings(environ: dict[str, str]) -> Settings:
    """The settings `environ` describes."""
    return read_settings(environ)


@pytest.fixture
def parts(settings: Settings) -> Iterator[Parts]:
    """Parts on emptied servers."""
    opened = open_parts(settings)
    yield opened
    opened.store.dispose()


@pytest.fixture
def store(parts: Parts) -> Engine:
    """An emptied Postgres."""
    return parts.store


@pytest.fixture(scope="session")
def prober() -> Iterator[Prober]:
    """A sandbox that takes recordings of up to an hour."""
    sandbox = Prober(max_duration_s=3_600)
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The shared audio corpus; the test is skipped where it is not laid beside the checkout."""
    if not CORPUS.is_dir():
        pytest.skip("the shared audio corpus is not beside this checkout")
    return CORPUS


def _empty(servers: SimpleNamespace) -> None:
    engine = open_store(sqlalchemy_url(servers.database_url))
    with engine.begin() as c:
        tables = "jobs, policies, submissions, work_models, trials, tenants, webhooks, accesses"
        c.execute(text(f"TRUNCATE {tables} CASCADE"))
    engine.dispose()
    connect(servers.redis_url).flushall()
