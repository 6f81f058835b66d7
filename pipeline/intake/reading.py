"""One reading of one recording, which whoever asked for it may call off."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Reading:
    """A request to the sandbox. Its methods are safe to call from any thread."""

    def __init__(self) -> None:
        self.called_off = False
        self._lock = threading.Lock()
        self._reply: socket.socket | None = None

    def call_off(self) -> None:
        """Nobody waits for it any more: its child is killed, now or as soon as it begins."""
        with self._lock:
            self.called_off = True
            if self._reply is not None:
                self._hang_up(self._reply)

    @contextmanager
    def over(self, reply: socket.socket) -> Iterator[None]:
        """While its answer is awaited on `reply`."""
        with self._lock:
            self._reply = reply
            if self.called_off:
                self._hang_up(reply)
        try:
            yield
        finally:
            with self._lock:
                self._reply = None

    @staticmethod
    def _hang_up(reply: socket.socket) -> None:
        with suppress(OSError):  # the other end may have gone
            reply.shutdown(socket.SHUT_RDWR)
