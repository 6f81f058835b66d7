"""A house to break: its own Postgres and Redis, a bad line to each, and real parts as processes.

Everything here is done from the main thread, without waiting long: the kernel ends a child whose
starting thread is gone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg
import redis

from bench.chaos_proxy import PASS, Route
from pipeline.errors import PartDown
from pipeline.settings import sqlalchemy_url
from pipeline.store import schema
from pipeline.store.session import open_store
from tests.servers import throwaway_home
from workers import child
from workers.addresses import take_ports
from workers.postgres import IMMEDIATE, Postgres
from workers.state_folder import StateFolder
from workers.valkey import Valkey

SLOTS = 12
WINDOW_FIXED_S, WINDOW_PER_SECOND_S = 0.1, 0.2
"""What the echo engine takes for a window, and more a second of sound."""

CLAIMED = b"\r\njobs\r\n"
"""Stands in what Redis answers to a claim (claim.lua)."""


@dataclass
class Seat:
    """A place for one process; who sits there changes."""

    name: str
    part: str
    process: subprocess.Popen[bytes] | None = None
    number: int = 0
    """Counts the processes that sat here."""
    since_s: float = 0.0
    stopped: bool = False
    killed: bool = False
    """By us."""
    clock_off_s: float = 0.0

    @property
    def worker(self) -> str:
        """What its process calls itself."""
        return f"{self.name}-{self.number}"

    @property
    def alive(self) -> bool:
        """Whether somebody sits there."""
        return self.process is not None and self.process.poll() is None


class House:
    """Servers, lines, parts. `transcribers`: how many workers with an engine."""

    def __init__(
        self,
        folder: StateFolder,
        *,
        lease_s: float,
        without: str | None,
        seed: int,
        transcribers: int,
    ) -> None:
        self.folder, self.home = folder, folder.home
        self.lease_s, self.without = lease_s, without
        self.notes = self.home / "chaos"
        self.notes.mkdir()
        self.postgres, self.valkey = Postgres(folder), Valkey(folder)
        self.to_postgres = Route(self.postgres.sockets / ".s.PGSQL.5432", seed)
        self.to_redis = Route(self.valkey.socket, seed + 1, telling=CLAIMED)
        names = [
            "api",
            "errands",
            "survey",
            *(f"transcribe{n}" for n in range(1, transcribers + 1)),
        ]
        self.seats = {name: Seat(name, name.rstrip("0123456789")) for name in names}
        self.api_url = ""
        self._environ: dict[str, str] = {}
        self.ended_alone: list[str] = []
        """Processes that ended though nobody killed them, with their exit codes."""

    # -- start and end ----------------------------------------------------------------------

    def start(self) -> None:
        """Everything up, tables made."""
        self.database_url, self.redis_url = self.postgres.start(), self.valkey.start()
        store = open_store(sqlalchemy_url(self.database_url))
        schema.upgrade(store)
        store.dispose()
        self._environ = self._environment()
        for seat in self.seats.values():
            self.seat(seat)

    def stop(self) -> None:
        """End everything."""
        for seat in self.seats.values():
            self.kill(seat)
        for route in (self.to_postgres, self.to_redis):
            if route.port:
                route.stop()
        for server in (self.postgres.process, self.valkey.process):
            if server is not None and server.poll() is None:
                server.send_signal(signal.SIGCONT)
        self.postgres.stop()
        self.valkey.stop()

    def _environment(self) -> dict[str, str]:
        api_port = take_ports(api_port=("127.0.0.1", 0))["api_port"]
        self.api_url = f"http://127.0.0.1:{api_port}"
        where = f"127.0.0.1:{self.to_postgres.start()}/fairscribe?sslmode=disable"
        own = {
            "HOME": self.home,
            "DATABASE_URL": f"postgresql://fairscribe@{where}",
            "REDIS_URL": f"redis://127.0.0.1:{self.to_redis.start()}/0",
            "API_PORT": api_port,
            "ENGINE": "echo",
            "SLOTS": SLOTS,
            "ECHO_FIXED_S": WINDOW_FIXED_S,
            "ECHO_PER_SECOND_S": WINDOW_PER_SECOND_S,
            "LEASE_S": self.lease_s,
            "RENEW_S": self.lease_s / 3,
        }
        foreign = {k: v for k, v in os.environ.items() if not k.startswith("FAIRSCRIBE_")}
        ours = {f"FAIRSCRIBE_{name}": str(value) for name, value in own.items()}
        return {**foreign, **ours, "PYTHONUNBUFFERED": "1"}

    # -- parts ------------------------------------------------------------------------------

    def seat(self, seat: Seat, clock_off_s: float = 0.0) -> None:
        """Start a process there, in place of whoever is dead."""
        if seat.process is not None and not seat.killed:
            self.ended_alone.append(f"{seat.worker} {seat.process.poll()}")
        seat.number += 1
        seat.killed = False
        seat.clock_off_s, seat.stopped, seat.since_s = clock_off_s, False, time.monotonic()
        words = ["-m", "bench.chaos_worker", seat.part, "--home", self.home, "--name", seat.worker]
        words += ["--clock-off", clock_off_s] if clock_off_s else []
        words += ["--without", self.without] if self.without and seat.part != "api" else []
        log = self.folder.logs / f"{seat.name}.log"
        seat.process = child.spawn([sys.executable, *words], log, env=self._environ)

    def kill(self, seat: Seat) -> None:
        """As by kill -9."""
        if seat.process is None or not seat.alive:
            return
        seat.killed = True
        seat.process.kill()
        seat.process.wait()

    def signal(self, seat: Seat, number: signal.Signals) -> None:
        """To a process that may be gone."""
        if seat.process is not None and seat.alive:
            seat.process.send_signal(number)
            seat.stopped = number is signal.SIGSTOP

    def seats_of(self, part: str) -> list[Seat]:
        """All places of a part."""
        return [seat for seat in self.seats.values() if seat.part == part]

    def left_running(self) -> list[str]:
        """Command lines of processes of this house, once it is stopped."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                ours = process.environ().get("FAIRSCRIBE_HOME") == str(self.home)
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(process.cmdline())[:200])
        return found

    # -- servers ----------------------------------------------------------------------------

    def redis(self) -> redis.Redis:
        """Redis itself, not by the line; for one question or two."""
        path = self.valkey.url
        return redis.Redis.from_url(path, decode_responses=True, socket_timeout=2.0)

    def database(self) -> psycopg.Connection:
        """Postgres itself, not by the line; the caller closes it."""
        url = (
            f"postgresql://fairscribe@/fairscribe?host={quote(str(self.postgres.sockets), safe='')}"
        )
        return psycopg.connect(url, autocommit=True, connect_timeout=2)

    def kill_redis(self) -> None:
        """As by kill -9."""
        process = self.valkey.process
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()

    def start_redis(self) -> None:
        """Start it on whatever its folder holds; nothing when it runs."""
        process = self.valkey.process
        if process is None or process.poll() is not None:
            self.valkey.launch()

    def empty_redis(self) -> None:
        """Its folder; it must not run."""
        for entry in self.valkey.data.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def copy_redis(self, to: Path) -> None:
        """What its folder holds now, as a backup made while it runs."""
        shutil.rmtree(to, ignore_errors=True)
        with contextlib.suppress(shutil.Error, OSError):  # a file it renamed meanwhile
            shutil.copytree(self.valkey.data, to)

    def restore_redis(self, copy: Path) -> None:
        """Put a backup back; it must not run."""
        owner = self.valkey.data.stat()
        self.empty_redis()
        shutil.copytree(copy, self.valkey.data, dirs_exist_ok=True)
        for path in (self.valkey.data, *self.valkey.data.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid)

    def restart_postgres(self) -> None:
        """As after a crash: everything dropped, then recovered."""
        process = self.postgres.process
        if process is not None:
            process.send_signal(IMMEDIATE)
            process.wait()
        self.postgres.launch()

    # -- well again -------------------------------------------------------------------------

    def heal(self) -> None:
        """Nothing is broken any more: wait until all servers answer, start whoever is dead."""
        (self.notes / "full").unlink(missing_ok=True)
        for route in (self.to_postgres, self.to_redis):
            if route.mode != PASS:
                route.set(PASS)
        for server in (self.postgres.process, self.valkey.process):
            if server is not None and server.poll() is None:
                server.send_signal(signal.SIGCONT)
        self.start_redis()
        _until(self.valkey.is_ready, 20.0, "Redis")
        _until(self.postgres.is_ready, 20.0, "Postgres")
        with self.redis() as client:
            client.config_set("maxmemory", 0)
        for seat in self.seats.values():
            if seat.stopped:
                self.signal(seat, signal.SIGCONT)
            if not seat.alive:
                self.seat(seat)


def _until(ready: Callable[[], bool], within_s: float, what: str) -> None:
    end_s = time.monotonic() + within_s
    while not ready():
        if time.monotonic() > end_s:
            raise PartDown(f"{what} does not come back")
        time.sleep(0.02)


@contextlib.contextmanager
def house(*, lease_s: float, without: str | None, seed: int, transcribers: int) -> Iterator[House]:
    """A house that is up; nothing of it is left afterwards."""
    with throwaway_home() as home, StateFolder(home) as folder:
        made = House(folder, lease_s=lease_s, without=without, seed=seed, transcribers=transcribers)
        try:
            made.start()
            yield made
        finally:
            made.stop()
