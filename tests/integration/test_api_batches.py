"""Batches: how far one is, all of them, stopping one, and watching one over a real socket."""

from __future__ import annotations

import base64
import json
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from pipeline.api import events
from pipeline.job import TRANSCRIBE
from pipeline.parts import Parts
from pipeline.store import batches
from pipeline.store.session import transaction
from tests import driven
from tests.api_door import api, assert_problem, open_api, served
from tests.lines import eventually

__all__ = ["api", "open_api", "served"]


def sql(parts: Parts, statement: str, **values: Any) -> None:
    with transaction(parts.store) as c:
        c.execute(text(statement), values)


def batch_of_each(parts: Parts, batch_id: str) -> dict[str, str]:
    """A job in each state a person sees, each of 4 s."""
    ids = {}
    for name in ("queued", "processing", "completed", "failed", "cancelled"):
        ids[name] = driven.received(parts, f"{name}.wav", batch_id)
    driven.surveyed(parts, ids["queued"])
    driven.running(parts, ids["processing"])
    driven.completed(parts, ids["completed"])
    driven.failed(parts, ids["failed"])
    return ids


# -- one batch ------------------------------------------------------------------------------


def test_a_batch_tells_how_many_stand_where_and_how_far_it_is(
    api: TestClient, parts: Parts
) -> None:
    ids = batch_of_each(parts, "monday")
    driven.received(parts, "other.wav", "tuesday")
    api.post(f"/v1/jobs/{ids['cancelled']}/cancel")
    half = "UPDATE jobs SET windows_total = 4, windows_done = 2 WHERE id = :id"
    sql(parts, half, id=ids["processing"])

    read = api.get("/v1/batches/monday").json()

    assert set(read) == {
        *("batch_id", "created_at", "completed_at", "counts", "jobs", "duration_s"),
        *("duration_done_s", "progress", "eta_s", "eta_p90_s", "done_by", "done_by_p90"),
    }
    one_each = dict.fromkeys(("queued", "processing", "completed", "failed", "cancelled"), 1)
    assert read["counts"] == one_each
    assert (read["batch_id"], read["jobs"], read["completed_at"]) == ("monday", 5, None)
    assert read["created_at"] == api.get(f"/v1/jobs/{ids['queued']}").json()["created_at"]
    # known lengths: queued 4, processing 4, completed 4; the refused two are taken for the mean
    assert (read["duration_s"], read["duration_done_s"]) == (12.0, 4.0)
    assert read["progress"] == pytest.approx((0 + 2 + 4 + 4 + 4) / 20)
    assert read["eta_s"] is None


def test_a_batch_has_ended_when_its_last_job_has(api: TestClient, parts: Parts) -> None:
    ids = [driven.received(parts, f"{n}.wav", "b") for n in range(3)]
    for job_id in ids[:2]:
        driven.failed(parts, job_id)
    before = api.get("/v1/batches/b").json()
    assert before["completed_at"] is None
    assert before["progress"] == pytest.approx(2 / 3, abs=1e-3)  # no length is known
    driven.completed(parts, ids[2])
    read = api.get("/v1/batches/b").json()
    assert read["completed_at"] == api.get(f"/v1/jobs/{ids[2]}").json()["completed_at"]
    assert read["progress"] == 1.0
    api.post(f"/v1/jobs/{ids[0]}/retry")
    assert api.get("/v1/batches/b").json()["completed_at"] is None


def test_a_batch_is_found_whatever_it_is_called(api: TestClient, parts: Parts) -> None:
    for name in ("a/b/c", "Grüße 🙂", "50%", "a?b#c", "..", " ", "x" * 200):
        driven.received(parts, "a.wav", name)
        path = "/v1/batches/" + quote(name, safe="").replace(".", "%2E")
        assert api.get(path).json()["batch_id"] == name
        assert api.post(path + "/cancel").json() == {"batch_id": name, "cancelled": 1}
        assert "event: done" in api.get(path + "/events").text


