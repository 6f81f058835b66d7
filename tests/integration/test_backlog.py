"""How much audio may wait: what is refused, when to come again, and what is never refused."""

from __future__ import annotations

import socket

import httpx
import pytest

from pipeline.api.backlog import LATEST_S, UNKNOWN_S, Backlog
from pipeline.errors import BacklogFull
from pipeline.parts import Parts
from pipeline.store.load import audio_left_s
from pipeline.store.session import transaction
from tests import driven
from tests.api_door import Open, assert_problem, open_api, send
from tests.listening import listening

__all__ = ["open_api"]

HOUR = b"x" * (3_600 * 8_000)
"""An hour, at the guess for what nobody has looked at."""


def left_s(parts: Parts) -> float:
    with transaction(parts.store) as c:
        return audio_left_s(c)


def test_what_waits_is_counted_as_probed_else_as_said_else_by_size(parts: Parts) -> None:
    assert left_s(parts) == 0
    job_id = driven.received(parts)  # 4 bytes
    assert left_s(parts) == 4 / 8_000
    driven.probed(parts, job_id)
    assert left_s(parts) == 4.0
    over = driven.received(parts)
    driven.completed(parts, over)
    assert left_s(parts) == 4.0, "what has ended waits no longer"
    driven.running(parts, driven.received(parts))
    assert left_s(parts) == 8.0, "what is in work does"


def refused(backlog: Backlog, coming_s: float) -> BacklogFull:
    try:
        backlog.take_in(coming_s)
    except BacklogFull as full:
        return full
    raise AssertionError("it was taken in")


def test_what_comes_is_taken_while_it_fits_and_the_wait_told_is_what_the_excess_takes(
    parts: Parts,
) -> None:
    driven.probed(parts, driven.received(parts))  # 4 s wait, and the line empties in 100 s
    backlog = Backlog(parts.store, 10 / 3600, lambda: 100.0)
    backlog.take_in(6.0)
    # 10 wait, 15 would, so 5 of 10 have to go first
    full = refused(backlog, 5.0)
    assert full.retry_after_s == 50.0
    assert refused(backlog, 1_000.0).retry_after_s == 100.0, "more than all of it need not go"
    unknown = Backlog(parts.store, 1 / 3600, lambda: None)
    assert refused(unknown, 5.0).retry_after_s == UNKNOWN_S
    slow = Backlog(parts.store, 1 / 3600, lambda: 1e9)
    assert refused(slow, 5.0).retry_after_s == LATEST_S


def test_where_nothing_waits_even_too_much_is_taken_or_it_never_would_be(parts: Parts) -> None:
    Backlog(parts.store, 1.0, lambda: None).take_in(7_200.0)


def test_thousands_of_uploads_ask_postgres_once_a_second(parts: Parts) -> None:
    driven.probed(parts, driven.received(parts))
    backlog = Backlog(parts.store, 1.0, lambda: None)
    backlog.take_in(0.0)
    driven.probed(parts, driven.received(parts))
    for _ in range(1_000):
        backlog.take_in(0.001)
    assert backlog._sum_s < 4.0 + 1.001, "the second job is not seen yet"


def test_an_upload_beyond_the_cap_is_refused_as_a_whole_and_makes_no_job(
    open_api: Open, parts: Parts
) -> None:
    api = open_api(FAIRSCRIBE_MAX_BACKLOG_H="1.5")
    first = send(api, ("a.wav", HOUR))
    assert first.status_code == 202

    answer = send(api, ("b.wav", b"x"), ("c.wav", HOUR))

    assert "h of audio wait here" in assert_problem(answer, 503, "backlog_full")
    assert 1 <= int(answer.headers["retry-after"]) <= LATEST_S
    assert len(api.get("/v1/jobs").json()["jobs"]) == 1
    assert not list((parts.settings.home / "uploads").iterdir())
    assert send(api, ("small.wav", b"x" * 8_000)).status_code == 202, "what fits is taken"
    urls = api.post("/v1/jobs", json={"urls": ["https://example.com/a.wav"] * 12})
    assert_problem(urls, 503, "backlog_full")
    hinted = {"urls": ["https://example.com/a.wav"] * 12, "duration_hint_s": 10}
    assert api.post("/v1/jobs", json=hinted).status_code == 202


def test_what_was_accepted_is_answered_again_though_nothing_more_is_taken_in(
    open_api: Open,
) -> None:
    api = open_api(FAIRSCRIBE_MAX_BACKLOG_H="0.5")

    def again(key: str) -> httpx.Response:
        files = [("files", ("a.wav", HOUR))]
        return api.post("/v1/jobs", files=files, headers={"Idempotency-Key": key})

    first = again("k")
    assert (first.status_code, again("other").status_code) == (202, 503)
    second = again("k")
    assert second.status_code == 202
    assert second.headers["idempotency-replayed"] == "true"
    assert second.json() == first.json()


def test_openais_clients_are_told_in_their_own_form(open_api: Open, parts: Parts) -> None:
    api = open_api(FAIRSCRIBE_MAX_BACKLOG_H="0.001")
    driven.probed(parts, driven.received(parts))
    answer = api.post(
        "/v1/audio/transcriptions", files={"file": ("a.wav", HOUR)}, data={"model": "whisper-1"}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "backlog_full")
    assert int(answer.headers["retry-after"]) >= 1


def test_a_client_that_asks_first_is_refused_before_it_sends(
    environ: dict[str, str], parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**environ, "FAIRSCRIBE_MAX_BACKLOG_H": "0.001"}.items():
        monkeypatch.setenv(name, value)
    driven.probed(parts, driven.received(parts))
    with listening() as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(
                b"POST /v1/jobs HTTP/1.1\r\nHost: here\r\nExpect: 100-continue\r\n"
                b"Content-Type: multipart/form-data; boundary=x\r\n"
                b"Content-Length: 2000000000\r\n\r\n"
            )
            assert connection.recv(100).startswith(b"HTTP/1.1 503")
