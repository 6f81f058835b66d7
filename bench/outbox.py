"""What it costs a job's end to tell webhooks of it: ms a job, alone and with so many webhooks.

    python -m bench.outbox

Jobs are failed one by one on real Postgres, each in a transaction of its own. Ways take turns, so
that a machine that is busy with other things is so with all of them. `without`: the outbox taken
out.
Prints one line of JSON, medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import uuid_utils.compat as uuid_utils
from sqlalchemy import Engine, delete, literal

from pipeline.settings import sqlalchemy_url
from pipeline.store import jobs, outbox, schema, webhooks
from pipeline.store.session import open_store, transaction
from pipeline.store.tables import webhooks as table
from pipeline.webhooks import EVENTS, new_secret
from tests.servers import start_servers

WAYS = {"without": None, "no_webhook": 0, "one": 1, "twenty": 20}
"""How many webhooks there are; None: no outbox."""


def main() -> int:
    """Run it."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--turns", type=int, default=200)
    turns = options.parse_args().turns
    took_ms: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        database_url, _, stop = start_servers(Path(folder))
        try:
            store = open_store(sqlalchemy_url(database_url))
            schema.upgrade(store)
            for turn in range(turns + 5):
                for way, count in WAYS.items():
                    found = _turn(store, count)
                    took_ms[way] += found if turn >= 5 else []
            store.dispose()
        finally:
            stop()
    print(json.dumps({way: round(statistics.median(all_), 3) for way, all_ in took_ms.items()}))
    return 0


def _turn(store: Engine, count: int | None, each: int = 5) -> list[float]:
    """Fail `each` jobs; the milliseconds each of them took."""
    row: dict[str, Any] = {"file_name": "a", "storage_key": "k", "size_bytes": 1, "sha256": "0"}
    ids = [str(uuid_utils.uuid7()) for _ in range(each)]
    with transaction(store) as c:
        c.execute(delete(table))
        for _ in range(count or 0):
            args = (None, "https://example.com/", new_secret(), EVENTS)
            webhooks.add(c, str(uuid_utils.uuid7()), *args)
        jobs.add_jobs(c, dict.fromkeys(ids, row))
    took_ms = []
    heard = literal(False).label("heard") if count is None else outbox.HEARD
    with mock.patch.object(outbox, "HEARD", heard):
        for job_id in ids:
            begun_s = time.perf_counter()
            with transaction(store) as c:
                jobs.fail(c, job_id, "not_audio", "The file is not audio.")
            took_ms.append((time.perf_counter() - begun_s) * 1000)
    return took_ms


if __name__ == "__main__":
    raise SystemExit(main())
