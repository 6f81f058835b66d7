"""Webhooks and the errands worker that tells them: killed, kept waiting, and begun again."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipeline.caller import ANYONE
from pipeline.crash_points import EXIT_CODE, VARIABLE
from pipeline.job import State
from pipeline.parts import Parts
from pipeline.steps.accept import Upload, accept
from pipeline.steps.cancel import cancel_batch
from pipeline.store import jobs
from pipeline.store.session import transaction
from pipeline.webhooks import verify
from tests.integration.test_errands import tone
from tests.integration.test_fetch import view
from tests.integration.test_webhooks import SECRET, add, failed_job, log_of, make_due, sql, state
from tests.lines import eventually
from tests.web import Web
from workers.command_lines import command_line


@contextmanager
def worker(
    parts: Parts, environ: dict[str, str], log: Path, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    """An errands worker; killed at the end."""
    with log.open("ab") as out:
        running = subprocess.Popen(
            command_line("errands", parts.settings),
            env={**os.environ, **environ, "FAIRSCRIBE_WEBHOOK_PRIVATE": "true", **variables},
            stdout=out,
            stderr=out,
        )
    try:
        yield running
    except BaseException:
        print(log.read_text()[-4000:])
        raise
    finally:
        running.kill()
        running.wait()


@pytest.mark.parametrize(("point", "came"), [("delivery_taken", 0), ("delivery_sent", 1)])
def test_a_worker_killed_before_or_after_it_sent_costs_no_news_and_the_id_stays(
    parts: Parts, environ: dict[str, str], web: Web, tmp_path: Path, point: str, came: int
) -> None:
    hook = add(parts, web.page("/hook"))
    failed_job(parts)  # committed: from here on nothing that dies may lose it
    with worker(parts, environ, tmp_path / "log", **{VARIABLE: point}) as dying:
        assert dying.wait(30) == EXIT_CODE
    (told,) = log_of(parts, hook)
    assert (told.status, told.attempts, len(web.sent)) == ("waiting", 1, came)
    with worker(parts, environ, tmp_path / "log"):
        make_due(parts)  # its lease ran out
        eventually(lambda: log_of(parts, hook)[0].status == "delivered", 30)
    assert len(web.sent) == came + 1
    assert {headers["webhook-id"] for _, headers, _ in web.sent} == {told.id}
    for _, headers, body in web.sent:
        verify(SECRET, headers, body)


def test_503_twice_and_a_killed_worker_between_then_it_comes_through(
    parts: Parts, environ: dict[str, str], web: Web, tmp_path: Path
) -> None:
    hook = add(parts, web.page("/hook", b"", 503))
    failed_job(parts)
    with worker(parts, environ, tmp_path / "log") as first:
        eventually(lambda: log_of(parts, hook)[0].last_status == 503, 30)
        make_due(parts)
        eventually(lambda: len(web.sent) == 2, 10)
        first.kill()
    web.page("/hook")
    with worker(parts, environ, tmp_path / "log"):
        make_due(parts)
        eventually(lambda: log_of(parts, hook)[0].status == "delivered", 30)
    assert len(web.sent) == 3
    assert len({headers["webhook-id"] for _, headers, _ in web.sent}) == 1


def test_a_thousand_jobs_and_a_slow_receiver_keep_no_recording_from_being_probed(
    parts: Parts, environ: dict[str, str], web: Web, tmp_path: Path
) -> None:
    gate = threading.Event()

    def slow(request: Any) -> None:
        gate.wait(60)
        answer(request)

    hook = add(parts, web.page("/slow"))
    answer, web.pages["/slow"] = web.pages["/slow"], slow
    row = {"batch_id": "b", "storage_key": "k", "file_name": "a", "size_bytes": 1, "sha256": "0"}
    with transaction(parts.store) as c:
        jobs.add_jobs(c, {f"00000000-0000-7000-8000-{n:012}": row for n in range(1000)})
    assert cancel_batch(parts.store, parts.queues, "b", ANYONE) == 1000
    assert state(parts, hook).waiting == 1000
    sound = tone(1)
    # so long that none of them is given up, and asked anew, before the gate opens
    patient = {"FAIRSCRIBE_WEBHOOK_TIMEOUT_S": "60"}
    with worker(parts, environ, tmp_path / "log", **patient) as running:
        eventually(lambda: web.busy == 4, 30)
        ids = [
            accept(parts.store, parts.storage, Upload("a.wav", [sound]), 10**6).job_id
            for _ in range(8)
        ]
        begun_s = time.monotonic()
        parts.handover.probe(ids)
        eventually(lambda: all(view(parts, one).state is State.PROBED for one in ids), 40)
        assert (web.busy, web.most_busy) == (4, 4)
        gate.set()
        eventually(lambda: state(parts, hook).waiting == 0, 60, "all are told")
        print(f"told in {time.monotonic() - begun_s:.1f} s")
        assert web.most_busy == 4
        # a worker that is told to end does not wait for a slow receiver
        gate.clear()
        failed_job(parts)
        eventually(lambda: web.busy == 1)
        begun_s = time.monotonic()
        running.send_signal(signal.SIGTERM)
        assert running.wait(20) == 0
        assert time.monotonic() - begun_s < 10
        gate.set()
    times = Counter(headers["webhook-id"] for _, headers, _ in web.sent)
    assert set(times.values()) == {1}
    assert len(times) == 1001
    assert sql(parts, "SELECT count(*) FROM deliveries WHERE delivered_at IS NULL") == [(1,)]
