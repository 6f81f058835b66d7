"""The HTTP door on real Postgres, Redis and storage; no worker: jobs are moved by hand."""

from __future__ import annotations

import json
import re
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from pipeline.api.transcripts import attachment
from pipeline.job import TRANSCRIBE
from pipeline.parts import Parts
from pipeline.scheduling.policies import Policy
from pipeline.settings import Settings
from pipeline.steps.ratio import write_ratios
from pipeline.store import jobs, policies, views
from pipeline.store.session import transaction
from tests import driven
from tests.api_door import Open, api, assert_problem, open_api, send

__all__ = ["api", "open_api"]

CLOSED = "127.0.0.1:1"
"""An address where nothing listens."""


def stored(settings: Settings) -> list[Path]:
    places = (settings.home / "storage", settings.home / "uploads")
    return [path for place in places for path in place.rglob("*") if path.is_file()]


# -- upload ---------------------------------------------------------------------------------


def test_many_files_of_one_request_become_a_job_each_in_their_order(
    api: TestClient, parts: Parts
) -> None:
    sounds = [(f"call-{n:02}.wav", bytes([n]) * (n * 100_000 + 1)) for n in range(20)]

    answer = send(api, *sounds, batch_id="monday", language="es", metadata='{"agent": "Ä"}')

    assert answer.status_code == 202, answer.text
    assert answer.json()["batch_id"] == "monday"
    made = answer.json()["jobs"]
    assert [job["file_name"] for job in made] == [name for name, _ in sounds]
    assert all(job["status"] == "queued" and job["error"] is None for job in made)
    for job, (_, content) in zip(made, sounds, strict=True):
        key = f"recordings/{job['id']}"
        assert parts.storage.read_range(key, 0, parts.storage.size(key)) == content
    read = api.get(f"/v1/jobs/{made[3]['id']}").json()
    assert (read["batch_id"], read["language"]) == ("monday", "es")
    assert read["metadata"] == {"agent": "Ä"}


def test_fields_that_come_after_the_files_count_all_the_same(api: TestClient) -> None:
    body = (
        b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.wav"\r\n\r\nabc\r\n'
        b'--x\r\nContent-Disposition: form-data; name="batch_id"\r\n\r\nlate\r\n--x--\r\n'
    )
    headers = {"Content-Type": "multipart/form-data; boundary=x"}

    answer = api.post("/v1/jobs", content=body, headers=headers)

    assert answer.status_code == 202, answer.text
    assert answer.json()["batch_id"] == "late"


def test_a_batch_id_is_chosen_when_none_is_given_and_is_new_each_time(api: TestClient) -> None:
    chosen = {send(api, ("a.wav", b"a")).json()["batch_id"] for _ in range(2)}
    assert len(chosen) == 2
    assert "" not in chosen


def test_an_empty_file_fails_alone(api: TestClient, settings: Settings) -> None:
    answer = send(api, ("good.wav", b"a"), ("empty.wav", b""), ("fine.wav", b"b"))

    assert answer.status_code == 202
    good, empty, fine = answer.json()["jobs"]
    assert (good["status"], fine["status"]) == ("queued", "queued")
    assert (empty["status"], empty["error"]["code"]) == ("failed", "empty")
    read = api.get(f"/v1/jobs/{empty['id']}").json()
    assert (read["status"], read["error"]["code"], read["stage"]) == ("failed", "empty", "failed")
    kept = sorted(path.name for path in stored(settings))
    assert kept == sorted([good["id"], fine["id"]])


