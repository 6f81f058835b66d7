"""A part that is stopped, killed, read-only or full: what callers are told, how soon, and after."""

from __future__ import annotations

import contextlib
import resource
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
from sqlalchemy import text

from pipeline.errors import PartDown
from pipeline.intake.storage import TOMBSTONES
from pipeline.job import State
from pipeline.parts import Parts, open_parts
from pipeline.queue.redis_queue import connect
from pipeline.settings import read_settings, sqlalchemy_url
from pipeline.store import schema
from pipeline.store.session import breaker_of, open_store, transaction
from tests import lines
from tests.lines import eventually
from tests.listening import listening
from tests.servers import throwaway_home
from workers.echo_engine import EchoEngine
from workers.postgres import Postgres
from workers.state_folder import StateFolder
from workers.valkey import Valkey

AT_ONCE_S = 0.25
"""No timeout of anybody: the machine may be busy with other tests."""

SHORTEST_TIMEOUT_S = 2.0
"""Of all that could be waited for: who was told sooner has waited for nobody."""

BACK_WITHIN_S = 4.0
"""It is asked once a second and the answer takes a moment; the rest is for a busy machine."""


class Stores:
    """Servers of this module's own, which it may stop and kill."""

    def __init__(self, folder: StateFolder) -> None:
        self.postgres, self.valkey = Postgres(folder), Valkey(folder)
        self.urls = {"DATABASE_URL": self.postgres.start(), "REDIS_URL": self.valkey.start()}
        store = open_store(sqlalchemy_url(self.urls["DATABASE_URL"]))
        schema.upgrade(store)
        store.dispose()


@pytest.fixture(scope="module")
def stores() -> Iterator[Stores]:
    with throwaway_home() as home, StateFolder(home) as folder:
        stores = Stores(folder)
        yield stores
        stores.postgres.stop()
        stores.valkey.stop()


