"""What every answer of the API carries, and names of files in headers that anybody may choose."""

from __future__ import annotations

import logging
import re
from urllib.parse import quote, unquote

import pytest
from fastapi.testclient import TestClient

from pipeline.api.app import create
from pipeline.api.headers import PAGE_POLICY, SAFE
from pipeline.api.transcripts import attachment
from pipeline.cli.file_names import safe_path
from pipeline.parts import Parts
from tests import driven
from tests.api_door import api, open_api

_fixtures = (api, open_api)
PATHS = [
    path
    for path, methods in create().openapi()["paths"].items()
    if "get" in methods and not path.endswith("/events")  # a stream does not end
]


def test_every_answer_is_kept_by_nobody_and_shown_in_no_frame(
    api: TestClient, parts: Parts
) -> None:
    job_id = driven.received(parts, batch_id="b")
    driven.completed(parts, job_id)
    assert len(PATHS) > 10
    for path in [*PATHS, "/openapi.json", "/docs", "/nowhere"]:
        told = api.get(
            re.sub("{.*?}", "b", path.replace("{job_id}", job_id)),
            headers={"Origin": "https://elsewhere.example"},
        ).headers
        page = told["content-type"].startswith("text/html")
        expected = SAFE | ({"Content-Security-Policy": PAGE_POLICY} if page else {})
        if path.endswith("/audio"):  # a sender's bytes run no script either
            expected |= {"Content-Security-Policy": f"sandbox; {SAFE['Content-Security-Policy']}"}
        assert {name: told.get(name) for name in expected} == expected, path
        assert not [name for name in told if name.startswith("access-control")], path
        assert "server" not in told, path


def test_an_answer_to_what_nobody_foresaw_carries_them_too(
    api: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.store import views

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(views, "view", broken)
    answer = api.get(f"/v1/jobs/{driven.nobody()}")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert {name: answer.headers.get(name) for name in SAFE} == SAFE


HOSTILE = [
    'a"; filename="evil.exe',
    "a\r\nSet-Cookie: x=1\r\n\r\n<script>",
    "../../etc/passwd",
    "..\\..\\windows\\system32\\evil.dll",
    "\u202egpj.exe",
    "x" * 300 + ".wav",
    "\U0001f600" * 300,
    "\0.wav",
    "%0d%0aX: y",
    "~/.ssh/authorized_keys",
    ".",
    "",
    "a;b=c*d'e",
    "\udcff.wav",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_name_is_one_harmless_name_in_a_header_and_on_disk(name: str) -> None:
    header = attachment(name, ".srt")
    assert header.isascii()
    assert header.isprintable()
    found = re.fullmatch(r"""attachment; filename="([^"\\/]+)"; filename\*=UTF-8''(\S+)""", header)
    assert found, header
    for kept in (found[1], unquote(found[2])):
        assert kept.endswith(".srt")
        assert not set(kept) & set("/\\\r\n\0\u202e")
        assert not kept.startswith(".")
        assert len(kept.encode()) <= 255
    path = safe_path(name)
    assert not path.is_absolute()
    assert ".." not in path.parts
    assert all(len(step.encode()) <= 255 and not step.startswith(".") for step in path.parts)
    assert not set(str(path)) & set('\\\r\n\0\u202e"')


def test_the_access_log_holds_no_name_a_caller_chose(
    api: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    name = quote("marker Smith")
    for path in (f"/v1/batches/{name}?x=marker", f"/v1/calls/{name}", "/v1/jobs?batch=marker"):
        line = ("127.0.0.1:1", "GET", path, "1.1", 200)
        record = logging.LogRecord(
            "uvicorn.access", 20, "", 0, '%s - "%s %s HTTP/%s" %d', line, None
        )
        assert logging.getLogger("uvicorn.access").filter(record)
        shown = record.getMessage()
        assert "marker" not in shown
        assert path.split("/")[2].partition("?")[0] in shown