@pytest.mark.parametrize("excess", [1, 3_000_000])
def test_a_file_beyond_the_limit_fails_alone_and_leaves_nothing(
    open_api: Open, settings: Settings, excess: int
) -> None:
    api = open_api(FAIRSCRIBE_MAX_UPLOAD_MB="0.5")

    answer = send(api, ("big.wav", b"x" * (500_000 + excess)), ("good.wav", b"y" * 500_000))

    big, good = answer.json()["jobs"]
    assert (big["status"], big["error"]["code"]) == ("failed", "too_large")
    assert good["status"] == "queued"
    (kept,) = stored(settings)
    assert kept.read_bytes() == b"y" * 500_000


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "/etc/shadow",
        'say "hi".wav',
        "two\nlines\r.wav",
        "back\\slash.wav",
        "🎧 Gespräch – 会话.wav",
        "50% off %20.wav",
        "a;b=c.wav",
        "[red]bold[/red].wav",
        "n" * 1000,
    ],
)
def test_a_file_name_comes_back_as_sent_and_is_no_path(
    api: TestClient, settings: Settings, name: str
) -> None:
    (job,) = send(api, (name, b"sound")).json()["jobs"]

    assert job["file_name"] == name
    assert api.get(f"/v1/jobs/{job['id']}").json()["file_name"] == name
    (kept,) = stored(settings)
    assert kept == settings.home / "storage" / "recordings" / job["id"]


def test_a_name_that_postgres_cannot_keep_does_not_fail_the_upload(api: TestClient) -> None:
    body = (
        b'--x\r\nContent-Disposition: form-data; name="files"; filename="a\0b.wav"\r\n\r\nabc\r\n'
        b"--x--\r\n"
    )
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = api.post("/v1/jobs", content=body, headers=headers)
    # the parser may refuse it as well; what must not be is a 500
    assert answer.status_code in (202, 400), answer.text


def test_a_file_without_a_name_is_called_unnamed(api: TestClient) -> None:
    body = (
        b'--x\r\nContent-Disposition: form-data; name="files"; filename=""\r\n\r\nabc\r\n--x--\r\n'
    )
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    (job,) = api.post("/v1/jobs", content=body, headers=headers).json()["jobs"]
    assert (job["file_name"], job["status"]) == ("unnamed", "queued")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"metadata": "{"}, "metadata is not JSON"),
        ({"metadata": "[1]"}, "metadata is not a JSON object"),
        ({"metadata": '{"a": NaN}'}, "metadata is not JSON"),
        ({"metadata": '{"a": 1e999}'}, "metadata is not JSON"),
        ({"metadata": '{"a": "\\u0000"}'}, "NUL"),
        ({"metadata": '{"a": "\\ud800"}'}, "metadata is not JSON"),
        ({"metadata": "[" * 100_000}, "metadata is not JSON"),
        ({"language": "english, please"}, "language is a code"),
        ({"language": "xx"}, "language is a code that Whisper knows"),
        ({"batch_id": "b" * 201}, "batch_id"),
        ({"batch": "monday"}, "'batch'"),
    ],
)
def test_a_field_that_cannot_be_meant_is_told_and_nothing_is_kept(
    api: TestClient, settings: Settings, fields: dict[str, str], said: str
) -> None:
    answer = send(api, ("a.wav", b"a"), **fields)
    assert said in assert_problem(answer, 400, "bad_request")
    assert stored(settings) == []
    assert api.get("/v1/jobs").json()["jobs"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"data": {"batch_id": "b"}, "files": [("files", ("", b""))]},
        {"files": [("file", ("a.wav", b"a"))]},
        {"data": {"files": "a.wav"}},
        {"json": {}},
        {},
        {"content": b"--x\r\nnonsense", "headers": {"Content-Type": "multipart/form-data"}},
        {
            "content": b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n'
            b"\r\ncut off",
            "headers": {"Content-Type": "multipart/form-data; boundary=x"},
        },
        {
            "content": b"garbage",
            "headers": {"Content-Type": "multipart/form-data; boundary=x"},
        },
    ],
)
def test_a_request_without_files_or_that_is_no_form_is_a_bad_request(
    api: TestClient, settings: Settings, body: dict[str, Any]
) -> None:
    assert_problem(api.post("/v1/jobs", **body), 400, "bad_request")
    assert stored(settings) == []


def test_a_waiting_job_is_cancelled_and_erased_while_redis_is_down(
    open_api: Open, parts: Parts
) -> None:
    api = open_api(FAIRSCRIBE_REDIS_URL=f"redis://{CLOSED}/0")
    waits = [driven.received(parts, name) for name in ("a", "b")]
    for job_id in waits:
        driven.probed(parts, job_id)
    assert api.post(f"/v1/jobs/{waits[0]}/cancel").json()["cancelled"] is True
    assert api.delete(f"/v1/jobs/{waits[1]}").status_code == 204


