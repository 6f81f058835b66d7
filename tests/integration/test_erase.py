"""Nothing of an erased job remains, it does not come back, and only who is meant is erased."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from redis import Redis
from sqlalchemy import text

from pipeline.caller import ANYONE, Caller, Scope
from pipeline.errors import NoSuchJob
from pipeline.intake.storage import TOMBSTONES
from pipeline.parts import Parts
from pipeline.steps.accept import Upload, accept
from pipeline.steps.erase import (
    count_where,
    erase,
    erase_again,
    erase_due,
    erase_where,
    is_erased,
)
from pipeline.steps.tidy import tidy
from pipeline.store import submissions, tables
from pipeline.store.erasures import Whose
from pipeline.store.retention import Keep
from pipeline.store.session import transaction
from tests import driven
from tests.api_door import api, assert_problem, open_api
from tests.integration.test_retire import aged, row
from tests.lines import surveyed_job

__all__ = ["api", "open_api"]

MARK = "Zyxwvut"
"""Stands in everything somebody says of a recording, and in what is heard of it."""


def of_person(parts: Parts, metadata: dict[str, Any], batch_id: str | None = None) -> str:
    upload = Upload("a.wav", [b"RIFF"], metadata=metadata, batch_id=batch_id)
    return accept(parts.store, parts.storage, upload, 100).job_id


def where(metadata: dict[str, Any], caller: Caller = ANYONE, batch: str | None = None) -> Whose:
    return Whose(caller, metadata, batch)


def left(parts: Parts) -> set[str]:
    with transaction(parts.store) as c:
        return {str(i) for i in c.execute(text("SELECT id FROM jobs")).scalars()}


def places_of(parts: Parts, mark: str, logs: str) -> list[str]:
    """Every place in which `mark` stands: columns, files, keys and values of Redis, logs."""
    found = []
    with transaction(parts.store) as c:
        for table in tables.metadata.sorted_tables:
            for column in table.columns:
                query = f'SELECT count(*) FROM {table.name} WHERE "{column.name}"::text LIKE :mark'
                if c.execute(text(query), {"mark": f"%{mark}%"}).scalar_one():
                    found.append(f"{table.name}.{column.name}")
    for path in sorted(Path(parts.settings.home).rglob("*")):
        if mark in path.name or (path.is_file() and mark.encode() in path.read_bytes()):
            found.append(path.parent.name)
    redis = Redis.from_url(str(parts.settings.redis_url))
    for key in redis.scan_iter(count=1000):
        if mark.encode() in key + (redis.dump(key) or b""):
            found.append("redis")
    return found + (["logs"] if mark in logs else [])


def test_a_name_told_in_every_place_is_in_none_once_its_job_is_erased(
    api: httpx.Client, parts: Parts, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given a keyed submission that says a name wherever one can be said, and a transcript of it
    said = {
        "metadata": json.dumps({"customer": MARK, "of": [MARK]}),
        "vocabulary": MARK,
        "urls": f"http://{MARK}.example/{MARK}.wav",
        "speakers": f"{MARK},customer",
    }
    files = [("files", (f"{MARK}.wav", b"RIFF" + MARK.encode()))]
    key = {"Idempotency-Key": "k-1"}
    answer = api.post("/v1/jobs", files=files, data=said, headers=key)
    assert answer.status_code == 202, answer.text
    sent = [job["id"] for job in answer.json()["jobs"]]
    heard = surveyed_job(parts)
    with transaction(parts.store) as c:
        body = json.dumps({"text": f"My name is {MARK}."})
        at = {"id": sent[0], "key": f"packed/{sent[0]}-1", "body": body, "heard": heard}
        for statement in (
            "INSERT INTO transcripts (job_id, attempt, body) VALUES (:id, 1, :body)",
            "INSERT INTO windows (job_id, plan_hash, model, index, attempt, heard, busy_s)"
            " VALUES (:id, 'h', 'm', 0, 1, :body, 0.1)",
            "INSERT INTO plans SELECT CAST(:id AS uuid), plan_hash, CAST(:key AS text), plan"
            " FROM plans WHERE job_id = :heard",
        ):
            c.execute(text(statement), at)
    parts.storage.put(f"packed/{sent[0]}-1", [MARK.encode()], 100)
    before = places_of(parts, MARK, "")
    assert {"jobs.file_name", "jobs.metadata", "jobs.options", "jobs.source_url"} <= set(before)
    assert {"transcripts.body", "windows.heard", "submissions.answer"} <= set(before)
    assert {"recordings", "packed"} <= set(before)
    # When both are erased
    for job_id in sent:
        assert api.delete(f"/v1/jobs/{job_id}").status_code == 204
    # Then it is nowhere, in no log either
    out = capsys.readouterr()
    assert places_of(parts, MARK, out.out + out.err) == []
    # And the same request is answered, and brings nothing back
    again = api.post("/v1/jobs", files=files, data=said, headers=key)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert [job["error"]["code"] for job in again.json()["jobs"]] == ["erased", "erased"]
    assert left(parts) == {heard}


def test_a_keyed_request_that_was_cut_off_does_not_bring_back_what_was_erased(
    api: httpx.Client, parts: Parts
) -> None:
    # Given a request that was cut off after its jobs were made, before it was answered
    files = [("files", (f"{MARK}.wav", b"RIFF"))]
    asked: dict[str, Any] = {
        "files": files,
        "data": {"urls": f"http://example.com/{MARK}.wav"},
        "headers": {"Idempotency-Key": "k-1"},
    }
    sent = [job["id"] for job in api.post("/v1/jobs", **asked).json()["jobs"]]
    with transaction(parts.store) as c:
        c.execute(text("UPDATE submissions SET answer = NULL, claimed_at = '2020-01-01'"))
    # When its jobs are erased and it comes again
    for job_id in sent:
        erase(parts.store, parts.storage, parts.queues, job_id)
    answer = api.post("/v1/jobs", **asked).json()
    # Then it is told so, and nothing of it is kept, its name neither
    assert [job["id"] for job in answer["jobs"]] == sent
    assert [job["error"]["code"] for job in answer["jobs"]] == ["erased", "erased"]
    assert left(parts) == set()
    assert parts.storage.keys("recordings") == []
    assert places_of(parts, MARK, "") == []


def test_an_answer_written_down_after_its_job_was_erased_is_cleared_by_the_next_round(
    parts: Parts,
) -> None:
    job_id = driven.received(parts)
    with transaction(parts.store) as c:
        ours = submissions.claim(c, "k", "f", [job_id])
    assert isinstance(ours, submissions.Submitting)
    erase(parts.store, parts.storage, parts.queues, job_id)
    with transaction(parts.store) as c:
        line = {"id": job_id, "file_name": MARK, "source_url": None, "error": None}
        submissions.answered(c, ours, {"batch_id": "b", "jobs": [line]})
    assert places_of(parts, MARK, "") == ["submissions.answer"]
    erase_again(parts.store, parts.storage, parts.queues, Keep())
    assert places_of(parts, MARK, "") == []


PERSONS: list[dict[str, Any]] = [
    {"customer_id": "42", "agent": "7"},
    {"customer_id": 42},
    {"customer_id": [41, "42"]},
    {"customer_id": "421"},
    {"customer_id": {"42": "42"}},
    {"agent": "42"},
    {},
]


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        ({"customer_id": "42"}, {0, 1, 2}),
        ({"customer_id": 42}, {0, 1, 2}),
        ({"customer_id": "42", "agent": "7"}, {0}),
        ({"customer_id": "42", "agent": "8"}, set()),
        ({"customer_id": "' OR 1=1 --"}, set()),
        ({"customer_id": "NaN"}, set()),  # what Python reads as a number and Postgres does not
        ({"customer_id": "-Infinity"}, set()),
        ({"customer_id": "1e999"}, set()),
    ],
)
def test_only_who_is_meant_is_erased(
    api: httpx.Client, parts: Parts, asked: dict[str, Any], fits: set[int]
) -> None:
    ids = [of_person(parts, metadata) for metadata in PERSONS]
    dry = api.post("/v1/erasures", json={"metadata": asked, "dry_run": True}).json()
    assert dry == {"erased": 0, "more": bool(fits), "found": len(fits)}
    done = api.post("/v1/erasures", json={"metadata": asked}).json()
    assert done == {"erased": len(fits), "more": False, "found": None}
    assert left(parts) == {job_id for n, job_id in enumerate(ids) if n not in fits}


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"metadata": {}},
        {"metadata": {"vip": True}},
        {"metadata": {"customer_id": ""}},
        {"metadata": {"customer_id": " "}},
        {"metadata": {"customer_id": None}},
        {"metadata": {"customer_id": {}}},
        {"metadata": {"customer_id": []}},
        {"metadata": {"": "42"}},
        {"metadata": {"customer_id": "4\x002"}},
        {"metadata": {"customer_id": "\ud800"}},
        {"metadata": {"\ud800": "42"}},
        {"batch_id": "\ud800"},
        {"metadata": {str(n): "x" for n in range(11)}},
        {"batch_id": ""},
        {"metadata": {"customer_id": "42"}, "tenant": "other"},
    ],
    ids=ascii,
)
def test_what_names_nobody_is_refused_and_erases_nothing(
    api: httpx.Client, parts: Parts, asked: dict[str, Any]
) -> None:
    job_id = of_person(parts, {"customer_id": "", "vip": True})
    assert_problem(api.post("/v1/erasures", content=json.dumps(asked)), 400, "bad_request")
    assert left(parts) == {job_id}


def test_an_erasure_goes_in_bounded_steps_and_stays_with_its_tenant(parts: Parts) -> None:
    ids = [of_person(parts, {"customer_id": "42"}) for _ in range(5)]
    with transaction(parts.store) as c:
        c.execute(text("INSERT INTO tenants (name) VALUES ('ours')"))
        ours = {"ids": [UUID(i) for i in ids[:3]]}
        c.execute(text("UPDATE jobs SET tenant = 'ours' WHERE id = ANY(:ids)"), ours)
    store, storage, queues = parts.store, parts.storage, parts.queues
    caller = Caller("key", "ours", frozenset(Scope))
    whose = where({"customer_id": "42"}, caller)
    assert count_where(store, whose) == 3
    assert erase_where(store, storage, queues, whose, at_once=1) == (3, False)
    assert left(parts) == set(ids[3:])
    with transaction(store) as c:
        told = c.execute(text("SELECT action, tenant, key_id, job_id FROM accesses ORDER BY id"))
        assert [(a, t, k, str(j)) for a, t, k, j in told] == [
            ("erased", "ours", "key", i) for i in sorted(ids[:3])
        ]
    assert erase_where(store, storage, queues, where({"customer_id": "42"})) == (2, False)


def test_a_batch_is_erased_without_its_neighbours(api: httpx.Client, parts: Parts) -> None:
    of_person(parts, {}, "monday")
    kept = of_person(parts, {}, "tuesday")
    assert api.post("/v1/erasures", json={"batch_id": "monday"}).json()["erased"] == 1
    assert left(parts) == {kept}


@pytest.mark.parametrize("at", ["erase_after_tombstone", "erase_after_sound", "erase_after_row"])
def test_killed_in_the_middle_the_next_round_erases_the_rest(
    parts: Parts, environ: dict[str, str], at: str
) -> None:
    job_id = driven.received(parts)
    driven.probed(parts, job_id)
    code = (
        "import sys; from pipeline.parts import open_parts;"
        "from pipeline.settings import read_settings; from pipeline.steps.erase import erase;"
        "p = open_parts(read_settings()); erase(p.store, p.storage, p.queues, sys.argv[1])"
    )
    env = {**os.environ, **environ, "FAIRSCRIBE_CRASH_AT": at}
    assert subprocess.run([sys.executable, "-c", code, job_id], env=env).returncode == 9
    assert is_erased(parts.storage, job_id)
    erase_again(parts.store, parts.storage, parts.queues, Keep())
    assert left(parts) == set()
    assert parts.storage.keys("recordings") == []
    with pytest.raises(NoSuchJob):
        erase(parts.store, parts.storage, parts.queues, job_id)


def test_a_row_that_a_restore_brings_back_is_erased_again_and_its_tombstone_has_its_days(
    parts: Parts,
) -> None:
    job_id = driven.received(parts)
    kept = row(parts, job_id)
    erase(parts.store, parts.storage, parts.queues, job_id)
    with transaction(parts.store) as c:
        c.execute(tables.jobs.insert().values(dict(kept._mapping)))
    parts.storage.put(kept.storage_key, [b"RIFF"], 10)
    assert erase_again(parts.store, parts.storage, parts.queues, Keep()) == 1
    assert left(parts) == set()
    assert parts.storage.keys("recordings") == []
    tomb = parts.settings.home / "storage" / TOMBSTONES / job_id
    assert tomb.exists()
    os.utime(tomb, (0, 0))
    erase_again(parts.store, parts.storage, parts.queues, Keep())
    assert not tomb.exists()


@pytest.mark.parametrize("stray", ["notes", ".DS_Store", "a note.txt", "deep/down"])
def test_what_somebody_else_laid_among_the_tombstones_stops_no_erasure(
    stray: str, parts: Parts
) -> None:
    job_id = driven.received(parts)
    kept = row(parts, job_id)
    erase(parts.store, parts.storage, parts.queues, job_id)
    with transaction(parts.store) as c:
        c.execute(tables.jobs.insert().values(dict(kept._mapping)))
    for folder in (TOMBSTONES, "recordings", "packed"):
        place = parts.settings.home / "storage" / folder / stray
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("x")
        os.utime(place, (0, 0))
    assert erase_again(parts.store, parts.storage, parts.queues, Keep()) == 1
    assert left(parts) == set()
    tidy(parts.store, parts.storage)
    assert (parts.settings.home / "storage" / TOMBSTONES / stray).exists()


def test_whole_jobs_go_when_their_days_are_over(parts: Parts) -> None:
    old, young = driven.received(parts), driven.received(parts)
    for job_id, days in ((old, 31), (young, 29)):
        driven.failed(parts, job_id)
        aged(parts, job_id, days)
    waiting = driven.received(parts)
    keep = Keep(jobs_days=30)
    assert erase_due(parts.store, parts.storage, parts.queues, keep) == 1
    assert left(parts) == {young, waiting}
    assert parts.storage.keys(TOMBSTONES) == []
    with transaction(parts.store) as c:
        told = c.execute(text("SELECT action, key_id, job_id FROM accesses")).all()
    assert [(a, k, str(j)) for a, k, j in told] == [("expired", None, old)]
