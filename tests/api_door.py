"""The HTTP door opened for a test: import the fixtures `open_api` and `api` where needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest
from fastapi.testclient import TestClient

from pipeline.api.app import create
from tests.listening import listening

Open = Callable[..., TestClient]


@pytest.fixture
def open_api(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Start the API with `environ`, some of it replaced."""
    opened: list[TestClient] = []

    def start(**instead: str) -> TestClient:
        for name, value in {**environ, **instead}.items():
            monkeypatch.setenv(name, value)
        app = create()
        client = TestClient(app, raise_server_exceptions=False)
        client.__enter__()
        # what a test has just put in place is to be seen at once
        app.state.parts.outlooks.kept_s = 0.0
        opened.append(client)
        return client

    yield start
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def api(open_api: Open) -> TestClient:
    """The API of a fresh installation."""
    return open_api()


@pytest.fixture
def served(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The API behind a real server and a real socket: its URL. For streams and hang-ups."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with listening() as url:
        yield url


def send(api: httpx.Client, *files: tuple[str, bytes], **fields: str) -> httpx.Response:
    """POST these files."""
    return api.post("/v1/jobs", files=[("files", file) for file in files], data=fields)


def assert_problem(answer: httpx.Response, status: int, code: str) -> str:
    """The answer is this problem; its sentence."""
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert set(answer.json()) == {"type", "title", "status", "detail", "code"}
    assert answer.json()["status"] == status
    return str(answer.json()["detail"])