def test_an_upload_is_accepted_while_redis_is_down(open_api: Open) -> None:
    api = open_api(FAIRSCRIBE_REDIS_URL=f"redis://{CLOSED}/0")

    answer = send(api, ("a.wav", b"a"))

    assert answer.status_code == 202, answer.text
    job_id = answer.json()["jobs"][0]["id"]
    assert api.get(f"/v1/jobs/{job_id}").json()["status"] == "queued"
    assert "Redis" in assert_problem(api.get("/v1/health/ready"), 503, "part_down")
    assert api.get("/v1/health").json() == {"status": "ok"}
    assert api.post(f"/v1/jobs/{job_id}/cancel").json()["cancelled"] is True
    assert_problem(api.get("/v1/queue"), 503, "part_down")


def test_an_upload_while_postgres_is_down_is_told_to_come_again(
    open_api: Open, settings: Settings
) -> None:
    api = open_api(FAIRSCRIBE_DATABASE_URL=f"postgresql://secret:word@{CLOSED}/d")

    for answer in (send(api, ("a.wav", b"a")), api.get(f"/v1/jobs/{driven.nobody()}")):
        detail = assert_problem(answer, 503, "part_down")
        assert answer.headers["retry-after"] == "2"
        assert detail == "Postgres does not answer; try again shortly."
    assert stored(settings) == []
    assert_problem(api.get("/v1/health/ready"), 503, "part_down")
    assert api.get("/v1/health").status_code == 200