@pytest.fixture
def given(stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    given = {f"FAIRSCRIBE_{name}": url for name, url in stores.urls.items()}
    given |= {"FAIRSCRIBE_HOME": str(tmp_path / "home"), "FAIRSCRIBE_ENGINE": "echo"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return given


@pytest.fixture
def parts(given: dict[str, str], stores: Stores) -> Iterator[Parts]:
    opened = open_parts(read_settings(given))
    with transaction(opened.store) as c:
        c.execute(text("TRUNCATE jobs CASCADE"))
    connect(stores.urls["REDIS_URL"]).flushall()
    yield opened
    opened.store.dispose()


@pytest.fixture
def api(given: dict[str, str]) -> Iterator[httpx.Client]:
    with (
        listening() as url,
        httpx.Client(base_url=url, trust_env=False, timeout=60) as client,
    ):
        yield client


@contextlib.contextmanager
def stopped(server: Postgres | Valkey) -> Iterator[None]:
    """The server and all it started answer nobody, yet nothing says that they are gone."""
    assert server.process is not None
    main = psutil.Process(server.process.pid)
    tree = [main, *main.children(recursive=True)]
    for one in tree:
        one.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for one in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def killed(server: Postgres | Valkey) -> Iterator[None]:
    assert server.process is not None
    for one in psutil.Process(server.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    server.process.kill()
    server.process.wait()
    try:
        yield
    finally:
        server.start()


GONE = pytest.mark.parametrize("gone", [stopped, killed])
Gone = Callable[[Postgres | Valkey], contextlib.AbstractContextManager[None]]


def timed(ask: Callable[[], httpx.Response]) -> tuple[httpx.Response, float]:
    begun_s = time.monotonic()
    return ask(), time.monotonic() - begun_s


def count(parts: Parts, state: State) -> int:
    """Jobs in this state, as far as Postgres is there to tell."""
    with contextlib.suppress(PartDown):
        return lines.states(parts).get(state, 0)
    return 0


def upload(api: httpx.Client) -> httpx.Response:
    return api.post("/v1/jobs", files={"files": ("a.wav", b"RIFF")})


@GONE
def test_without_postgres_everybody_is_told_to_come_again_at_once(
    gone: Gone, stores: Stores, parts: Parts, api: httpx.Client
) -> None:
    def ask(n: int) -> tuple[httpx.Response, float]:
        paths = ("/v1/jobs", f"/v1/jobs/{job_id}", "/v1/batches/b", "/v1/health/ready")
        return timed(lambda: api.get(paths[n % 4]) if n % 5 else upload(api))

    job_id = lines.received_job(parts)
    assert api.get(f"/v1/jobs/{job_id}").status_code == 200
    with ThreadPoolExecutor(50) as callers:
        with gone(stores.postgres):
            # the first wave may wait as long as it takes to be sure, and no longer
            first = list(callers.map(ask, range(50)))
            assert max(took_s for _, took_s in first) < 12
            answers = list(callers.map(ask, range(200)))
            assert {(a.status_code, a.json()["code"]) for a, _ in [*first, *answers]} == {
                (503, "part_down")
            }
            assert {a.headers["retry-after"] for a, _ in answers} == {"2"}
            alone = sorted(ask(n)[1] for n in range(200))
            assert alone[100] < 0.1, alone
            assert alone[-1] < SHORTEST_TIMEOUT_S, alone
            metrics = api.get("/metrics")
            assert metrics.status_code == 200
            assert 'fairscribe_breaker_open{part="Postgres"} 1.0' in metrics.text
        back_s = time.monotonic()
        eventually(lambda: api.get(f"/v1/jobs/{job_id}").status_code == 200, BACK_WITHIN_S)
        assert time.monotonic() - back_s < BACK_WITHIN_S
        assert {answer.status_code for answer, _ in callers.map(ask, range(1, 5))} <= {200, 404}
    assert not list((parts.settings.home / "storage" / "recordings").glob("*"))


@GONE
def test_without_redis_uploads_are_accepted_quickly_and_run_when_it_is_back(
    gone: Gone, stores: Stores, parts: Parts, api: httpx.Client
) -> None:
    upload(api)
    waiting = lines.surveyed_job(parts)
    with gone(stores.valkey):
        took = [timed(lambda: upload(api)) for _ in range(20)]
        assert {answer.status_code for answer, _ in took} == {202}
        assert sum(took_s for _, took_s in took) < 15
        told = [timed(lambda: api.get(f"/v1/jobs/{waiting}")) for _ in range(20)]
        assert {(a.status_code, a.json()["position"]) for a, _ in told} == {(200, None)}
        assert sorted(took_s for _, took_s in told)[10] < AT_ONCE_S
        shown = api.get("/metrics").text
        assert 'fairscribe_breaker_open{part="Redis"} 1.0' in shown
        assert 'fairscribe_breaker_open{part="Postgres"} 0.0' in shown
    with lines.pulling(parts):
        eventually(lambda: lines.states(parts).get(State.COMPLETED) == 1, 30)
    eventually(lambda: api.get("/v1/health/ready").status_code == 200, BACK_WITHIN_S)


def test_a_postgres_that_became_a_copy_takes_no_uploads_and_loses_none(
    stores: Stores, parts: Parts, api: httpx.Client
) -> None:
    def demote(on: str) -> None:
        # as after a failover, with connections open to what was the primary
        with open_store(sqlalchemy_url(stores.urls["DATABASE_URL"])).connect() as c:
            c = c.execution_options(isolation_level="AUTOCOMMIT")
            c.execute(text("SET default_transaction_read_only = off"))
            c.execute(text(f"ALTER DATABASE fairscribe SET default_transaction_read_only = {on}"))
            c.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE pid <> pg_backend_pid() AND datname = 'fairscribe'"
                )
            )

    assert upload(api).status_code == 202
    demote("on")
    try:
        answers = [upload(api) for _ in range(10)]
        assert {answer.status_code for answer in answers} == {503}
        # it reads: the breaker stays closed
        assert api.get("/v1/jobs").status_code == 200
    finally:
        demote("off")
    eventually(lambda: upload(api).status_code == 202, BACK_WITHIN_S)


@contextlib.contextmanager
def disk_full(room_bytes: int) -> Iterator[None]:
    """Files of this process grow no further: what the system says then is as of a full quota."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size_bytes", [400_000, 5_000_000])
def test_a_full_disk_is_told_leaves_nothing_behind_and_is_over_when_there_is_room(
    size_bytes: int, parts: Parts, api: httpx.Client
) -> None:
    def send() -> httpx.Response:
        return api.post("/v1/jobs", files={"files": ("a.wav", b"R" * size_bytes)})

    def left() -> list[Path]:
        files = (one for one in parts.settings.home.rglob("*") if one.is_file())
        return [one for one in files if one.parent.name != TOMBSTONES]

    with disk_full(200_000):
        for _ in range(5):
            answer = send()
            assert (answer.status_code, answer.json()["code"]) == (503, "part_down"), answer.text
            assert answer.json()["detail"] == "Storage is full; try again shortly."
            assert answer.headers["retry-after"] == "2"
        # it reads and erases: the breaker stays closed
        assert upload(api).status_code == 202
        assert api.delete(f"/v1/jobs/{upload(api).json()['jobs'][0]['id']}").status_code == 204
        assert len(left()) == 1
    assert send().status_code == 202
    assert lines.states(parts) == {State.RECEIVED: 2}


def test_a_constraint_or_a_lock_held_too_long_does_not_open_the_breaker(parts: Parts) -> None:
    for _ in range(10):
        with pytest.raises(Exception, match="lives"), transaction(parts.store):
            raise ValueError("it lives")
        with pytest.raises(Exception, match="22012"), transaction(parts.store) as c:
            c.execute(text("SELECT 1/0"))
        hasty = text("SELECT set_config('statement_timeout', '10ms', true); SELECT pg_sleep(5)")
        with pytest.raises(Exception, match="timeout"), transaction(parts.store) as c:
            c.execute(hasty)
        assert not breaker_of(parts.store).is_open


@pytest.mark.parametrize("away_s", [6.0, pytest.param(60.0, marks=pytest.mark.slow)])
def test_a_worker_hears_on_while_postgres_is_away_and_saves_it_afterwards(
    away_s: float, stores: Stores, parts: Parts
) -> None:
    job_id = lines.surveyed_job(parts, windows=12)
    engine = EchoEngine(slots=2, fixed_s=0.3)
    with lines.pulling(parts, engine):
        eventually(lambda: lines.states(parts).get(State.RUNNING) == 1, 20)
        with stopped(stores.postgres):
            time.sleep(away_s)  # longer than every timeout is the point
        eventually(lambda: count(parts, State.COMPLETED) == 1, 30)
    with transaction(parts.store) as c:
        (attempt,) = c.execute(text(f"SELECT attempt FROM jobs WHERE id = '{job_id}'")).one()
    assert attempt == 1, "nobody else had to take it"
