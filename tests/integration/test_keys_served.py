"""Keys at a real server's door: uploads of strangers, headers without end, streams that end."""

from __future__ import annotations

import io
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from openai import AuthenticationError, OpenAI, PermissionDeniedError

from pipeline.caller import Scope
from pipeline.parts import Parts
from pipeline.store import accesses
from pipeline.store.session import transaction
from tests import driven
from tests.keyed import bearing, id_of, new_key, revoke
from tests.listening import each_job, listening


@pytest.fixture
def address(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in {**environ, "FAIRSCRIBE_KEYS": "on"}.items():
        monkeypatch.setenv(name, value)
    with listening() as url:
        yield url


def batch_of(parts: Parts, address: str, key: str) -> str:
    """A batch with one job that has not ended; the job's id."""
    files = {"files": ("a.wav", b"RIFF")}
    sent = httpx.post(
        f"{address}/v1/jobs", files=files, data={"batch_id": "b"}, headers=bearing(key)
    )
    return str(sent.json()["jobs"][0]["id"])


def begun(address: str, header: str, length: int) -> socket.socket:
    """A connection on which an upload of `length` bytes is announced, and none of it sent."""
    host, port = address.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    connection.sendall(
        f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\n{header}Content-Length: {length}\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\n\r\n".encode()
    )
    return connection


@pytest.mark.parametrize("scopes", [(), (Scope.READ,)], ids=["no key", "a key that may not"])
def test_a_stranger_is_refused_before_a_byte_of_the_upload_is_read(
    address: str, parts: Parts, scopes: tuple[Scope, ...]
) -> None:
    key = new_key(parts, "acme", *scopes) if scopes else None
    header = f"Authorization: Bearer {key}\r\n" if key else ""
    with begun(address, header, 2_000_000_000) as connection:
        answer = connection.recv(65_536)
        status = b"403" if key else b"401"
        assert answer.startswith(b"HTTP/1.1 " + status)
        # what comes all the same is kept nowhere
        part = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.wav"\r\n\r\n'
        connection.sendall(part + b"\0" * 3_000_000)
    uploads = Path(parts.settings.home / "uploads")
    assert not uploads.exists() or list(uploads.iterdir()) == []
    assert not list((parts.settings.home / "storage").rglob("recordings/*"))


def test_a_header_of_a_megabyte_is_refused_and_the_next_caller_served(
    address: str, parts: Parts
) -> None:
    key = new_key(parts, "acme")
    with begun(address, f"Authorization: Bearer {'a' * 1_000_000}\r\n", 0) as connection:
        answer = connection.recv(65_536)
    assert answer.split(b" ")[1] in (b"400", b"401", b"431")
    assert httpx.get(f"{address}/v1/me", headers=bearing(key)).json()["key_id"] == id_of(key)


def test_a_stream_and_a_wait_end_when_their_key_is_revoked(
    address: str, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as where looks are slow: the next one would come in a minute
    monkeypatch.setattr("pipeline.api.events.LOOKS_SHARE", 1e-9)
    monkeypatch.setattr("pipeline.api.events.HEARTBEAT_S", 60.0)
    key = new_key(parts, "acme")
    job_id = batch_of(parts, address, key)
    answers: list[httpx.Response] = []

    def wait() -> None:
        path = f"{address}/v1/jobs/{job_id}?wait=60"
        answers.append(httpx.get(path, headers=bearing(key), timeout=70))

    waiting = threading.Thread(target=wait)
    with httpx.stream(
        "GET", f"{address}/v1/batches/b/events", headers=bearing(key), timeout=30
    ) as events:
        lines = events.iter_lines()
        assert next(line for line in lines if line == "event: batch")
        waiting.start()
        revoke(parts, key)
        revoked_s = time.monotonic()
        rest = list(lines)
    assert time.monotonic() - revoked_s < 20, "5 s on a quiet machine"
    assert "event: done" not in rest
    driven.completed(parts, job_id)
    waiting.join(20)
    assert answers[0].status_code == 401, "it ended while the request waited; nothing is told"


def test_openais_client_sends_the_key_and_reads_our_refusals(address: str, parts: Parts) -> None:
    def client(key: str) -> OpenAI:
        return OpenAI(base_url=f"{address}/v1", api_key=key, max_retries=0, timeout=30)

    sound = ("call.wav", b"RIFF")
    with pytest.raises(AuthenticationError) as unknown:
        client("sk-123").audio.transcriptions.create(model="whisper-1", file=sound)
    assert unknown.value.code == "key_unknown"
    submitter = client(new_key(parts, "acme", Scope.SUBMIT))
    with pytest.raises(PermissionDeniedError) as lacking:
        submitter.audio.transcriptions.create(model="whisper-1", file=sound)
    assert lacking.value.code == "scope_missing"
    key = new_key(parts, "acme", Scope.SUBMIT, Scope.READ)
    with each_job(parts, driven.completed) as job_ids:
        said = client(key).audio.transcriptions.create(model="whisper-1", file=sound)
    assert said.text
    with transaction(parts.store) as c:
        (read,) = accesses.found(c, job_id=job_ids[0])
    assert (read.action, read.key_id, read.tenant) == ("read", id_of(key), "acme")
    colleague = bearing(new_key(parts, "acme", Scope.READ))
    seen = httpx.get(f"{address}/v1/jobs", headers=colleague).json()["jobs"]
    assert [job["id"] for job in seen] == job_ids, "its jobs are its tenant's, too"


def test_no_key_is_written_into_a_log(
    address: str, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "uvicorn.access")]
    key, wrong = new_key(parts, "acme"), "fs_0123456789ab_" + "w" * 43
    monkeypatch.setattr("pipeline.store.views.list_jobs", lambda *_, **__: 1 / 0)
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    try:
        for sent in (key, wrong):
            for path in ("/v1/jobs/1", "/v1/policy", "/metrics", "/v1/jobs"):
                httpx.get(f"{address}{path}", headers=bearing(sent))
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
    written = lines.getvalue()
    assert "/v1/policy" in written, "requests are told of"
    assert "ZeroDivisionError" in written, "and what went wrong"
    for secret in (key, wrong):
        assert secret.split("_", 2)[2] not in written