def test_files_stored_before_postgres_went_away_are_answered_as_jobs(
    api: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.errors import PartDown

    add_job, calls = jobs.add_job, []

    def add_twice(*arguments: Any) -> bool:
        calls.append(1)
        if len(calls) == 3:
            raise PartDown("Postgres does not answer: connection refused by db.internal")
        return add_job(*arguments)

    monkeypatch.setattr(jobs, "add_job", add_twice)
    answer = send(api, *((f"{n}.wav", b"a") for n in range(5)))

    assert answer.status_code == 202
    made = answer.json()["jobs"]
    assert [job["id"] is not None for job in made] == [True, True, False, False, False]
    assert {job["error"]["code"] for job in made[2:]} == {"part_down"}
    assert "db.internal" not in answer.text
    assert len(api.get("/v1/jobs").json()["jobs"]) == 2


# -- one job --------------------------------------------------------------------------------


def test_a_job_reads_exactly_the_fields_of_the_contract(api: TestClient, parts: Parts) -> None:
    job_id = driven.received(parts)
    driven.completed(parts, job_id)

    read = api.get(f"/v1/jobs/{job_id}").json()

    assert set(read) == {
        *("id", "batch_id", "file_name", "status", "stage", "progress", "position", "eta_s"),
        "eta_p90_s",
        *("duration_s", "duration_source", "duration_exact", "channels", "language", "model"),
        *("probed_s", "probed_source", "probe_reason", "transcribed_s", "raw_format"),
        *("audio_erased_at", "transcript_erased_at"),
        *("attempts", "created_at", "started_at", "first_text_at", "completed_at", "wait_s"),
        *("audio_erased_at", "transcript_erased_at"),
        *("run_s", "error", "degraded", "no_speech", "metadata", "task", "speakers"),
        *("vocabulary", "language_detected", "source_url", "task_url", "deadline", "wait_budget_s"),
    }
    assert (read["status"], read["stage"], read["progress"]) == ("completed", "completed", 1.0)
    assert (read["duration_s"], read["duration_source"]) == (4.0, "decode")
    assert (read["attempts"], read["model"]) == (1, "tiny.en")
    assert read["wait_s"] >= 0
    assert read["run_s"] >= 0


def test_a_job_is_queued_until_an_engine_has_it(api: TestClient, parts: Parts) -> None:
    job_id = driven.received(parts)
    seen = [api.get(f"/v1/jobs/{job_id}").json()]
    driven.running(parts, job_id)
    seen.append(api.get(f"/v1/jobs/{job_id}").json())

    assert [(job["status"], job["stage"]) for job in seen] == [
        ("queued", "received"),
        ("processing", "running"),
    ]
    assert seen[0]["wait_s"] is None
    assert seen[1]["wait_s"] is not None
    assert seen[1]["run_s"] is None


@pytest.mark.parametrize("path", ["", "/transcript", "/cancel"])
@pytest.mark.parametrize("job_id", [driven.nobody(), "42", "x'; DROP TABLE jobs; --", "%00"])
def test_an_id_of_no_job_is_not_found_whatever_it_looks_like(
    api: TestClient, path: str, job_id: str
) -> None:
    ask = api.post if path == "/cancel" else api.get
    assert_problem(ask(f"/v1/jobs/{job_id}{path}"), 404, "no_such_job")


def test_a_wait_ends_when_the_job_does(api: TestClient, parts: Parts) -> None:
    job_id = driven.received(parts)
    ticket = driven.running(parts, job_id)
    later = threading.Timer(0.7, driven.completed, (parts, job_id, ticket))
    later.start()
    begun_s = time.monotonic()

    answer = api.get(f"/v1/jobs/{job_id}", params={"wait": 30})

    assert answer.json()["status"] == "completed"
    assert 0.6 < time.monotonic() - begun_s < 5
    later.join()


def test_a_wait_ends_after_its_time_and_shows_the_job_as_it_stands(
    api: TestClient, parts: Parts
) -> None:
    job_id = driven.received(parts)
    begun_s = time.monotonic()

    answer = api.get(f"/v1/jobs/{job_id}", params={"wait": 0.6})

    assert answer.json()["status"] == "queued"
    assert 0.55 < time.monotonic() - begun_s < 5


def test_waiting_requests_hold_no_thread(api: TestClient, parts: Parts) -> None:
    job_id = driven.received(parts)
    waits = [
        threading.Thread(
            target=api.get, args=(f"/v1/jobs/{job_id}",), kwargs={"params": {"wait": 3}}
        )
        for _ in range(60)  # the pool has 40
    ]
    for wait in waits:
        wait.start()
    time.sleep(0.5)
    begun_s = time.monotonic()

    assert api.get("/v1/jobs").status_code == 200

    assert time.monotonic() - begun_s < 2
    for wait in waits:
        wait.join()


@pytest.mark.parametrize("wait", ["61", "-1", "soon", "nan"])
def test_a_wait_that_cannot_be_is_a_bad_request_in_words(api: TestClient, wait: str) -> None:
    answer = api.get(f"/v1/jobs/{driven.nobody()}", params={"wait": wait})
    assert assert_problem(answer, 400, "bad_request").startswith("wait: input should be")


# -- transcript -----------------------------------------------------------------------------


def test_a_transcript_reads_as_json_and_as_text_with_its_speakers(
    api: TestClient, parts: Parts
) -> None:
    job_id = driven.received(parts)
    driven.completed(parts, job_id)

    body = api.get(f"/v1/jobs/{job_id}/transcript").json()
    text = api.get(f"/v1/jobs/{job_id}/transcript", params={"format": "txt"})

    assert (body["job_id"], body["text"]) == (job_id, "Grüße! Hello 🙂.")
    assert [segment["speaker"] for segment in body["segments"]] == ["left", "right"]
    assert {"language", "duration_s", "provenance"} <= set(body)
    assert text.text == "left: Grüße!\nright: Hello 🙂.\n"
    assert text.headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize(
    ("format", "media_type", "begins"),
    [
        ("json", "application/json", "{"),
        ("verbose_json", "application/json", '{"task":"transcribe","language":"english"'),
        (
            "srt",
            "application/x-subrip; charset=utf-8",
            "1\n00:00:00,500 --> 00:00:01,500\nleft: Grü",
        ),
        ("vtt", "text/vtt; charset=utf-8", "WEBVTT\n\n00:00:00.500 --> 00:00:01.500\n<v left>Grü"),
        ("txt", "text/plain; charset=utf-8", "left: Grüße!\n"),
    ],
)
def test_a_transcript_reads_in_every_format_and_keeps_as_a_file_named_after_the_recording(
    api: TestClient, parts: Parts, format: str, media_type: str, begins: str
) -> None:
    job_id = driven.received(parts, 'ge"heim\r\nX-Evil: 1/Gespräch 🙂.v2.wav')
    driven.completed(parts, job_id)
    path, params = f"/v1/jobs/{job_id}/transcript", {"format": format}

    shown, kept = api.get(path, params=params), api.get(path, params={**params, "download": 1})

    assert shown.headers["content-type"] == media_type
    assert shown.content.decode("utf-8").startswith(begins)
    assert shown.content == kept.content
    assert "content-disposition" not in shown.headers
    assert "x-evil" not in kept.headers
    ending = format.removeprefix("verbose_")
    assert kept.headers["content-disposition"] == (
        f'attachment; filename="Gespr_ch _.v2.{ending}"; '
        f"filename*=UTF-8''Gespr%C3%A4ch%20%F0%9F%99%82.v2.{ending}"
    )


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../etc/passwd", "passwd.txt"),
        ("C:\\calls\\one.wav", "one.txt"),
        (".wav", "wav.txt"),
        ("...", "transcript.txt"),
        ("\u202egnp.wav", "gnp.txt"),
        ("n" * 1000 + ".wav", "n" * 200 + ".txt"),
    ],
)
def test_a_file_to_keep_has_a_name_that_is_no_path_and_plays_no_tricks(
    name: str, kept: str
) -> None:
    assert attachment(name, ".txt") == f"attachment; filename=\"{kept}\"; filename*=UTF-8''{kept}"


