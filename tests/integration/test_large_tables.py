"""A large installation is brought to this schema while it goes on writing; its pages stay short.

By hand with more rows: `LARGE_ROWS=1000000 .venv/bin/python -m pytest -m slow -s
tests/integration/test_large_tables.py` prints what everything took.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from pipeline.caller import ANYONE
from pipeline.settings import sqlalchemy_url
from pipeline.steps.erase import count_where
from pipeline.store import erasures, retention, schema
from pipeline.store.erasures import Whose
from pipeline.store.retention import Due, Keep
from pipeline.store.session import open_store, transaction
from tests.servers import start_servers

ROWS = int(os.environ.get("LARGE_ROWS", "100000"))
WRITES_WITHIN_S = 1.0
"""The longest a worker's write may wait for a migration."""
PAGE_WITHIN_S = 0.05

FILL = """
    INSERT INTO jobs (id, batch_id, file_name, metadata, storage_key, size_bytes, sha256, state,
                      arrival_ms, duration_s, speech_s, model, created_at, completed_at)
    SELECT (lpad(to_hex(1700000000000 + n), 12, '0') || '70008000000000000000')::uuid,
        'batch-' || n / 1000, 'call-' || n || '.wav',
        jsonb_build_object('customer_id', (n % 50000)::text, 'agent', 'a' || n % 300),
        'recordings/' || n, 3400000, repeat('0', 64), 'completed', 1700000000000 + n, 214.5, 150,
        'tiny.en', clock_timestamp(), clock_timestamp() - make_interval(secs => (:rows - n) * 60.0)
    FROM generate_series(1, :rows) AS n
"""
SUBMISSIONS = """
    INSERT INTO submissions (key, fingerprint, job_ids)
    SELECT 'key-' || s, 'f', jsonb_agg(lpad(to_hex(1700000000000 + s * 10 + k), 12, '0'))
    FROM generate_series(0, :rows / 10 - 1) AS s, generate_series(1, 10) AS k GROUP BY s
"""


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Engine]:
    """A Postgres of its own, at 0004, with `ROWS` finished jobs."""
    database_url, _, stop = start_servers(tmp_path)
    store = open_store(sqlalchemy_url(database_url))
    schema.upgrade(store, "0004")
    with transaction(store) as c:
        c.execute(text("SET LOCAL statement_timeout = 0"))
        c.execute(text(FILL), {"rows": ROWS})
        c.execute(text(SUBMISSIONS), {"rows": ROWS})
    with store.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
        c.execute(text("SET statement_timeout = 0"))
        c.execute(text("VACUUM ANALYZE"))
    yield store
    store.dispose()
    stop()


@pytest.mark.slow
def test_a_large_table_is_brought_up_while_workers_write_and_its_pages_are_short(
    large: Engine,
) -> None:
    # Given a worker that writes a row again and again
    waits_s, over = [], threading.Event()

    def write() -> None:
        while not over.is_set():
            began_s = time.monotonic()
            with transaction(large) as c:
                c.execute(text("UPDATE jobs SET updated_at = now() WHERE batch_id = 'batch-0'"))
            waits_s.append(time.monotonic() - began_s)

    worker = threading.Thread(target=write)
    worker.start()
    # When the schema is brought up
    began_s = time.monotonic()
    try:
        schema.upgrade(large)
    finally:
        over.set()
        worker.join()
    took_s = time.monotonic() - began_s
    print(f"\n{ROWS:,} jobs to head in {took_s:.1f} s; longest write {max(waits_s):.3f} s")
    # Then no write waited long
    assert max(waits_s) < WRITES_WITHIN_S
    # And a page takes no time, the first one and any other
    days = ROWS / 1440
    keep = Keep(audio_days=days / 2, transcripts_days=days * 0.9, jobs_days=days / 2)
    timed("recordings, a page", large, lambda c: retention.audio_page(c, days / 2, None, 100))
    timed("jobs, a page", large, lambda c: retention.jobs_page(c, days / 2, None, 100))
    pages_s, since, erased = [], None, 0
    while True:
        began_s = time.monotonic()
        with transaction(large) as c:
            page = retention.transcripts_page(c, days * 0.9, since, 100)
            retention.erase_transcripts(c, [old.job_id for old in page])
        pages_s.append(time.monotonic() - began_s)
        erased += len(page)
        if len(page) < 100:
            break
        since = page[-1].ended_at
    worst = sorted(pages_s)[-1]
    print(
        f"{erased:,} transcripts in pages of 100: median "
        f"{statistics.median(pages_s) * 1000:.1f} ms, longest {worst * 1000:.1f} ms"
    )
    assert statistics.median(pages_s) < PAGE_WITHIN_S
    whose = Whose(ANYONE, {"customer_id": "42"})
    timed("2,000 jobs' metadata", large, lambda c: erasures.page(c, whose, None, 2000))
    began_s = time.monotonic()
    assert count_where(large, whose) == ROWS // 50_000
    print(f"all jobs of one customer found: {time.monotonic() - began_s:.1f} s")
    began_s = time.monotonic()
    with transaction(large) as c:
        found = retention.due(c, keep)
    print(f"count of what is due: {time.monotonic() - began_s:.3f} s, {found}")
    assert isinstance(found, Due)


def timed(what: str, store: Engine, ask: Callable[[Connection], Any]) -> None:
    with transaction(store) as c:
        ask(c)  # the first one is also compiled
    with transaction(store) as c:
        began_s = time.monotonic()
        found = ask(c)
        took_s = time.monotonic() - began_s
    print(f"{what}: {took_s * 1000:.1f} ms")
    assert found
    assert took_s < PAGE_WITHIN_S, what
