"""The HTTP door opened for a test: import the fixtures `open_api` and `api` where needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
import uvicorn
from fastapi.testclient import TestClient

from pipeline.api.app import create
from tests.lines import eventually

Open = Callable[..., TestClient]


@pytest.fixture
def open_api(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Start the API with `environ`, some of it replaced."""
    opened: list[TestClient] = []

    def start(**instead: str) -> TestClient:
        for name, value in {**environ, **instead}.items():
            monkeypatch.setenv(name, value)
        client = TestClient(create(), raise_server_exceptions=False)
        client.__enter__()
        opened.append(client)
        return client

    yield start
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def api(open_api: Open) -> TestClient:
    """The API of a fresh installation."""
    return open_api()


@contextmanager
def listening(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The API behind a real server and a real socket: its URL. For streams and hang-ups."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    config = uvicorn.Config(create(), host="127.0.0.1", port=0, log_level="warning")
    config.timeout_graceful_shutdown = 1
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started, 20)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)


def send(api: TestClient, *files: tuple[str, bytes], **fields: str) -> httpx.Response:
    """POST these files."""
    return api.post("/v1/jobs", files=[("files", file) for file in files], data=fields)


def assert_problem(answer: httpx.Response, status: int, code: str) -> str:
    """The answer is this problem; its sentence."""
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    return str(answer.json()["detail"])
