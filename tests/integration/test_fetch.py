"""Recordings by URL, from the row to the probe: real errands, and a server that misbehaves."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from pipeline.errors import PartDown
from pipeline.fetch.fetcher import Fetcher
from pipeline.handover import ERRANDS_QUEUE
from pipeline.job import State
from pipeline.parts import Parts
from pipeline.queue.redis_queue import connect
from pipeline.steps.accept import Upload, accept, accept_urls, new_job_id
from pipeline.steps.cancel import cancel
from pipeline.steps.erase import erase
from pipeline.steps.fetch import fetch
from pipeline.steps.retry import retry
from pipeline.store import fetches, jobs
from pipeline.store.session import transaction
from tests.integration.test_errands import tone
from tests.lines import eventually, states, view
from tests.web import Web
from workers.command_lines import command_line


@pytest.fixture(scope="module")
def fetcher() -> Fetcher:
    return Fetcher(timeout_s=20.0, private=True)


def named(parts: Parts, *urls: str) -> list[str]:
    said = {"batch_id": "b", "language": None, "metadata": {}, "options": {}}
    made = accept_urls(parts.store, {new_job_id(): url for url in urls}, said)
    return [one.job_id for one in made]


def run(parts: Parts, fetcher: Fetcher, job_id: str, limit: int = 10**6) -> None:
    fetch(parts.store, parts.storage, fetcher, parts.handover, job_id, limit_bytes=limit)


def kept(parts: Parts) -> list[str]:
    return [key for key, _ in parts.storage.keys("recordings")]


def test_a_fetched_recording_is_like_an_uploaded_one(
    parts: Parts, fetcher: Fetcher, web: Web
) -> None:
    url = web.page("/x", b"RIFF", content_disposition='attachment; filename="call.wav"')
    (job_id,) = named(parts, url)
    assert view(parts, job_id).file_name == "x"
    for _ in range(2):  # a message may come twice
        run(parts, fetcher, job_id)
    (key,) = kept(parts)
    with transaction(parts.store) as c:
        row = jobs.recording_of(c, job_id)
        assert fetches.begin(c, job_id) is None
    assert (row.storage_key, row.file_name, row.state) == (key, "call.wav", "received")
    assert parts.storage.read_range(key, 0, 4) == b"RIFF"
    assert len(row.sha256) == 64


@pytest.mark.parametrize(
    ("path", "body", "limit", "code"),
    [
        ("/empty", b"", 10, "empty"),
        ("/large", b"x" * 11, 10, "too_large"),
        ("/gone", None, 10, "fetch_failed"),
    ],
)
def test_what_will_never_be_a_recording_fails_at_once(
    parts: Parts, fetcher: Fetcher, web: Web, path: str, body: bytes | None, limit: int, code: str
) -> None:
    (job_id,) = named(parts, web.url(path) if body is None else web.page(path, body))
    run(parts, fetcher, job_id, limit)
    assert (view(parts, job_id).state, view(parts, job_id).error_code) == (State.FAILED, code)
    assert kept(parts) == []


def test_a_recording_beyond_the_limit_is_cut_off_while_it_comes(
    parts: Parts, fetcher: Fetcher, web: Web
) -> None:
    (job_id,) = named(parts, web.drip("/endless", 0.0))
    run(parts, fetcher, job_id, 1000)
    assert view(parts, job_id).error_code == "too_large"
    assert kept(parts) == []


def test_a_server_that_is_busy_is_asked_four_times(
    parts: Parts, fetcher: Fetcher, web: Web
) -> None:
    (job_id,) = named(parts, web.page("/busy", b"", 503))
    asked = []
    parts.handover.fetch = lambda ids, in_s=0.0: asked.append((ids, in_s))  # type: ignore[method-assign]
    for _ in range(4):
        assert view(parts, job_id).state is State.RECEIVED
        run(parts, fetcher, job_id)
    failed = view(parts, job_id)
    assert (failed.state, failed.error_code) == (State.FAILED, "fetch_failed")
    assert failed.error_message == "The URL's server answered 503. Retry it later."
    assert asked == [([job_id], 2.0), ([job_id], 8.0), ([job_id], 20.0)]


def test_a_job_cancelled_or_erased_while_it_is_fetched_keeps_nothing(
    parts: Parts, fetcher: Fetcher, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = parts.storage.put
    ids = named(parts, web.page("/a", b"x" * 1000), web.page("/b", b"x" * 1000))

    def put_late(*asked: Any) -> Any:
        found = put(*asked)
        if asked[0].startswith("recordings/"):  # an erasure puts its tombstone there too
            next(ends)()
        return found

    def stop() -> None:
        cancel(parts.store, parts.queues, ids[0])

    def drop() -> None:
        erase(parts.store, parts.storage, parts.queues, ids[1])

    ends = iter((stop, drop))
    monkeypatch.setattr(parts.storage, "put", put_late)
    for job_id in ids:
        run(parts, fetcher, job_id)
        assert kept(parts) == []
    assert states(parts) == {State.CANCELLED: 1}


def test_a_retry_while_an_old_fetch_goes_on_is_not_disturbed_by_it(
    parts: Parts, fetcher: Fetcher, web: Web
) -> None:
    (job_id,) = named(parts, web.page("/old", b"old"))
    with transaction(parts.store) as c:
        old = fetches.begin(c, job_id)
    cancel(parts.store, parts.queues, job_id)
    retry(parts.store, parts.storage, parts.handover, job_id)
    with transaction(parts.store) as c:
        stored = {"key": "recordings/old", "size": 3, "sha256": "0" * 64}
        assert not fetches.keep(c, job_id, old.attempt, **stored, name="old")
        assert fetches.count_failure(c, job_id, old.attempt) is None
        assert not jobs.fail(c, job_id, "fetch_failed", "late", old.attempt)
    run(parts, fetcher, job_id)
    assert len(kept(parts)) == 1


def test_storage_that_is_down_costs_nothing_but_time(
    parts: Parts, fetcher: Fetcher, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job_id,) = named(parts, web.page("/a", b"x"))

    def down(*_: object) -> None:
        raise PartDown("Storage is full.")

    with monkeypatch.context() as patch:
        patch.setattr(parts.storage, "put", down)
        with pytest.raises(PartDown):
            run(parts, fetcher, job_id)
    run(parts, fetcher, job_id)
    assert len(kept(parts)) == 1


def test_the_sweep_asks_again_for_the_right_errand(parts: Parts) -> None:
    (to_fetch,) = named(parts, "http://example.com/a.wav")
    to_probe = accept(parts.store, parts.storage, Upload("a.wav", [b"x"]), 10).job_id

    def swept() -> tuple[list[str], list[str]]:
        with transaction(parts.store) as c:
            return jobs.forgotten(c, 30.0, 10), fetches.forgotten(c, 30.0, 10)

    assert swept() == ([], [])
    with transaction(parts.store) as c:
        fetches.begin(c, to_fetch)
        c.execute(text("UPDATE jobs SET updated_at = updated_at - interval '31 seconds'"))
        assert fetches.take_waiting(c) is None
    assert swept() == ([to_probe], [to_fetch])
    assert swept() == ([], [])  # told once
    with transaction(parts.store) as c:
        assert fetches.take_waiting(c) == to_fetch


def test_fetches_that_end_at_once_ask_for_different_recordings(parts: Parts) -> None:
    older, newer = named(parts, "http://example.com/a.wav", "http://example.com/b.wav")
    with transaction(parts.store) as one, transaction(parts.store) as other:
        assert [fetches.take_waiting(one), fetches.take_waiting(other)] == [older, newer]
    with transaction(parts.store) as c:
        assert fetches.take_waiting(c) is None
        fetches.wait(c, older)  # nobody was free after all
        assert fetches.take_waiting(c) == older


def test_slow_servers_take_four_threads_and_leave_the_others_to_probes(
    parts: Parts, environ: dict[str, str], web: Web, tmp_path: Path
) -> None:
    gate = threading.Event()
    sound = tone(1)

    def slow(request: object) -> None:
        gate.wait(30)
        serve(request)  # type: ignore[arg-type]

    web.page("/slow", sound)
    serve = web.pages["/slow"]
    web.pages["/slow"] = slow
    ids = named(parts, *[web.url("/slow")] * 10)
    parts.handover.fetch(ids)
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(
            command_line("errands", parts.settings),
            env={**os.environ, **environ, "FAIRSCRIBE_URL_PRIVATE": "true"},
            stdout=log,
            stderr=log,
        )
    try:
        eventually(lambda: web.busy == 4, 30)
        uploaded = accept(parts.store, parts.storage, Upload("a.wav", [sound]), 10**6).job_id
        parts.handover.probe([uploaded])
        eventually(lambda: view(parts, uploaded).state is State.PROBED, 10)
        assert web.most_busy == 4
        assert states(parts) == {State.RECEIVED: 10, State.PROBED: 1}
        gate.set()
        eventually(lambda: states(parts) == {State.PROBED: 11}, 20)
        assert web.most_busy == 4
        # a worker that is told to end does not wait for a slow server
        (stuck,) = named(parts, web.drip("/drip", 0.05))
        parts.handover.fetch([stuck])
        eventually(lambda: web.busy == 1)
        begun_s = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
        assert time.monotonic() - begun_s < 10
        # given up, and asked for again: the message waits for the next worker
        assert connect(parts.settings.redis_url or "").llen(ERRANDS_QUEUE) == 1
    except BaseException:
        print((tmp_path / "log").read_text()[-4000:])
        raise
    finally:
        worker.kill()
        worker.wait()
