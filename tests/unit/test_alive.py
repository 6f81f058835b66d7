"""Health of a part: a fresh file, or a server that answers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from workers import alive
from workers.ready import VARIABLE, say_ready, still_ready


@pytest.fixture
def ready_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "ready"
    monkeypatch.setenv(VARIABLE, str(path))
    return path


def test_a_worker_is_well_from_its_first_word_until_it_falls_silent(ready_file: Path) -> None:
    still_ready()  # a sign of life is no sign of being ready
    assert alive.trouble_of_worker(str(ready_file)) == "not ready yet"
    say_ready()
    assert alive.trouble_of_worker(str(ready_file)) is None
    long_ago = time.time() - alive.FRESH_S - 30
    os.utime(ready_file, (long_ago, long_ago))
    assert alive.trouble_of_worker(str(ready_file)) == "not seen at work for 90 s"
    still_ready()
    assert alive.trouble_of_worker(str(ready_file)) is None


def test_nothing_is_said_of_a_worker_that_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    say_ready()
    still_ready()
    assert VARIABLE in str(alive.trouble_of_worker(None))


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(int(self.path[1:]))
        self.end_headers()
        self.wfile.write(b"Postgres does not answer.")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Answers) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


def test_a_server_is_well_when_it_answers_200(server: str) -> None:
    assert alive.trouble_of_server(f"{server}/200") is None
    assert alive.trouble_of_server(f"{server}/503") == "answers 503: Postgres does not answer."
    assert alive.trouble_of_server(f"{server}/204") == "answers 204"
    assert str(alive.trouble_of_server("http://127.0.0.1:1/")).startswith("does not answer: ")
    assert str(alive.trouble_of_server("no url")).startswith("does not answer: ")


def test_the_exit_code_tells(ready_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert alive.main([]) == 1
    say_ready()
    assert alive.main([]) == 0
    assert capsys.readouterr().out == "not ready yet\nwell\n"


def test_a_check_imports_nothing_of_ours_that_is_heavy(ready_file: Path) -> None:
    say_ready()
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "workers.alive"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "workers.ready" in told.stderr
    assert not [name for name in ("celery", "pydantic", "pipeline") if f" {name}\n" in told.stderr]
