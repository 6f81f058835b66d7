"""How many forecasts an API process answers in a second: `GET /v1/jobs/{id}` of jobs that wait.

    python -m bench.asked --waiting 10000

Real Postgres, a real Redis server and the API in a process of its own; the workers are only said to
be there, so that the line stays as long as it is. Prints one line of JSON. The clients take their
share of the same cores.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import uuid_utils.compat as uuid_utils
from sqlalchemy import insert

from pipeline.job import STAGES, TRANSCRIBE
from pipeline.parts import Parts, open_parts
from pipeline.scheduling.policies import Waiting
from pipeline.settings import DEFAULT_POLICY, read_settings, sqlalchemy_url
from pipeline.store import schema
from pipeline.store.session import clock_ms, open_store, transaction
from pipeline.store.tables import jobs
from tests.servers import start_servers


def main() -> int:
    """Run it."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--waiting", type=int, default=10_000)
    options.add_argument("--clients", type=int, default=4)
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--policy", default=DEFAULT_POLICY)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        database_url, redis_url, stop = start_servers(Path(folder))
        try:
            found = _ask(given, Path(folder), database_url, redis_url)
        finally:
            stop()
    print(json.dumps(found))
    return 0


def _ask(given: Any, folder: Path, database_url: str, redis_url: str) -> dict[str, Any]:
    env = {
        "FAIRSCRIBE_HOME": str(folder / "home"),
        "FAIRSCRIBE_DATABASE_URL": database_url,
        "FAIRSCRIBE_REDIS_URL": redis_url,
        "FAIRSCRIBE_POLICY": given.policy,
        "FAIRSCRIBE_ENGINE": "echo",
    }
    store = open_store(sqlalchemy_url(database_url))
    schema.upgrade(store)
    store.dispose()
    parts = open_parts(read_settings(env))
    ids = wait_in_line(parts, given.waiting)
    for stage in STAGES:
        parts.queues[stage.name].board.report_speed(f"{stage.name}@bench", 100.0, 32)
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "pipeline.api.app:create", "--factory"]
    command += ["--port", str(port), "--log-level", "warning"]
    api = subprocess.Popen(command, env=os.environ | env)
    try:
        until_answered(port, api)
        took_s = _served(given, port, ids)
    finally:
        api.terminate()
        api.wait()
        parts.store.dispose()
    return {
        "waiting": given.waiting,
        "policy": given.policy,
        "clients": given.clients,
        "requests_per_s": round(len(took_s) / given.seconds, 1),
        "median_ms": round(1000 * statistics.median(took_s), 2),
        "p99_ms": round(1000 * statistics.quantiles(took_s, n=100)[98], 2),
    }


def wait_in_line(parts: Parts, count: int) -> list[str]:
    """The ids of so many jobs that wait for an engine, in Postgres and in the queue."""
    rng = random.Random(count)
    with transaction(parts.store) as c:
        now_ms = clock_ms(c)
        places = [
            Waiting(
                str(uuid_utils.uuid7()), rng.randrange(40, 110), now_ms - rng.randrange(600_000)
            )
            for _ in range(count)
        ]
        rows = [_row(place) for place in places]
        c.execute(insert(jobs), rows)
    parts.queues[TRANSCRIBE.name].enqueue(places)
    return [place.job_id for place in places]


def _row(place: Waiting) -> dict[str, Any]:
    return {
        "id": place.job_id,
        "bucket": place.bucket,
        "arrival_ms": place.arrival_ms,
        "state": TRANSCRIBE.waiting.value,
        "file_name": "call.wav",
        "storage_key": place.job_id,
        "size_bytes": 1,
        "sha256": "0" * 64,
        "duration_s": 60.0,
        "speech_s": 50.0,
        "windows_total": 2,
    }


def until_answered(port: int, api: subprocess.Popen[bytes], within_s: float = 60.0) -> None:
    """The API takes connections. Raises `SystemExit` when it does not."""
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s and api.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the API does not answer")


def _served(given: Any, port: int, ids: list[str]) -> list[float]:
    """What each request took, of all clients in `given.seconds`."""
    took_s: list[float] = []
    began_s = time.monotonic()

    def ask(seed: int) -> None:
        rng, line = random.Random(seed), http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        while (asked_s := time.monotonic()) < began_s + given.seconds:
            line.request("GET", f"/v1/jobs/{rng.choice(ids)}")
            answer = line.getresponse()
            told = json.loads(answer.read())
            if answer.status != 200 or told["position"] is None or told["eta_s"] is None:
                raise AssertionError(told)
            took_s.append(time.monotonic() - asked_s)

    clients = [threading.Thread(target=ask, args=(n,)) for n in range(given.clients)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return took_s


if __name__ == "__main__":
    raise SystemExit(main())
