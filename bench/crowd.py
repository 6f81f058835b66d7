"""A crowd at the door: many small uploads by many clients, alone and beside thousands who wait.

    python -m bench.crowd [--files 10000] [--clients 50] [--idle 5000] [--json]

One API process as `fairscribe up` starts it, real Postgres, a real Redis server, all on disk. Half
of the uploads go in while `--idle` long polls are open at once (`GET /v1/jobs/{id}?wait=60`, asked
again whenever one is answered), half while there are none, in turn. Exits with 0 when no upload was
lost (every id that was answered has one row and its recording) and no answer was a 5xx.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import text

from bench.asked import until_answered, wait_in_line
from bench.demo import throwaway_home
from pipeline.parts import Parts, open_parts
from pipeline.settings import read_settings, sqlalchemy_url
from pipeline.store import schema
from pipeline.store.session import open_store
from workers.command_lines import command_line
from workers.die_with_parent import die_with_parent
from workers.postgres import Postgres
from workers.state_folder import StateFolder
from workers.valkey import Valkey

RECORDING = b"RIFF" + bytes(range(256)) * 32
"""Some 8 KB: a second of a call. Nobody reads it here."""

FREE_S = 0.1
"""An API that answers a small question as quickly has no line of looks before it."""

TURNS = 2
"""Parts with and without idle polls, of each."""


@dataclass
class Crowd:
    """What was answered, as it comes in."""

    port: int
    statuses: Counter[int] = field(default_factory=Counter)
    ids: list[str] = field(default_factory=list)
    polls: Counter[int] = field(default_factory=Counter)
    open_polls: int = 0

    async def upload(self, count: int, clients: int) -> list[float]:
        """So many uploads by so many clients, each on a connection of its own; seconds each."""
        numbers, took_s = iter(range(count)), list[float]()

        async def client() -> None:
            line = Line(self.port)
            for number in numbers:
                body, boundary = form(number)
                head = f"Content-Type: multipart/form-data; boundary={boundary}\r\n"
                began_s = time.perf_counter()
                status, told = await line.ask("POST", "/v1/jobs", head, body)
                took_s.append(time.perf_counter() - began_s)
                self.statuses[status] += 1
                if status == 202:
                    self.ids.extend(job["id"] for job in told["jobs"])
            line.close()

        await asyncio.gather(*(client() for _ in range(clients)))
        return took_s

    async def idle(self, job_id: str) -> None:
        """One long poll after the other, until cancelled."""
        line = Line(self.port)
        try:
            while True:
                self.open_polls += 1
                try:
                    status, _ = await line.ask("GET", f"/v1/jobs/{job_id}?wait=60")
                finally:
                    self.open_polls -= 1
                self.polls[status] += 1
        finally:
            line.close()


class Line:
    """One connection that is kept; as little code as asks and reads."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._to: asyncio.StreamWriter | None = None

    async def ask(self, method: str, path: str, head: str = "", body: bytes = b"") -> Any:
        """(status, JSON). Status 0: the connection ended without an answer."""
        try:
            if self._to is None:
                self._from, self._to = await asyncio.open_connection("127.0.0.1", self._port)
            asked = f"{method} {path} HTTP/1.1\r\nHost: here\r\n{head}"
            self._to.write(f"{asked}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = (await self._from.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(answer.partition("content-length: ")[2].partition("\r\n")[0])
            told = await self._from.readexactly(length)
            return int(answer[9:12]), json.loads(told or b"{}")
        except (OSError, EOFError):
            self.close()
            return 0, {}

    def close(self) -> None:
        """Hang up."""
        if self._to is not None:
            self._to.close()
            self._to = None


def form(number: int) -> tuple[bytes, str]:
    """A form with one recording, and its boundary."""
    parts = (
        b'--b\r\nContent-Disposition: form-data; name="batch_id"\r\n\r\ncrowd\r\n',
        b'--b\r\nContent-Disposition: form-data; name="files"; filename="call-%d.wav"\r\n\r\n'
        % number,
        *(RECORDING, b"%d" % number, b"\r\n--b--\r\n"),
    )
    return b"".join(parts), "b"


async def measured(crowd: Crowd, waits: Sequence[str], files: int, clients: int) -> dict[str, Any]:
    """Uploads without and with idle polls, in turn."""
    await crowd.upload(min(files, 4 * clients), clients)  # connections, threads, caches: once
    took_s: dict[str, list[float]] = {"alone": [], "beside_idle": []}
    spent_s: dict[str, float] = dict.fromkeys(took_s, 0.0)
    fewest_open = len(waits)
    for turn in range(2 * TURNS):
        kind = list(took_s)[turn % 2]
        polls = [asyncio.create_task(crowd.idle(one)) for one in waits if turn % 2]
        await until_open(crowd, len(polls))
        began_s = time.perf_counter()
        took_s[kind] += await crowd.upload(files // (2 * TURNS), clients)
        spent_s[kind] += time.perf_counter() - began_s
        if polls:
            fewest_open = min(fewest_open, crowd.open_polls)
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*polls, return_exceptions=True)
    p99 = {kind: statistics.quantiles(times, n=100)[98] for kind, times in took_s.items()}
    return {
        **{kind: quantiles(times, spent_s[kind]) for kind, times in took_s.items()},
        "p99_ratio": round(p99["beside_idle"] / p99["alone"], 2),
        "idle_open": fewest_open,
    }


async def until_open(crowd: Crowd, count: int, within_s: float = 300.0) -> None:
    """All polls are open and the API waits for their jobs: it looked at each of them once."""
    if not count:
        return
    line, end_s, asked_s = Line(crowd.port), time.monotonic() + within_s, within_s
    while crowd.open_polls < count or asked_s > FREE_S:
        if time.monotonic() > end_s:
            raise SystemExit(f"not {count} polls open within {within_s:g} s")
        await asyncio.sleep(FREE_S)
        began_s = time.monotonic()
        # it stands in line behind the looks of those that were just opened
        await line.ask("GET", "/v1/jobs?limit=1")
        asked_s = time.monotonic() - began_s
    line.close()


def quantiles(took_s: Sequence[float], spent_s: float) -> dict[str, float]:
    """How long uploads took, in milliseconds, and how many a second there were."""
    cuts = statistics.quantiles(took_s, n=100)
    return {
        "accept_p50_ms": round(1000 * cuts[49], 1),
        "accept_p99_ms": round(1000 * cuts[98], 1),
        "accept_max_ms": round(1000 * max(took_s), 1),
        "files_a_s": round(len(took_s) / spent_s, 1),
    }


def lost(parts: Parts, ids: Sequence[str]) -> dict[str, int]:
    """What was answered against what is there."""
    with parts.store.connect() as c:
        rows = c.execute(text("SELECT id::text, storage_key, size_bytes FROM jobs")).fetchall()
    kept = {row.id: row for row in rows if row.size_bytes > 1}
    sizes = (
        (parts.storage.size(kept[job_id].storage_key), kept[job_id].size_bytes)
        for job_id in ids
        if job_id in kept
    )
    return {
        "accepted": len(ids),
        "rows": len(kept),
        "lost": sum(job_id not in kept for job_id in ids) + sum(a != b for a, b in sizes),
    }


@contextmanager
def api_process(home: Path) -> Iterator[tuple[Parts, int, int]]:
    """Servers and an API process of its own: the parts, its port, its process id."""
    folder = StateFolder(home / "servers")
    with folder:
        postgres, valkey = Postgres(folder), Valkey(folder)
        with socket.create_server(("127.0.0.1", 0)) as door:
            port = door.getsockname()[1]
        try:
            env = {
                "FAIRSCRIBE_HOME": str(home / "state"),
                "FAIRSCRIBE_DATABASE_URL": postgres.start(),
                "FAIRSCRIBE_REDIS_URL": valkey.start(),
                "FAIRSCRIBE_API_PORT": str(port),
                "FAIRSCRIBE_ENGINE": "echo",
            }
            settings = read_settings(env)
            store = open_store(sqlalchemy_url(env["FAIRSCRIBE_DATABASE_URL"]))
            schema.upgrade(store)
            store.dispose()
            parts = open_parts(settings)
            with (home / "api.log").open("wb") as log:
                api = subprocess.Popen(
                    command_line("api", settings),
                    env=os.environ | env,
                    stdout=log,
                    stderr=log,
                    preexec_fn=die_with_parent(signal.SIGTERM),
                )
            try:
                until_answered(port, api)
                yield parts, port, api.pid
            finally:
                api.terminate()
                api.wait()
                parts.store.dispose()
        finally:
            valkey.stop()
            postgres.stop()


def cpu_s(pid: int) -> float:
    """Seconds of CPU a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(files: int, clients: int, idle: int) -> dict[str, Any]:
    """The whole of it; what is printed."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    with throwaway_home() as home, api_process(home) as (parts, port, pid):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # after: the API minds its own
        try:
            waits = wait_in_line(parts, idle) if idle else []
            crowd = Crowd(port)
            found = asyncio.run(measured(crowd, waits, files, clients))
            used_s = cpu_s(pid)
            kept = lost(parts, crowd.ids)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))
    failed = {status: n for status, n in crowd.statuses.items() if status != 202}
    bad_polls = {status: n for status, n in crowd.polls.items() if status != 200}
    return {
        "files": files,
        "clients": clients,
        "idle": idle,
        **found,
        **kept,
        "5xx": sum(n for status, n in failed.items() if not 200 <= status < 500),
        "not_202": failed,
        "polls_answered": crowd.polls[200],
        "polls_failed": bad_polls,
        "api_cpu_s": round(used_s, 1),
    }


def main() -> int:
    """Run it."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--files", type=int, default=10_000)
    options.add_argument("--clients", type=int, default=50)
    options.add_argument("--idle", type=int, default=5_000)
    options.add_argument("--json", action="store_true", help="one line of JSON and nothing else")
    given = options.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):  # leave no folder behind then either
        signal.signal(number, lambda *_: sys.exit(1))
    found = run(given.files, given.clients, given.idle)
    print(json.dumps(found, indent=None if given.json else 2), flush=True)
    return 0 if found["lost"] == found["5xx"] == 0 and not found["not_202"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
