"""The bad line of `make chaos`: what it carries, loses and holds."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.chaos_proxy import DROP, HALF_OPEN, LOSE_ANSWERS, PASS, Route


class Echo(threading.Thread):
    """A server on a Unix socket that says back what it hears, and remembers it."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.heard: list[bytes] = []
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(str(path))
        self.listening.listen()

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = self.listening.accept()
                threading.Thread(target=self.serve, args=(line,), daemon=True).start()

    def serve(self, line: socket.socket) -> None:
        with line, contextlib.suppress(OSError):
            while said := line.recv(100):
                self.heard.append(said)
                line.sendall(said)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Echo]:
    echo = Echo(tmp_path / "s")
    echo.start()
    yield echo
    echo.listening.close()


@pytest.fixture
def route(server: Echo, tmp_path: Path) -> Iterator[Route]:
    made = Route(tmp_path / "s", seed=1)
    made.start()
    yield made
    made.stop()


def call(route: Route) -> socket.socket:
    return socket.create_connection(("127.0.0.1", route.port), timeout=2.0)


def ask(line: socket.socket, question: bytes = b"?") -> bytes:
    """The answer; empty where the line was ended."""
    try:
        line.sendall(question)
        return line.recv(100)
    except (ConnectionError, BrokenPipeError):
        return b""


def test_a_good_line_carries_questions_and_answers(route: Route) -> None:
    with call(route) as line:
        assert ask(line, b"hello") == b"hello"


def test_a_lost_answer_was_asked_for_all_the_same(route: Route, server: Echo) -> None:
    route.set(LOSE_ANSWERS)
    asked = 0
    answered = True
    while answered and asked < 200:
        asked += 1
        with call(route) as line:
            answered = ask(line) == b"?"
    assert not answered
    assert len(server.heard) == asked


def test_a_line_that_hung_is_dead_afterwards(route: Route) -> None:
    with call(route) as line:
        assert ask(line) == b"?"
        route.set(HALF_OPEN)
        line.settimeout(0.2)
        with pytest.raises(TimeoutError):
            ask(line)
        route.set(PASS)
        line.settimeout(2.0)
        with contextlib.suppress(ConnectionError):
            assert line.recv(100) == b""
    with call(route) as line:
        assert ask(line) == b"?"


def test_a_line_that_drops_ends_those_there_are_and_takes_none(route: Route) -> None:
    with call(route) as old:
        assert ask(old) == b"?"
        route.set(DROP)
        assert ask(old) == b""
        with call(route) as new:
            assert ask(new) == b""