def test_a_batch_of_no_job_is_not_found(api: TestClient) -> None:
    for name in ("nobody's", "%00", "x" * 3000, "%ff", "a/b"):
        assert_problem(api.get(f"/v1/batches/{name}"), 404, "no_such_batch")
        assert_problem(api.post(f"/v1/batches/{name}/cancel"), 404, "no_such_batch")
        assert_problem(api.get(f"/v1/batches/{name}/events"), 404, "no_such_batch")


def test_batches_are_listed_newest_first_in_pages(api: TestClient, parts: Parts) -> None:
    names = [f"b{n}" for n in range(5)]
    for name in [*names, "b0"]:  # one that goes on does not come forward
        driven.received(parts, "a.wav", name)
    sql(parts, "UPDATE jobs SET created_at = '2026-03-02T09:00:00Z' WHERE batch_id IN ('b1', 'b2')")
    seen, cursor = [], None
    while True:
        params = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = api.get("/v1/batches", params=params).json()
        seen.append([batch["batch_id"] for batch in page["batches"]])
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [["b4", "b3"], ["b0", "b2"], ["b1"]]
    assert api.get("/v1/batches").json()["batches"][2]["jobs"] == 2


def test_a_cursor_no_page_gave_is_a_bad_request(api: TestClient) -> None:
    nested = base64.urlsafe_b64encode(b"[" * 20_000).decode()
    for cursor in ("x", "bnVsbA==", "WyIxIiwgIngiXQ==", "", "é", "WzEsIDJd", nested):
        answer = api.get("/v1/batches", params={"cursor": cursor})
        assert_problem(answer, 400, "bad_request")
    assert_problem(api.get("/v1/batches?limit=0"), 400, "bad_request")


