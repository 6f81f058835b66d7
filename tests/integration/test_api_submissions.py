"""Submissions by URL and by JSON, what is said of them, and requests that come twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from pipeline.api import idempotency
from pipeline.errors import PartDown
from pipeline.parts import Parts
from pipeline.steps.accept import Upload, accept, new_job_id
from pipeline.steps.tidy import tidy
from pipeline.store import jobs, submissions
from pipeline.store.session import transaction
from tests import driven
from tests.api_door import Open, api, assert_problem, open_api, send

__all__ = ["api", "open_api"]


def count(parts: Parts) -> int:
    with transaction(parts.store) as c:
        return int(c.execute(text("SELECT count(*) FROM jobs")).scalar_one())


def options(parts: Parts) -> list[dict[str, Any]]:
    with transaction(parts.store) as c:
        return [row.options for row in c.execute(text("SELECT options FROM jobs ORDER BY id"))]


# -- URLs -----------------------------------------------------------------------------------


def test_files_come_first_then_urls_and_each_has_a_job_or_an_error(
    api: TestClient, parts: Parts
) -> None:
    answer = api.post(
        "/v1/jobs",
        files=[("files", ("a.wav", b"a")), ("files", ("empty.wav", b""))],
        data={
            "urls": [
                "https://user:secret@example.com/calls/b%20c.wav",
                "ftp://example.com/d.wav",
                "https://example.com/" + "e" * 2000,
                "http://example.com/",
            ],
            "batch_id": "mixed",
        },
    )

    assert answer.status_code == 202, answer.text
    made = answer.json()["jobs"]
    assert [job["file_name"] for job in made] == [
        *("a.wav", "empty.wav", "b c.wav", "unnamed", "unnamed", "unnamed")
    ]
    assert [job["id"] is None for job in made] == [False, False, False, True, True, False]
    codes = [job["error"] and job["error"]["code"] for job in made]
    assert codes == [None, "empty", None, "bad_request", "bad_request", None]
    assert [job["source_url"] for job in made[:4]] == [
        *(None, None, "https://example.com/calls/b%20c.wav", "ftp://example.com/d.wav")
    ]
    assert "secret" not in answer.text
    read = api.get(f"/v1/jobs/{made[2]['id']}")
    assert read.json()["source_url"] == "https://example.com/calls/b%20c.wav"
    assert (read.json()["status"], read.json()["batch_id"]) == ("queued", "mixed")
    assert "secret" not in read.text + api.get("/v1/jobs").text
    with transaction(parts.store) as c:  # but it is kept, to be sent
        assert "secret" in jobs.recording_of(c, made[2]["id"]).source_url


def test_a_json_body_says_the_same_as_a_form(api: TestClient, parts: Parts) -> None:
    said = {
        "urls": ["https://example.com/a.wav"],
        "batch_id": "json/1",
        "language": "auto",
        "task": "translate",
        "speakers": ["Agent 7", "Kundin Ä"],
        "metadata": {"a": [1, {"b": None}]},
        "duration_hint_s": 95,
        "raw_format": "sln@16000",
    }
    answer = api.post("/v1/jobs", json=said)
    assert answer.status_code == 202, answer.text
    read = api.get(f"/v1/jobs/{answer.json()['jobs'][0]['id']}").json()
    for name in ("batch_id", "language", "task", "speakers", "raw_format", "metadata"):
        assert read[name] == said[name]
    assert read["language_detected"] is False
    assert read["duration_s"] == 95.0
    (kept,) = options(parts)
    assert kept == {name: said[name] for name in ("task", "speakers", "raw_format")}


def test_only_options_that_were_asked_for_are_kept(api: TestClient, parts: Parts) -> None:
    send(api, ("a.wav", b"a"), task="transcribe", speakers="", raw_format="")
    send(api, ("b.wav", b"b"), speakers=" agent , customer ")
    assert options(parts) == [{}, {"speakers": ["agent", "customer"]}]
    plain = api.get("/v1/jobs").json()["jobs"][0]
    assert (plain["task"], plain["speakers"], plain["source_url"]) == ("transcribe", None, None)


def test_as_many_as_eight_channels_are_named_in_their_order(api: TestClient, parts: Parts) -> None:
    names = list("abcdefgh")
    send(api, ("a.wav", b"a"), speakers=",".join(names))
    assert options(parts) == [{"speakers": names}]


def test_a_vocabulary_is_kept_on_one_line_and_told(api: TestClient, parts: Parts) -> None:
    longest = "Ä" * 1000
    for said in ("Müller,\n  Fairscribe\t21 \u200d", longest, "", "  "):
        send(api, ("a.wav", b"a"), vocabulary=said)
    kept = ["Müller, Fairscribe 21 \u200d", longest, None, None]
    assert options(parts) == [{"vocabulary": line} if line else {} for line in kept]
    assert [job["vocabulary"] for job in api.get("/v1/jobs").json()["jobs"]] == kept


def test_half_a_surrogate_pair_is_no_vocabulary(api: TestClient) -> None:
    body = b'{"urls": ["http://example.com/"], "vocabulary": "\\ud800"}'
    headers = {"Content-Type": "application/json"}
    assert_problem(api.post("/v1/jobs", content=body, headers=headers), 400, "bad_request")


def test_a_hint_stands_in_for_the_length_until_the_recording_is_probed(
    api: TestClient, parts: Parts
) -> None:
    # Given a liar: its four seconds are said to last half a minute
    (job,) = send(api, ("a.wav", b"a"), duration_hint_s="30.5").json()["jobs"]
    (plain,) = send(api, ("b.wav", b"b")).json()["jobs"]

    def length(job_id: str) -> list[Any]:
        read = api.get(f"/v1/jobs/{job_id}").json()
        return [read[name] for name in ("duration_s", "duration_source", "duration_exact")]

    assert length(job["id"]) == [30.5, "hint", False]
    assert length(plain["id"]) == [None, None, None]
    # When both are probed
    driven.probed(parts, job["id"], bucket=40)
    driven.probed(parts, plain["id"], bucket=40)
    # Then only what was found counts, in what is told and in the order of work
    assert length(job["id"]) == length(plain["id"]) == [4.0, "header", False]
    places = parts.queues["survey"].claim(9).jobs
    assert {place.bucket for place in places} == {40}


def test_a_detected_language_is_told_as_one(api: TestClient, parts: Parts) -> None:
    (job,) = send(api, ("a.wav", b"a"), language="auto").json()["jobs"]
    with transaction(parts.store) as c:
        c.execute(text("UPDATE jobs SET detected_language = 'es'"))
    read = api.get(f"/v1/jobs/{job['id']}").json()
    assert (read["language"], read["language_detected"]) == ("es", True)


CANNOT_BE_MEANT: list[tuple[dict[str, Any], str]] = [
    ({"speakers": "agent"}, "two to 8 labels"),
    ({"speakers": "a,b,c,d,e,f,g,h,i"}, "two to 8 labels"),
    ({"speakers": "a,"}, "1 to 40"),
    ({"speakers": "a," + "b" * 41}, "1 to 40"),
    ({"speakers": "a,b\x07"}, "control"),
    ({"speakers": ["a", 3]}, "1 to 40"),
    ({"speakers": {"left": "a"}}, "two to 8 labels"),
    *(
        ({"vocabulary": given}, "vocabulary is a text of at most 1,000")
        for given in ("x" * 1001, "a\0b", "bell\a", ["Müller"], 7, True, {"a": 1})
    ),
    *(
        ({"metadata": {"call_id": "7", **wrong}}, name)
        for wrong, name in (
            *(({"call_id": 7}, "call_id"), ({"call_id": ""}, "call_id")),
            ({"call_id": "x" * 201}, "call_id is a text of 1 to 200"),
            *(({"leg": 1}, "leg is"), ({"leg": "x" * 41}, "leg is"), ({"leg": "a\n"}, "leg is")),
            *(({"leg_offset_s": given}, "leg_offset_s") for given in ("soon", -1, True, 1e9)),
        )
    ),
    ({"raw_format": "mp3"}, "raw_format is one of"),
    ({"raw_format": "MULAW"}, "raw_format is one of"),
    ({"raw_format": "sln@"}, "raw_format is one of"),
    ({"raw_format": "sln@٨٠٠٠"}, "raw_format is one of"),
    ({"raw_format": "sln@16000\n"}, "raw_format is one of"),
    ({"raw_format": "звонок"}, "raw_format is one of"),
    ({"raw_format": "x" * 5_000}, "raw_format is one of"),
    ({"raw_format": "gsm@16000"}, "8000 samples a second"),
    ({"raw_format": "g722@8000"}, "16000 samples a second"),
    ({"raw_format": "sln@0"}, "4000 to 192000"),
    ({"raw_format": "mulaw@999999"}, "4000 to 192000"),
    ({"raw_format": 8000}, "is a text"),
    ({"raw_format": ["sln"]}, "is a text"),
    ({"task": "summarise"}, "task is one of"),
    ({"task": 3}, "task is one of"),
    ({"task": ["translate"]}, "task is one of"),
    ({"language": "AUTO"}, "language"),
    ({"language": ["en"]}, "language"),
    ({"batch_id": 7}, "batch_id"),
    *(
        ({"duration_hint_s": hint}, "duration_hint_s is a number of seconds")
        for hint in ("soon", 43_201)  # 12 h and a second; the rest is tests/unit/test_wishes.py's
    ),
    ({"metadata": [1]}, "metadata is not a JSON object"),
    ({"metadata": "x"}, "metadata is not JSON"),
    ({"urls": "https://example.com/"}, "urls is a list"),
    ({"urls": []}, "no recording"),
    ({"urls": ["http://example.com/"] * 10_001}, "at most 10000 URLs"),
    ({"files": []}, "'files'"),
]


def test_what_cannot_be_meant_is_told_and_makes_no_job(api: TestClient, parts: Parts) -> None:
    for said, complaint in CANNOT_BE_MEANT:
        body = {"urls": ["https://example.com/a.wav"], **said}
        assert complaint in assert_problem(api.post("/v1/jobs", json=body), 400, "bad_request")
    assert count(parts) == 0


NO_JSON_OBJECTS = [
    *(b"", b"[]", b"null", b"{", b"\xff", b'"x"', b"3", b'{"urls": ["a"]' + b"[" * 100_000),
    b'{"urls": ["http://example.com/"], "batch_id": "\\ud800"}',
]


def test_a_body_that_is_no_json_object_is_a_bad_request(api: TestClient) -> None:
    kind = {"Content-Type": "application/json; charset=utf-8"}
    for body in NO_JSON_OBJECTS:
        assert_problem(api.post("/v1/jobs", content=body, headers=kind), 400, "bad_request")


def test_a_json_body_without_end_is_not_kept_in_memory(api: TestClient) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"urls": ["'
        for _ in range(40):
            yield b"x" * (1 << 20)

    kind = {"Content-Type": "application/json"}
    answer = api.post("/v1/jobs", content=pieces(), headers=kind)
    assert "bytes" in assert_problem(answer, 400, "bad_request")


def test_odd_urls_in_a_list_are_told_one_by_one(api: TestClient, parts: Parts) -> None:
    odd = [None, 3, {}, [], "", "http://", "https://example.com/ok.wav", "javascript:alert(1)"]
    made = api.post("/v1/jobs", json={"urls": odd}).json()["jobs"]
    assert [job["id"] is not None for job in made] == [url == odd[6] for url in odd]
    assert {job["error"]["code"] for job in made if job["error"]} == {"bad_request"}
    assert count(parts) == 1


def test_thousands_of_urls_are_taken_at_once_in_their_order(api: TestClient, parts: Parts) -> None:
    urls = [f"https://example.com/{n}.wav" for n in range(2_500)]
    made = api.post("/v1/jobs", json={"urls": urls}).json()["jobs"]
    assert [job["source_url"] for job in made] == urls
    assert count(parts) == 2_500


# -- the same request twice -----------------------------------------------------------------


def keyed(api: TestClient, key: str, *files: tuple[str, bytes], **fields: str) -> Any:
    files = files or (("a.wav", b"a"), ("b.wav", b""))
    return api.post(
        "/v1/jobs",
        files=[("files", file) for file in files],
        data=fields,
        headers={"Idempotency-Key": key},
    )


def grow_older(parts: Parts, seconds: float) -> None:
    with transaction(parts.store) as c:
        age = {"s": seconds}
        c.execute(text("UPDATE submissions SET claimed_at = claimed_at - :s * interval '1 s'"), age)


def test_a_request_that_comes_again_is_answered_as_before_and_makes_nothing(
    api: TestClient, parts: Parts
) -> None:
    first, second = keyed(api, "k 1".replace(" ", "-")), keyed(api, "k-1")
    assert (first.status_code, second.status_code) == (202, 202)
    assert second.json() == first.json()
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert count(parts) == 2
    assert keyed(api, "k-2").json() != first.json()  # another key is another request
    assert count(parts) == 4


@pytest.mark.parametrize(
    "other",
    [
        {"files": (("a.wav", b"a"),)},
        {"files": (("a.wav", b"aa"), ("b.wav", b""))},
        {"files": (("A.wav", b"a"), ("b.wav", b""))},
        {"fields": {"batch_id": "b"}},
    ],
)
def test_another_request_with_the_same_key_is_refused(
    api: TestClient, parts: Parts, other: dict[str, Any]
) -> None:
    keyed(api, "k")
    answer = keyed(api, "k", *other.get("files", ()), **other.get("fields", {}))
    assert_problem(answer, 422, "idempotency_key_reused")
    assert count(parts) == 2


def test_a_key_that_is_none_is_a_bad_request(api: TestClient, parts: Parts) -> None:
    for key in ("", " ", "a b", "ü", "k" * 201, "tab\tbed"):
        headers = {"Idempotency-Key": key.encode("latin-1")}
        answer = api.post("/v1/jobs", json={"urls": ["http://example.com/"]}, headers=headers)
        assert_problem(answer, 400, "bad_request")
    assert count(parts) == 0


def claimed(parts: Parts, key: str, fingerprint: str, *job_ids: str) -> submissions.Submitting:
    with transaction(parts.store) as c:
        ours = submissions.claim(c, key, fingerprint, job_ids)
    assert isinstance(ours, submissions.Submitting)
    return ours


def fingerprint_of(api: TestClient, parts: Parts) -> str:
    """Of what `keyed` sends."""
    keyed(api, "to-learn-it")
    with transaction(parts.store) as c:
        found = c.execute(text("SELECT fingerprint FROM submissions")).scalar_one()
        c.execute(text("TRUNCATE jobs, submissions CASCADE"))
    return str(found)


def test_a_request_under_way_is_not_carried_out_beside_itself(
    api: TestClient, parts: Parts
) -> None:
    claimed(parts, "k", fingerprint_of(api, parts), new_job_id(), new_job_id())
    answer = keyed(api, "k")
    assert_problem(answer, 409, "request_in_progress")
    assert int(answer.headers["retry-after"]) >= 1
    assert count(parts) == 0


def test_a_request_cut_off_by_a_crash_is_taken_over_and_only_what_is_missing_is_made(
    api: TestClient, parts: Parts
) -> None:
    # Given a process that died after the first of two jobs
    ids = (new_job_id(), new_job_id())
    claimed(parts, "k", fingerprint_of(api, parts), *ids)
    accept(parts.store, parts.storage, Upload("a.wav", [b"a"]), 100, ids[0], again=True)
    for key, _ in parts.storage.keys("recordings"):
        if ids[0] not in key:
            parts.storage.delete(key)
    # When its client comes again, soon and late
    assert keyed(api, "k").status_code == 409
    grow_older(parts, 61)
    answer = keyed(api, "k")
    # Then the ids are those of the first time, and each is there once
    assert answer.status_code == 202, answer.text
    assert [job["id"] for job in answer.json()["jobs"]] == list(ids)
    assert count(parts) == 2
    assert len(parts.storage.keys("recordings")) == 1
    assert keyed(api, "k").headers["idempotency-replayed"] == "true"


def test_a_slow_run_that_was_taken_over_loses_its_file_and_not_the_other_ones(
    parts: Parts,
) -> None:
    job_id, other = new_job_id(), []

    def slow() -> Iterator[bytes]:
        yield b"sound "
        takes_over = threading.Thread(target=overtake)
        takes_over.start()
        takes_over.join()
        yield b"of a call"

    def overtake() -> None:
        upload = Upload("a.wav", [b"sound ", b"of a call"])
        other.append(accept(parts.store, parts.storage, upload, 100, job_id, again=True))

    late = accept(parts.store, parts.storage, Upload("a.wav", slow()), 100, job_id, again=True)
    assert [late] == other
    ((key, _),) = parts.storage.keys("recordings")
    with transaction(parts.store) as c:
        assert jobs.recording_of(c, job_id).storage_key == key
    assert parts.storage.size(key) == 15


def test_ten_at_once_make_each_job_once(api: TestClient, parts: Parts) -> None:
    answers: list[Any] = []
    gate = threading.Barrier(10)

    def ask() -> None:
        gate.wait()
        answers.append(keyed(api, "k"))

    threads = [threading.Thread(target=ask) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    codes = sorted(answer.status_code for answer in answers)
    assert set(codes) <= {202, 409}
    assert len({answer.text for answer in answers if answer.status_code == 202}) == 1
    assert count(parts) == 2


def break_at(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """Postgres goes away at the `call`th job, from 1."""
    add_job, calls = jobs.add_job, []

    def add(*arguments: Any) -> bool:
        calls.append(1)
        if len(calls) == call:
            raise PartDown("Postgres does not answer")
        return add_job(*arguments)

    monkeypatch.setattr(jobs, "add_job", add)


@pytest.mark.parametrize(("call", "status"), [(1, 503), (2, 202)])
def test_a_part_that_goes_down_leaves_the_key_usable_at_once(
    api: TestClient, parts: Parts, monkeypatch: pytest.MonkeyPatch, call: int, status: int
) -> None:
    with monkeypatch.context() as patch:
        break_at(patch, call)
        broken = keyed(api, "k", ("a.wav", b"a"), ("b.wav", b"b"), batch_id="b")
    assert broken.status_code == status
    assert count(parts) == call - 1
    whole = keyed(api, "k", ("a.wav", b"a"), ("b.wav", b"b"), batch_id="b")
    assert whole.status_code == 202
    assert "idempotency-replayed" not in whole.headers
    assert all(job["id"] for job in whole.json()["jobs"])
    if status == 202:
        assert broken.json()["jobs"][0]["id"] == whole.json()["jobs"][0]["id"]
    assert count(parts) == 2
    assert len(parts.storage.keys("recordings")) == 2


def test_a_postgres_that_stays_away_leaves_the_key_usable_when_it_is_back(
    api: TestClient, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: object) -> None:
        raise PartDown("Postgres does not answer")

    with monkeypatch.context() as patch:
        break_at(patch, 1)
        patch.setattr(submissions, "give_up", down)
        assert keyed(api, "k").status_code == 503
    assert keyed(api, "k").status_code == 202
    assert count(parts) == 2
    idempotency._given_up.clear()


def test_a_batch_that_nobody_named_stays_one_when_the_request_is_taken_over(
    api: TestClient, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        break_at(patch, 2)
        first = keyed(api, "k", ("a.wav", b"a"), ("b.wav", b"b")).json()
    second = keyed(api, "k", ("a.wav", b"a"), ("b.wav", b"b")).json()
    assert second["batch_id"] == first["batch_id"]
    with transaction(parts.store) as c:
        assert c.execute(text("SELECT count(DISTINCT batch_id) FROM jobs")).scalar_one() == 1


def test_keys_are_forgotten_after_a_week(api: TestClient, parts: Parts) -> None:
    keyed(api, "k")
    grow_older(parts, 6.9 * 86_400)
    tidy(parts.store, parts.storage)
    assert keyed(api, "k").headers["idempotency-replayed"] == "true"
    grow_older(parts, 0.2 * 86_400)
    tidy(parts.store, parts.storage)
    assert "idempotency-replayed" not in keyed(api, "k").headers


def test_urls_are_made_once_too(api: TestClient, parts: Parts) -> None:
    body = {"urls": ["http://example.com/a.wav", "nonsense"]}
    headers = {"Idempotency-Key": "k"}
    first = api.post("/v1/jobs", json=body, headers=headers)
    with transaction(parts.store) as c:
        c.execute(text("UPDATE submissions SET answer = NULL"))  # as if its process had died
    grow_older(parts, 61)
    second = api.post("/v1/jobs", json=body, headers=headers)
    assert second.json() == first.json()
    assert count(parts) == 1


# -- lists, links ---------------------------------------------------------------------------


def test_a_list_is_chosen_by_age_and_turned_round(api: TestClient, parts: Parts) -> None:
    made = [send(api, (f"{n}.wav", b"a")).json()["jobs"][0]["id"] for n in range(5)]
    ages = [api.get(f"/v1/jobs/{job_id}").json()["created_at"] for job_id in made]

    def listed(**which: Any) -> list[str]:
        return [job["id"] for job in api.get("/v1/jobs", params=which).json()["jobs"]]

    assert listed(created_after=ages[2]) == made[2:]
    assert listed(created_before=ages[2]) == made[:2]
    assert listed(created_after=ages[1], created_before=ages[3]) == made[1:3]
    assert listed(order="newest") == made[::-1]
    page = api.get("/v1/jobs", params={"order": "newest", "limit": 2}).json()
    assert [job["id"] for job in page["jobs"]] == made[:2:-1]
    assert listed(order="newest", limit=2, cursor=page["next_cursor"]) == made[2:0:-1]
    assert listed(created_before="0001-01-01T00:00:00+23:59") == []
    assert listed(created_after="9999-12-31T23:59:59-23:59") == []
    elsewhere = datetime.fromisoformat(ages[2]).astimezone().isoformat()
    assert listed(created_after=elsewhere) == made[2:]


def test_a_list_by_what_is_no_time_or_order_is_a_bad_request(api: TestClient) -> None:
    for which in (
        {"created_after": "yesterday"},
        {"created_after": "2026-03-02T09:00:00"},  # of which place?
        {"created_before": "2026-13-02T09:00:00Z"},
        {"order": "random"},
    ):
        assert_problem(api.get("/v1/jobs", params=which), 400, "bad_request")


def test_a_job_links_to_its_task_in_flower_once_it_has_one(open_api: Open, parts: Parts) -> None:
    api = open_api(FAIRSCRIBE_FLOWER_URL="https://flower.example/")
    (job,) = send(api, ("a.wav", b"a")).json()["jobs"]
    assert api.get(f"/v1/jobs/{job['id']}").json()["task_url"] is None
    with transaction(parts.store) as c:
        c.execute(text("UPDATE jobs SET started_at = now()"))
    read = api.get(f"/v1/jobs/{job['id']}").json()
    assert read["task_url"] == f"https://flower.example/task/{job['id']}"
    assert api.get("/v1/jobs").json()["jobs"][0]["task_url"] == read["task_url"]


@pytest.mark.parametrize(
    ("port", "host", "url"),
    [
        ("5555", "127.0.0.1", "http://127.0.0.1:5555/task/"),
        ("5555", "::1", "http://[::1]:5555/task/"),
        ("5555", "0.0.0.0", None),
        ("0", "127.0.0.1", None),
    ],
)
def test_where_nobody_said_how_flower_is_reached_its_own_address_is_told(
    open_api: Open, parts: Parts, port: str, host: str, url: str | None
) -> None:
    api = open_api(FAIRSCRIBE_FLOWER_PORT=port, FAIRSCRIBE_FLOWER_HOST=host)
    (job,) = send(api, ("a.wav", b"a")).json()["jobs"]
    with transaction(parts.store) as c:
        c.execute(text("UPDATE jobs SET started_at = now()"))
    told = api.get(f"/v1/jobs/{job['id']}").json()["task_url"]
    assert told == (url and url + job["id"])


def test_the_history_of_the_policy_is_told_newest_first(api: TestClient) -> None:
    assert api.get("/v1/policy/history").json() == {"changes": []}
    for policy, reason in (("sjf", "short ones wait"), ("fcfs", "long ones do – Ä")):
        api.put("/v1/policy", json={"policy": policy, "reason": reason})
    told = api.get("/v1/policy/history").json()["changes"]
    assert [(change["policy"], change["reason"]) for change in told] == [
        ("fcfs", "long ones do – Ä"),
        ("sjf", "short ones wait"),
    ]
    assert told[0]["changed_at"] > told[1]["changed_at"]
    assert api.get("/v1/policy/history", params={"limit": 1}).json()["changes"] == told[:1]
    assert api.get("/v1/policy").json() == told[0]
    assert_problem(api.get("/v1/policy/history?limit=0"), 400, "bad_request")


def test_a_url_with_a_nul_is_refused_by_itself_also_under_a_key(api: TestClient) -> None:
    sent = {"json": {"urls": ["a\0b"]}, "headers": {"Idempotency-Key": "nul"}}
    first, again = api.post("/v1/jobs", **sent), api.post("/v1/jobs", **sent)
    assert first.status_code == again.status_code == 202
    assert first.json() == again.json()
    assert first.json()["jobs"][0]["source_url"] == "a\ufffdb"
