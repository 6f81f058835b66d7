"""Redis and Postgres by TLS: the right certificate works, every other way is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from flower.utils.broker import Broker
from kombu import pools

from pipeline.errors import PartDown
from pipeline.handover import ERRANDS_QUEUE, Handover
from pipeline.queue.outage import redis_errors
from pipeline.queue.redis_queue import connect
from pipeline.settings import celery_broker_url, read_settings, sqlalchemy_url
from pipeline.store.session import clock_ms, open_store, transaction
from tests.tls import Authority, authority, door
from workers.app import make_app


@dataclass(frozen=True)
class Doors:
    ours: Authority
    other: Authority
    redis_port: int
    postgres_port: int


@pytest.fixture(scope="module")
def doors(servers: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    folder = tmp_path_factory.mktemp("tls")
    ours, other = authority(folder, "ours"), authority(folder, "other")
    redis_socket = unquote(urlsplit(servers.redis_url).path)
    asked = parse_qs(urlsplit(servers.database_url).query)
    postgres_socket = f"{asked['host'][0]}/.s.PGSQL.{asked['port'][0]}"
    with door(ours, redis_socket) as redis, door(ours, postgres_socket, postgres=True) as postgres:
        yield Doors(ours, other, redis, postgres)


def redis_url(
    doors: Doors, ca: Path | None, host: str = "localhost", scheme: str = "rediss"
) -> str:
    told = f"?ssl_ca_certs={ca}" if ca else ""
    return f"{scheme}://{host}:{doors.redis_port}/0{told}"


def test_redis_and_celery_and_flower_go_by_tls(doors: Doors, environ: dict[str, str]) -> None:
    url = redis_url(doors, doors.ours.ca)
    assert connect(url).ping()
    Handover(celery_broker_url(url)).probe(["a-job"])
    app = make_app(read_settings({**environ, "FAIRSCRIBE_REDIS_URL": url}))
    with app.connection_for_read() as line:
        assert line.SimpleQueue(ERRANDS_QUEUE).get(timeout=5).payload[0] == ["a-job"]
        shown = Broker(line.as_uri(include_password=True), broker_use_ssl=app.conf.broker_use_ssl)
    assert asyncio.run(shown.queues([ERRANDS_QUEUE]))[0]["name"] == ERRANDS_QUEUE


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(lambda d: redis_url(d, d.other.ca), id="another authority"),
        pytest.param(lambda d: redis_url(d, None), id="an unknown authority"),
        pytest.param(lambda d: redis_url(d, d.ours.ca, "127.0.0.1"), id="another name"),
        pytest.param(lambda d: redis_url(d, None, scheme="redis"), id="without TLS"),
    ],
)
def test_a_redis_that_cannot_be_trusted_gets_nothing(how: object, doors: Doors) -> None:
    assert callable(how)
    url = how(doors)
    pools.reset()  # kombu would lend a connection that another certificate opened
    with pytest.raises(PartDown, match="Redis does not answer"), redis_errors():
        connect(url).ping()
    with pytest.raises(PartDown, match="broker does not answer"):
        Handover(celery_broker_url(url)).probe(["a-job"])


def ask_postgres(doors: Doors, told: str, host: str = "localhost") -> int:
    url = f"postgresql://fairscribe@{host}:{doors.postgres_port}/fairscribe?{told}"
    store = open_store(sqlalchemy_url(url))
    try:
        with transaction(store) as c:
            return clock_ms(c)
    finally:
        store.dispose()


def test_postgres_goes_by_tls(doors: Doors) -> None:
    assert ask_postgres(doors, f"sslmode=verify-full&sslrootcert={doors.ours.ca}") > 0


@pytest.mark.parametrize(
    ("told", "host"),
    [
        pytest.param("sslmode=verify-full&sslrootcert={0.other.ca}", "localhost", id="authority"),
        pytest.param("sslmode=verify-full&sslrootcert={0.ours.ca}", "127.0.0.1", id="name"),
        pytest.param("sslmode=disable", "localhost", id="without TLS"),
    ],
)
def test_a_postgres_that_cannot_be_trusted_gets_nothing(told: str, host: str, doors: Doors) -> None:
    with pytest.raises(PartDown, match="Postgres does not answer"):
        ask_postgres(doors, told.format(doors), host)


@pytest.mark.parametrize("spelling", ["unix://:{1}@{0}?db=1", "unix://{0}?db=1&password={1}"])
def test_a_unix_socket_may_ask_for_a_password(
    spelling: str, servers: SimpleNamespace, environ: dict[str, str]
) -> None:
    plain = connect(servers.redis_url)
    url = spelling.format(urlsplit(servers.redis_url).path, "p%2Fw%40")
    plain.config_set("requirepass", "p/w@")
    try:
        assert connect(url).ping()
        Handover(celery_broker_url(url)).probe(["a-job"])
        app = make_app(read_settings({**environ, "FAIRSCRIBE_REDIS_URL": url}))
        with app.connection_for_read() as line:
            assert line.SimpleQueue(ERRANDS_QUEUE).get(timeout=5).payload[0] == ["a-job"]
        with pytest.raises(PartDown), redis_errors():
            connect(url.replace("p%2F", "q%2F")).ping()
    finally:
        plain.config_set("requirepass", "")
        plain.close()