def test_a_transcript_that_is_not_there_yet_says_how_the_job_stands(
    api: TestClient, parts: Parts
) -> None:
    job_id = driven.received(parts)
    answer = api.get(f"/v1/jobs/{job_id}/transcript")
    assert "queued" in assert_problem(answer, 409, "transcript_not_ready")


def test_a_transcript_of_a_failed_job_says_why_there_is_none(api: TestClient, parts: Parts) -> None:
    job_id = driven.received(parts)
    driven.failed(parts, job_id, "not_audio")
    answer = api.get(f"/v1/jobs/{job_id}/transcript")
    assert "not_audio" in assert_problem(answer, 409, "transcript_not_ready")


def test_an_unknown_form_of_transcript_is_a_bad_request(api: TestClient) -> None:
    answer = api.get(f"/v1/jobs/{driven.nobody()}/transcript", params={"format": "docx"})
    assert "format" in assert_problem(answer, 400, "bad_request")


# -- lists and cancel -----------------------------------------------------------------------


def test_pages_of_a_list_hold_every_job_once_in_order(api: TestClient, parts: Parts) -> None:
    made = [driven.received(parts, f"{n}.wav", batch_id="b" if n % 2 else "c") for n in range(7)]
    driven.failed(parts, made[2])

    def pages(**which: Any) -> list[list[str]]:
        seen, cursor = [], None
        while True:
            params = {"limit": 2, **which, **({"cursor": cursor} if cursor else {})}
            page = api.get("/v1/jobs", params=params).json()
            seen.append([job["id"] for job in page["jobs"]])
            cursor = page["next_cursor"]
            if cursor is None:
                return seen

    assert pages() == [made[0:2], made[2:4], made[4:6], made[6:]]
    assert pages(status="failed") == [[made[2]]]
    assert pages(status="queued", batch="c") == [[made[0], made[4]], [made[6]]]
    assert pages(batch="b", limit=3) == [[made[1], made[3], made[5]]]
    assert pages(batch="nobody's") == [[]]
    assert pages(status="processing") == [[]]


@pytest.mark.parametrize(
    "params", [{"status": "lost"}, {"cursor": "yesterday"}, {"limit": 0}, {"limit": 1001}]
)
def test_a_list_that_cannot_be_made_is_a_bad_request(
    api: TestClient, params: dict[str, Any]
) -> None:
    assert_problem(api.get("/v1/jobs", params=params), 400, "bad_request")