def test_cancelling_a_batch_stops_what_has_not_ended_and_nothing_else(
    api: TestClient, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.steps.cancel.PAGE", 2)  # several pages
    ids = batch_of_each(parts, "monday")
    more = [driven.received(parts, f"{n}.wav", "monday") for n in range(4)]
    other = driven.received(parts, "other.wav", "tuesday")
    driven.surveyed(parts, other)

    assert api.post("/v1/batches/monday/cancel").json() == {"batch_id": "monday", "cancelled": 7}

    assert api.post("/v1/batches/monday/cancel").json()["cancelled"] == 0
    counts = api.get("/v1/batches/monday").json()["counts"]
    assert counts == {"queued": 0, "processing": 0, "completed": 1, "failed": 1, "cancelled": 7}
    assert api.get(f"/v1/jobs/{ids['completed']}").json()["status"] == "completed"
    assert api.get(f"/v1/jobs/{more[3]}").json()["status"] == "cancelled"
    assert api.get(f"/v1/jobs/{other}").json()["status"] == "queued"
    assert api.get("/v1/queue").json()["waiting"] == {"survey": 0, "transcribe": 1}


# -- as it goes -----------------------------------------------------------------------------


Event = tuple[str, str | None, Any]
"""Kind, id, document."""


def read_events(stream: str) -> list[Event]:
    found = []
    for block in stream.split("\n\n"):
        lines = [line.partition(": ")[::2] for line in block.splitlines()]
        fields = {name: value for name, value in lines if name}
        if "event" in fields:
            found.append((fields["event"], fields.get("id"), json.loads(fields["data"])))
    return found


def test_a_batch_that_has_ended_is_told_in_full_and_the_stream_ends(
    api: TestClient, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "PAGE", 2)
    ids = [driven.received(parts, f"{n}.wav", "b") for n in range(5)]
    for job_id in ids[::-1]:
        driven.failed(parts, job_id)

    answer = api.get("/v1/batches/b/events")

    assert answer.headers["content-type"].startswith("text/event-stream")
    first, *jobs, last = read_events(answer.text)
    assert (first[0], last[0]) == ("batch", "done")
    assert first[2] == last[2] == api.get("/v1/batches/b").json()
    assert [job[2]["id"] for job in jobs] == ids[::-1]  # as they ended
    told = api.get(f"/v1/jobs/{ids[0]}").json()
    del told["metadata"]
    assert jobs[-1][2] == told
    assert {job[0] for job in jobs} == {"job"}


def test_a_stream_goes_on_where_it_was_left_and_at_the_end_there_is_nothing(
    api: TestClient, parts: Parts
) -> None:
    ids = [driven.received(parts, f"{n}.wav", "b") for n in range(4)]
    for job_id in ids:
        driven.failed(parts, job_id)
    for n, job_id in enumerate(ids):  # a minute apart
        at = f"2026-03-02T09:0{n}:00Z"
        sql(
            parts,
            "UPDATE jobs SET completed_at = cast(:at AS timestamptz) WHERE id = :id",
            at=at,
            id=job_id,
        )
    *whole, done = [e for e in read_events(api.get("/v1/batches/b/events").text) if e[1]]
    assert len(whole) == 4

    headers = {"Last-Event-ID": str(whole[1][1])}
    again = read_events(api.get("/v1/batches/b/events", headers=headers).text)

    # the one it was left at may come again, nothing before it does, nothing after it is missing
    assert [event[1] for event in again if event[1]] == [e[1] for e in (*whole[1:], done)]
    # one that was not told of the end may have missed a job that was seen late
    headers = {"Last-Event-ID": str(whole[3][1])}
    assert "event: done" in api.get("/v1/batches/b/events", headers=headers).text
    headers = {"Last-Event-ID": str(done[1])}
    ended = api.get("/v1/batches/b/events", headers=headers)
    assert (ended.status_code, ended.content) == (204, b"")
    driven.failed(parts, driven.received(parts, "late.wav", "b"))
    assert "late.wav" in api.get("/v1/batches/b/events", headers=headers).text


def test_an_id_of_no_event_is_a_bad_request(api: TestClient, parts: Parts) -> None:
    driven.received(parts, "a.wav", "b")
    ancient = "0001-01-01T00:00:00Z/" + "0" * 32
    for left in ("x", ancient, "/", "//done", "2026-03-02T09:00:00/x", "é"):
        headers = {"Last-Event-ID": left.encode("latin-1")}
        assert_problem(api.get("/v1/batches/b/events", headers=headers), 400, "bad_request")


def counted_looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Makes streams look often; one entry for each look at what has ended."""
    looks: list[int] = []
    ended = batches.ended

    def counted(*asked: Any) -> Any:
        looks.append(1)
        return ended(*asked)

    monkeypatch.setattr(batches, "ended", counted)
    monkeypatch.setattr(events, "LOOK_S", 0.05)
    return looks


def look_again(looks: list[int]) -> None:
    """Wait until a look that begins from now on is over."""
    before = len(looks)
    eventually(lambda: len(looks) >= before + 3)


def test_a_job_that_becomes_visible_late_is_told_all_the_same(
    api: TestClient, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a job that ended, by its clock, before one that was told already
    looks = counted_looks(monkeypatch)
    ids = [driven.received(parts, f"{n}.wav", "b") for n in range(3)]
    answers: list[str] = []
    driven.failed(parts, ids[0])
    watch = threading.Thread(target=lambda: answers.append(api.get("/v1/batches/b/events").text))
    watch.start()
    look_again(looks)
    with transaction(parts.store) as c:
        c.execute(
            text(
                "UPDATE jobs SET state = 'failed', completed_at = (SELECT completed_at FROM jobs "
                "WHERE id = :told) - interval '3 s' WHERE id = :id"
            ),
            {"told": ids[0], "id": ids[1]},
        )
    look_again(looks)
    driven.failed(parts, ids[2])
    watch.join(10)
    told = [event[2]["id"] for event in read_events(answers[0]) if event[0] == "job"]
    assert told == [ids[0], ids[1], ids[2]]


def test_a_live_stream_tells_changes_outlives_an_outage_and_ends_with_the_batch(
    served: str, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LOOK_S", 0.1)
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.3)
    first, second = (driven.received(parts, f"{n}.wav", "b") for n in range(2))
    heard: list[str] = []

    def listen() -> None:
        with httpx.stream("GET", f"{served}/v1/batches/b/events", timeout=20) as answer:
            heard.extend(answer.iter_text())

    watch = threading.Thread(target=listen)
    watch.start()
    eventually(lambda: "event: batch" in "".join(heard))
    eventually(lambda: ": still here" in "".join(heard))
    ticket = driven.running(parts, first)
    eventually(lambda: '"processing":1' in "".join(heard))
    driven.completed(parts, first, ticket)
    eventually(lambda: first in "".join(heard))
    # every connection of the API to Postgres is cut
    sql(
        parts,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'fairscribe' AND pid <> pg_backend_pid()",
    )
    driven.failed(parts, second)
    watch.join(10)
    assert not watch.is_alive()
    told = read_events("".join(heard))
    assert [event[2]["id"] for event in told if event[0] == "job"] == [first, second]
    assert told[-1][0] == "done"
    assert told[-1][2]["counts"]["completed"] == 1
    shown = [json.dumps(event[2]) for event in told if event[0] == "batch"]
    assert len(shown) == len(set(shown))  # only when it changed


def test_fifty_idle_streams_hold_no_thread_and_end_when_their_clients_go(
    served: str, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven.received(parts, "a.wav", "b")
    running: list[int] = []
    stream = events.BatchEvents.stream

    async def counted(self: events.BatchEvents, gone: Any) -> Any:
        running.append(1)
        try:
            async for event in stream(self, gone):
                yield event
        finally:
            running.pop()

    monkeypatch.setattr(events.BatchEvents, "stream", counted)
    with httpx.Client(base_url=served, timeout=20, limits=httpx.Limits()) as client:
        client.get("/v1/health")
        asked = [client.build_request("GET", "/v1/batches/b/events") for _ in range(50)]
        answers = [client.send(one, stream=True) for one in asked]
        heard = [answer.iter_text() for answer in answers]
        assert all(next(one) for one in heard)
        assert len(running) == 50
        begun_s = time.monotonic()
        assert client.get("/v1/jobs").status_code == 200
        assert time.monotonic() - begun_s < 3
        held = "SELECT count(*) FROM pg_stat_activity WHERE state <> 'idle' AND query LIKE '%jobs%'"
        with transaction(parts.store) as c:
            assert c.execute(text(held + " AND pid <> pg_backend_pid()")).scalar_one() <= 20
        for answer in answers:
            answer.close()
        eventually(lambda: not running, 5)


def test_a_batch_whose_last_job_is_erased_ends_its_stream(
    api: TestClient, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = counted_looks(monkeypatch)
    job_id = driven.received(parts, "a.wav", "b")
    answers: list[str] = []
    watch = threading.Thread(target=lambda: answers.append(api.get("/v1/batches/b/events").text))
    watch.start()
    look_again(looks)
    api.delete(f"/v1/jobs/{job_id}")
    watch.join(10)
    assert read_events(answers[0])[-1] == ("done", None, {"batch_id": "b"})


def test_a_batch_tells_when_its_last_job_will_be_done(api: TestClient, parts: Parts) -> None:
    ids = [driven.received(parts, batch_id="monday") for _ in range(3)]
    for job_id in ids:
        driven.surveyed(parts, job_id)
    parts.queues[TRANSCRIBE.name].board.report_speed("w@gpu", 2.5, 4)
    singly = [api.get(f"/v1/jobs/{job_id}").json()["eta_s"] for job_id in ids]
    batch = api.get("/v1/batches/monday").json()
    assert batch["eta_s"] == pytest.approx(max(singly), rel=0.1)
    assert 0 < batch["eta_s"] < batch["eta_p90_s"]
    now = datetime.now(UTC)
    likely, late = (datetime.fromisoformat(batch[n]) for n in ("done_by", "done_by_p90"))
    assert now - timedelta(seconds=1) < likely <= late < now + timedelta(seconds=10)
    for job_id in ids:
        api.post(f"/v1/jobs/{job_id}/cancel")
    ended = api.get("/v1/batches/monday").json()
    assert [ended[name] for name in ("eta_s", "eta_p90_s", "done_by", "done_by_p90")] == [None] * 4
