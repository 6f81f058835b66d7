"""`fairscribe ...` in this process, against a real API on a free port where one is asked for; and a
web server of others, for what we fetch from it and send to it.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from pipeline import cli
from pipeline.api.app import create
from tests.web import Web, serving


@dataclass
class Ran:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def api_port(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The API in this process, served on a real socket."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    line = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create(), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [line]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield line.getsockname()[1]
    server.should_exit = True
    thread.join()
    line.close()


@pytest.fixture
def alone(
    environ: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Run `fairscribe ...` in this process, where no service was started."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home" / "state"))

    def run(*words: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["fairscribe", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return Ran(int(ended.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def run(alone: Run, api_port: int, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `fairscribe ...` in this process against the API."""
    monkeypatch.setenv("FAIRSCRIBE_API_URL", f"http://127.0.0.1:{api_port}")
    return alone


@pytest.fixture(scope="module")
def everywhere() -> Iterator[Web]:
    """A web server at every address of this machine."""
    with serving("0.0.0.0") as web:
        yield web


@pytest.fixture
def web(everywhere: Web) -> Web:
    """The same, which nobody has asked for anything yet."""
    everywhere.asked.clear()
    everywhere.sent.clear()
    return everywhere