def test_a_cancelled_job_leaves_the_queue_and_stays_cancelled(
    api: TestClient, parts: Parts
) -> None:
    job_id = driven.received(parts)
    driven.surveyed(parts, job_id)

    first = api.post(f"/v1/jobs/{job_id}/cancel").json()
    second = api.post(f"/v1/jobs/{job_id}/cancel").json()

    assert first == {"id": job_id, "status": "cancelled", "cancelled": True}
    assert second == {"id": job_id, "status": "cancelled", "cancelled": False}
    assert api.get("/v1/queue").json()["waiting"] == {"survey": 0, "transcribe": 0}


# -- queue and policy -----------------------------------------------------------------------


def test_the_queue_shows_who_goes_first_under_the_policy_in_force(
    api: TestClient, parts: Parts
) -> None:
    long, short, unplanned = (driven.received(parts, n) for n in ("long", "short", "unplanned"))
    driven.surveyed(parts, long, bucket=120)
    driven.surveyed(parts, short, bucket=40)
    driven.probed(parts, unplanned, bucket=60)

    def head(policy: str) -> list[tuple[int, str, str]]:
        assert api.put("/v1/policy", json={"policy": policy}).status_code == 200
        view = api.get("/v1/queue").json()
        assert view["policy"] == policy
        return [(job["position"], job["file_name"], job["stage"]) for job in view["head"]]

    last = (1, "unplanned", "survey")
    assert head("fcfs") == [(1, "long", "transcribe"), (2, "short", "transcribe"), last]
    assert head("sjf") == [(1, "short", "transcribe"), (2, "long", "transcribe"), last]
    view = api.get("/v1/queue", params={"limit": 1}).json()
    assert view["waiting"] == {"survey": 1, "transcribe": 2}
    assert view["working"] == {"survey": 0, "transcribe": 0}
    assert [job["file_name"] for job in view["head"]] == ["short", "unplanned"]
    shown = view["head"][0]
    assert shown["id"] == short
    assert shown["work_s"] == pytest.approx(0.01 * 1.1**40, rel=0.01)
    assert shown["ratio"] == pytest.approx(1 + shown["wait_s"] / shown["work_s"], rel=0.02)


def test_the_queue_tells_why_each_stands_there_and_when_it_is_done(
    api: TestClient, parts: Parts
) -> None:
    first, second = (driven.received(parts, name) for name in ("first", "second"))
    for job_id in (first, second):
        driven.surveyed(parts, job_id, bucket=50)
    ticket = driven.running(parts, driven.received(parts, "third"))
    view = api.get("/v1/queue").json()
    assert [job["eta_s"] for job in view["head"] + view["in_hand"]] == [None] * 3
    assert (view["all_done_s"], view["workers"]) == (None, [])

    parts.queues[TRANSCRIBE.name].board.report_speed("w@gpu", 2.5, 4)
    view = api.get("/v1/queue").json()
    assert view["workers"] == [{"worker": "w@gpu", "stage": "transcribe", "speed": 2.5, "slots": 4}]
    head = view["head"]
    assert [job["file_name"] for job in head] == ["first", "second"]
    assert 0 < head[0]["eta_s"] < head[1]["eta_s"] < head[1]["eta_p90_s"]
    assert head[1]["eta_s"] == pytest.approx(api.get(f"/v1/jobs/{second}").json()["eta_s"], rel=0.1)
    assert 0 < view["all_done_s"] < view["all_done_p90_s"]
    assert re.fullmatch(
        r"waited \S+ s for 1.174 s of work: \S+/1.174\^2.5 = \S+, the highest", head[0]["why"]
    )
    assert head[1]["why"].endswith("number 2 from the highest")
    (held,) = view["in_hand"]
    assert (held["id"], held["worker"], held["stage"]) == (
        ticket.job_id,
        "transcriber",
        "transcribe",
    )
    assert 0 < held["eta_s"] < held["eta_p90_s"]


