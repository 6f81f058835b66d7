"""GET /v1/jobs/{id}/audio: the recording as it was sent, and nothing a browser could run."""

from __future__ import annotations

import hashlib
from urllib.parse import unquote
from uuid import UUID

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from pipeline.parts import Parts
from pipeline.store import accesses
from pipeline.store.accesses import Access
from pipeline.store.rows import now
from pipeline.store.session import transaction
from pipeline.store.tables import jobs
from tests import driven
from tests.api_door import api, assert_problem, open_api, send

__all__ = ["api", "open_api"]

SOUND = bytes(range(256)) * 4_000
"""Longer than one chunk of an answer."""


def sent(api: TestClient, name: str = "call.wav", body: bytes = SOUND) -> str:
    return str(send(api, (name, body)).json()["jobs"][0]["id"])


def accesses_to(parts: Parts, job_id: str) -> list[Access]:
    with transaction(parts.store) as c:
        return accesses.found(c, job_id=job_id)


def test_a_recording_comes_back_as_it_was_sent(api: TestClient, parts: Parts) -> None:
    job_id = sent(api, "Gespräch 1.wav")
    driven.probed(parts, job_id)
    answer = api.get(f"/v1/jobs/{job_id}/audio")
    assert (answer.status_code, answer.content) == (200, SOUND)
    told = answer.headers
    assert told["content-type"] == "audio/wav"
    assert told["content-length"] == str(len(SOUND))
    assert told["etag"] == f'"{hashlib.sha256(SOUND).hexdigest()}"'
    assert told["accept-ranges"] == "bytes"
    assert told["x-content-type-options"] == "nosniff"
    assert told["content-security-policy"].startswith("sandbox")
    assert "filename*=UTF-8''Gespr%C3%A4ch%201.wav" in told["content-disposition"]


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=100-399999", 100, 399_999),
        ("bytes=1023999-", 1_023_999, 1_023_999),
        ("bytes=-5", 1_023_995, 1_023_999),
        ("bytes=0-99999999999", 0, 1_023_999),
        ("bytes=-99999999999", 0, 1_023_999),
    ],
)
def test_a_range_is_that_range(api: TestClient, asked: str, first: int, last: int) -> None:
    answer = api.get(f"/v1/jobs/{sent(api)}/audio", headers={"Range": asked})
    assert answer.status_code == 206
    assert answer.content == SOUND[first : last + 1]
    assert answer.headers["content-range"] == f"bytes {first}-{last}/{len(SOUND)}"
    assert answer.headers["content-length"] == str(last - first + 1)


def test_what_is_no_range_is_answered_whole_and_one_beyond_the_end_is_refused(
    api: TestClient,
) -> None:
    path = f"/v1/jobs/{sent(api)}/audio"
    for odd in ("bytes=", "bytes=-", "bytes=5-2", "lines=0-1", "bytes=0-1,5-9", "x", "bytes=a-b"):
        whole = api.get(path, headers={"Range": odd})
        assert (whole.status_code, len(whole.content)) == (200, len(SOUND)), odd
    for beyond in (f"bytes={len(SOUND)}-", "bytes=999999999999-", "bytes=-0"):
        refused = api.get(path, headers={"Range": beyond})
        assert_problem(refused, 416, "range_not_satisfiable")
        assert refused.headers["content-range"] == f"bytes */{len(SOUND)}"
    etag = api.get(path).headers["etag"]
    for named, status in ((etag, 206), ('"another"', 200)):
        part = {"Range": "bytes=0-1", "If-Range": named}
        assert api.get(path, headers=part).status_code == status


@pytest.mark.parametrize(
    ("name", "saved"),
    [
        ('a"; filename="evil.exe.wav', 'a"; filename="evil.exe.wav'),
        ("a\r\nSet-Cookie: x=1.wav", "aSet-Cookie: x=1.wav"),
        ("../../etc/passwd", "passwd.bin"),
        ("..\\..\\boot.ini", "boot.bin"),
        ("page.html", "page.bin"),
        ("page.html.svg", "page.html.bin"),
        ("\u202egnp.wav", "gnp.wav"),
        ("…/…", "….bin"),
        ("é" * 300 + ".mp3", "é" * 100 + ".mp3"),
    ],
)
def test_a_file_name_ends_no_header_and_names_no_program(
    api: TestClient, name: str, saved: str
) -> None:
    job_id = sent(api)
    with transaction(api.app.state.parts.store) as c:  # type: ignore[attr-defined]
        c.execute(update(jobs).where(jobs.c.id == UUID(job_id)).values(file_name=name))
    answer = api.get(f"/v1/jobs/{job_id}/audio")
    told = answer.headers["content-disposition"]
    assert answer.headers["content-type"] == "application/octet-stream", "nobody looked inside yet"
    assert "set-cookie" not in answer.headers
    assert told.startswith('attachment; filename="')
    assert told.isascii()
    assert told.count('"') == 2
    assert unquote(told.partition("filename*=UTF-8''")[2]) == saved


def test_what_is_not_there_says_why(api: TestClient, parts: Parts) -> None:
    erased, lost = sent(api), sent(api)
    with transaction(parts.store) as c:
        c.execute(update(jobs).where(jobs.c.id == UUID(erased)).values(audio_erased_at=now))
    parts.storage.delete(f"recordings/{lost}")
    empty = sent(api, body=b"")
    coming = api.post("/v1/jobs", json={"urls": ["https://example.com/a.wav"]})
    for job_id in (erased, lost):
        assert_problem(api.get(f"/v1/jobs/{job_id}/audio"), 410, "erased")
    for job_id in (empty, coming.json()["jobs"][0]["id"]):
        assert_problem(api.get(f"/v1/jobs/{job_id}/audio"), 404, "no_recording")
    assert_problem(api.get(f"/v1/jobs/{driven.nobody()}/audio"), 404, "no_such_job")
    assert [a for j in (erased, lost, empty) for a in accesses_to(parts, j)] == []


def test_who_listens_or_reads_is_written_down_each_time(api: TestClient, parts: Parts) -> None:
    job_id = sent(api)
    api.get(f"/v1/jobs/{job_id}/audio", headers={"Range": "bytes=0-9"})
    api.get(f"/v1/jobs/{job_id}/transcript")
    driven.completed(parts, job_id)
    for format in ("json", "verbose_json", "srt", "vtt", "txt"):
        assert api.get(f"/v1/jobs/{job_id}/transcript?format={format}").status_code == 200
    assert api.get(f"/v1/jobs/{job_id}/transcript?partial=1&download=1").status_code == 200
    api.get(f"/v1/jobs/{job_id}")
    found = [(one.action, one.detail) for one in reversed(accesses_to(parts, job_id))]
    told = ("json", "verbose_json", "srt", "vtt", "txt", "json")
    assert found == [("listened", None), *(("read", format) for format in told)]


def test_what_cannot_be_written_down_is_not_given_out(
    api: TestClient, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.errors import PartDown

    job_id = sent(api)
    driven.completed(parts, job_id)

    def full(*_: object, **__: object) -> None:
        raise PartDown("Postgres does not answer: disk full")

    monkeypatch.setattr(accesses, "record", full)
    for path in ("audio", "transcript", "transcript?partial=1", "transcript?format=txt"):
        answer = api.get(f"/v1/jobs/{job_id}/{path}")
        assert_problem(answer, 503, "part_down")
        assert "Hello" not in answer.text
    assert accesses_to(parts, job_id) == []
