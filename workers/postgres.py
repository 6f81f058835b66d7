"""Our own Postgres: real, on a Unix socket only, safe under kill -9.

In: a locked `StateFolder`. Out: a URL. The data is HOME/postgres. It ends with the process that
started it; should it not, the next start shuts it down before it touches the data.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg.conninfo import make_conninfo

from pipeline.errors import PartDown
from workers.child import last_lines, spawn, stop, wait_ready
from workers.leftovers import shut_down
from workers.server_binaries import SERVER_ENV, postgres_bin
from workers.state_folder import StateFolder

PORT = 5432
"""Only part of the socket's name: nothing listens on TCP."""

FAST, IMMEDIATE = signal.SIGINT, signal.SIGQUIT
"""Postgres' words: end sessions and write a checkpoint; or drop everything and recover later."""

FAST_WITHIN_S, IMMEDIATE_WITHIN_S = 60.0, 5.0


class Postgres:
    """One Postgres server on HOME/postgres, with a database and a role named `fairscribe`."""

    name = "postgres"

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder
        self._has_database = False
        self.data = folder.home / "postgres"
        self.sockets = folder.sockets
        self.log = folder.logs / "postgres.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it answers, in SQLAlchemy's form."""
        host = quote(str(self.sockets), safe="")
        return f"postgresql+psycopg://fairscribe@/fairscribe?host={host}&port={PORT}"

    def start(self) -> str:
        """Start it and wait until it answers, through a recovery of any length; returns `url`.

        Raises `PartDown` with the last lines of its log when it does not come up.
        """
        wait_ready(self.name, self.launch(), self.log, self.is_ready)
        return self.url

    def launch(self) -> subprocess.Popen[bytes]:
        """Start it without waiting. Makes the data folder the first time (about 1 s)."""
        made_by = self.data / "PG_VERSION"
        wanted = made_by.read_text().strip() if made_by.exists() else None
        programs = postgres_bin(self._folder, wanted)
        self._clear_leftovers()
        if wanted is None:
            self._make_data(programs)
        self._folder.server_folder(self.data.name)
        self.process = spawn(
            [programs / "postgres", "-D", self.data, *_settings(self.sockets)],
            self.log,
            env=SERVER_ENV,
            user=self._folder.server_user,
            death_signal=FAST,
            cwd=Path("/"),
        )
        return self.process

    def is_ready(self) -> bool:
        """Whether it answers; makes the database the first time it does."""
        if self.process is None or not self._says_ready(self.process.pid):
            return False
        if not self._has_database:
            self._has_database = self._make_database()
        return self._has_database

    def stop(self) -> None:
        """End it: a fast shutdown, after a minute an immediate one. Nothing if it does not run."""
        if self.process is not None:
            stop(self.process, (FAST, FAST_WITHIN_S), (IMMEDIATE, IMMEDIATE_WITHIN_S))

    def _clear_leftovers(self) -> None:
        """Shut down an older server on this data, then remove the locks of one that was killed.

        Postgres itself only asks whether the number in its lock is alive: a zombie, or a stranger
        with the same number, would keep it from starting for ever.
        """
        socket = self.sockets / f".s.PGSQL.{PORT}"
        ladder = [(FAST, FAST_WITHIN_S), (IMMEDIATE, IMMEDIATE_WITHIN_S)]
        shut_down(["postgres"], self.data, socket, ladder)
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        for left in self.sockets.glob(".s.PGSQL.*"):
            left.unlink(missing_ok=True)

    def _make_data(self, programs: Path) -> None:
        # initdb writes PG_VERSION early: only a finished folder gets the name we look for.
        shutil.rmtree(self._folder.home / "postgres.new", ignore_errors=True)
        new = self._folder.server_folder("postgres.new")
        words = "-U postgres -E UTF8 --no-locale --no-instructions"
        # The socket lies in a folder only its owner (and root) can enter: that is the password.
        words += " --auth-local=trust --auth-host=reject"
        process = spawn(
            [programs / "initdb", "-D", new, *words.split()],
            self.log,
            env=SERVER_ENV,
            user=self._folder.server_user,
            cwd=Path("/"),
        )
        if process.wait() != 0:
            raise PartDown(f"the database could not be made:\n{last_lines(self.log)}")
        if self.data.exists():
            self.data.rmdir()
        new.rename(self.data)

    def _says_ready(self, pid: int) -> bool:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _make_database(self) -> bool:
        """Make role and database unless they are there; False when it does not answer after all."""
        try:
            where = make_conninfo(host=str(self.sockets), port=PORT, user="postgres")
            with psycopg.connect(where, dbname="postgres", autocommit=True) as c:
                if not c.execute("SELECT FROM pg_roles WHERE rolname = 'fairscribe'").fetchall():
                    c.execute("CREATE ROLE fairscribe LOGIN")
                if not c.execute("SELECT FROM pg_database WHERE datname = 'fairscribe'").fetchall():
                    c.execute("CREATE DATABASE fairscribe OWNER fairscribe")
        except psycopg.OperationalError:
            return False
        return True


def _settings(sockets: Path) -> list[str]:
    chosen = {
        "listen_addresses": "",
        "port": PORT,
        "unix_socket_directories": _quoted(sockets),
        "unix_socket_permissions": "0700",
        "shared_buffers": "64MB",
        "max_connections": 100,
        # Written by us: what was acknowledged survives a power cut, and errors are in one file.
        "fsync": "on",
        "logging_collector": "off",
    }
    return [word for name, value in chosen.items() for word in ("-c", f"{name}={value}")]


def _quoted(path: Path) -> str:
    # The setting is a list: a comma or a blank in the path would make it two.
    return '"' + str(path).replace('"', '""') + '"'