def test_of_the_jobs_in_hand_the_one_with_least_left_is_shown(
    api: TestClient, parts: Parts
) -> None:
    ids = [driven.running(parts, driven.received(parts)).job_id for _ in range(3)]
    with transaction(parts.store) as c:
        for job_id, windows in zip(ids, (9, 2, 5), strict=True):
            many = text("UPDATE jobs SET windows_total = :n WHERE id = :id")
            c.execute(many, {"n": windows, "id": job_id})
    (shown,) = api.get("/v1/queue", params={"limit": 1}).json()["in_hand"]
    assert shown["id"] == ids[1]


def test_the_queue_shows_the_ratios_beat_wrote_up(api: TestClient, parts: Parts) -> None:
    assert api.get("/v1/queue").json()["ratios"] == {"survey": None, "transcribe": None}
    driven.surveyed(parts, driven.received(parts))
    write_ratios(parts.store, parts.queues, parts.settings.start_policy)
    ratios = api.get("/v1/queue").json()["ratios"]
    assert ratios["survey"] is None
    assert ratios["transcribe"]["of"] == 1
    assert ratios["transcribe"]["highest"] == ratios["transcribe"]["median"] >= 1.0
    assert datetime.fromisoformat(ratios["transcribe"]["as_of"]).tzinfo is not None


def test_a_job_tells_its_place_and_when_it_is_done_until_it_has_ended(
    api: TestClient, parts: Parts
) -> None:
    def told(job_id: str) -> tuple[int | None, bool]:
        job = api.get(f"/v1/jobs/{job_id}").json()
        return job["position"], job["eta_s"] is not None

    for name in ("survey", "transcribe"):
        parts.queues[name].board.report_speed(f"{name}@x", 5.0, 2)
    unprobed, unplanned, planned = (driven.received(parts) for _ in range(3))
    driven.probed(parts, unplanned)
    driven.surveyed(parts, planned)
    ticket = driven.running(parts, driven.received(parts))
    places = [told(job_id) for job_id in (unprobed, unplanned, planned, ticket.job_id)]
    assert places == [(None, False), (1, True), (1, True), (None, True)]
    driven.completed(parts, ticket.job_id, ticket)
    assert told(ticket.job_id) == (None, False)
    assert {job["eta_s"] for job in api.get("/v1/jobs").json()["jobs"]} == {None}


def test_what_the_index_still_holds_of_an_ended_job_is_not_shown(
    api: TestClient, parts: Parts
) -> None:
    job_id = driven.received(parts)
    driven.surveyed(parts, job_id)
    driven.failed(parts, job_id)
    assert api.get("/v1/queue").json()["head"] == []


def test_a_policy_is_changed_in_postgres_and_in_every_queue(api: TestClient, parts: Parts) -> None:
    at_first = {
        "policy": "hrrn(2.5,300)",
        "in_force": "hrrn(2.5,300)",
        "mode": "fixed",
        "reason": None,
    }
    at_first["changed_at"] = None
    assert api.get("/v1/policy").json() == at_first

    change = {"policy": " AGED(2.50)", "reason": "long calls wait too long"}
    changed = api.put("/v1/policy", json=change).json()

    assert (changed["policy"], changed["reason"]) == ("aged(2.5)", "long calls wait too long")
    assert api.get("/v1/policy").json() == changed
    with transaction(parts.store) as c:
        assert policies.newest_policy(c) == Policy("aged", 2.5)
    assert {str(queue.policy()) for queue in parts.queues.values()} == {"aged(2.5)"}


def test_auto_keeps_what_is_in_force_until_it_moves_and_a_policy_ends_it(
    api: TestClient, parts: Parts
) -> None:
    asked = api.put("/v1/policy", json={"policy": " Auto ", "reason": "try it"}).json()
    assert (asked["policy"], asked["in_force"], asked["mode"]) == ("auto", "hrrn(2.5,300)", "auto")
    assert api.get("/v1/policy").json() == asked
    assert {str(queue.policy()) for queue in parts.queues.values()} == {"hrrn(2.5,300)"}
    view = api.get("/v1/queue").json()
    assert (view["policy"], view["mode"]) == ("hrrn(2.5,300)", "auto")
    fixed = api.put("/v1/policy", json={"policy": "sjf"}).json()
    assert (fixed["policy"], fixed["in_force"], fixed["mode"]) == ("sjf", "sjf", "fixed")


def test_the_setting_may_be_auto(open_api: Open, parts: Parts) -> None:
    told = open_api(FAIRSCRIBE_POLICY="auto").get("/v1/policy").json()
    assert (told["policy"], told["in_force"], told["mode"]) == ("auto", "fcfs", "auto")


@pytest.mark.parametrize(
    "change",
    [
        {"policy": "fastest"},
        {"policy": "hrrn(-1)"},
        {"policy": "hrrn(nan)"},
        {"policy": "sjf(2)"},
        {"policy": ""},
        {},
        {"policy": "fcfs", "when": "now"},
        {"policy": "fcfs", "reason": "\0"},
        {"policy": 3},
        [],
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_and_changes_nothing(
    api: TestClient, parts: Parts, change: Any
) -> None:
    assert_problem(api.put("/v1/policy", json=change), 400, "bad_request")
    assert api.get("/v1/policy").json()["policy"] == "hrrn(2.5,300)"
    assert {queue.policy() for queue in parts.queues.values()} == {None}


# -- errors ---------------------------------------------------------------------------------


def test_what_nobody_foresaw_is_a_problem_without_internals(
    api: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def burst(*_: Any, **__: Any) -> None:
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr(views, "list_jobs", burst)
    answer = api.get("/v1/jobs")
    assert_problem(answer, 500, "internal")
    assert "swordfish" not in answer.text


def test_an_unknown_path_or_method_is_a_problem_too(api: TestClient) -> None:
    assert_problem(api.get("/v1/nothing"), 404, "not_found")
    assert_problem(api.delete("/v1/policy"), 405, "method_not_allowed")
    answer = api.put("/v1/policy", content=b"{", headers={"Content-Type": "application/json"})
    assert_problem(answer, 400, "bad_request")


def test_ready_says_ok_when_postgres_and_redis_answer(api: TestClient) -> None:
    assert api.get("/v1/health/ready").json() == {"status": "ok"}


def test_the_description_of_the_api_names_the_form_and_the_problems(api: TestClient) -> None:
    described = api.get("/openapi.json").json()
    form = described["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["multipart/form-data"]
    fields = {"files", "urls", "batch_id", "language", "task", "speakers", "metadata"}
    fields |= {"deadline", "wait_budget_s", "duration_hint_s", "vocabulary", "raw_format"}
    assert set(form["schema"]["properties"]) == fields
    listed = described["paths"]["/v1/jobs"]["get"]
    assert set(listed["responses"]) == {"200", "400", "401", "403", "429", "500", "503"}
    (scheme,) = described["components"]["securitySchemes"]
    assert listed["security"] == [{scheme: []}]
    assert "security" not in described["paths"]["/v1/health"]["get"]


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ('{"a":' * 40 + "1" + "}" * 40, "nested deeper"),
        (json.dumps({"a": ["x\0"]}), "NUL character"),
    ],
)
def test_metadata_that_no_answer_could_carry_is_refused(
    api: TestClient, metadata: str, why: str
) -> None:
    sent = api.post("/v1/jobs", files={"files": ("a.wav", b"RIFF")}, data={"metadata": metadata})
    assert sent.status_code == 400
    assert why in sent.json()["detail"]
    assert api.get("/v1/jobs").json()["jobs"] == []


def test_metadata_with_a_backslash_and_a_u_is_kept(api: TestClient) -> None:
    metadata = {"path": "C:\\u0000dir"}
    fields = {"metadata": json.dumps(metadata)}
    api.post("/v1/jobs", files={"files": ("a.wav", b"RIFF")}, data=fields)
    assert api.get("/v1/jobs").json()["jobs"][0]["metadata"] == metadata


def test_a_boundary_longer_than_a_form_may_have_is_a_bad_request(api: TestClient) -> None:
    kind = {"Content-Type": f"multipart/form-data; boundary={'b' * 5000}"}
    assert api.post("/v1/jobs", content=b"x", headers=kind).status_code == 400
