"""The server before the door: `python -m pipeline.api.server --host HOST --port PORT`.

uvicorn, with two things it leaves open: a connection that takes for ever over the head of its
request is closed, and a head has a limit. Neither costs a connection that behaves anything.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
from typing import Any

import uvicorn

HEADERS_S = 60.0
"""Time a request's head may take; also how long a new connection may say nothing. 20 s were tried:
a busy machine that opens thousands of connections at once takes longer to its first word."""

HEADERS_BYTES = 64 << 10
"""Longest head; counted from its second piece on."""

GRACE_S = 5
"""Open streams of events would keep the API from ending for ever."""

BACKLOG = 4096
"""Connections that may wait to be taken in, as far as the kernel allows."""


class Minded:
    """Laid over one of uvicorn's protocols: `_heading()` tells whether a head has begun and not
    ended.
    """

    loop: asyncio.AbstractEventLoop
    transport: Any
    _due: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first head."""
        super().connection_made(transport)  # type: ignore[misc]
        self._due = self.loop.call_later(HEADERS_S, self._refuse, b"408 Request Timeout")

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more to wait for."""
        self._rest()
        super().connection_lost(exc)  # type: ignore[misc]

    def data_received(self, data: bytes) -> None:
        """Take a piece of a head or of a body."""
        was_heading = self._heading()
        super().data_received(data)  # type: ignore[misc]
        if not self._heading():
            self._rest()
            return
        self._head_bytes += len(data) if was_heading else 0
        if self._head_bytes > HEADERS_BYTES:
            self._refuse(b"431 Request Header Fields Too Large")
        elif self._due is None:
            self._due = self.loop.call_later(HEADERS_S, self._refuse, b"408 Request Timeout")

    def _heading(self) -> bool:
        raise NotImplementedError

    def _rest(self) -> None:
        self._head_bytes = 0
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _refuse(self, status: bytes) -> None:
        self._rest()
        if not self.transport.is_closing():
            head = b"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            self.transport.write(b"HTTP/1.1 " + status + head)
            self.transport.close()


def protocol() -> type[asyncio.Protocol]:
    """The quicker of uvicorn's protocols that is installed, minded."""
    if importlib.util.find_spec("httptools") is None:
        return _over_h11()
    return _over_httptools()


def _over_httptools() -> type[asyncio.Protocol]:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class MindedHttpTools(Minded, HttpToolsProtocol):
        _in_head = False

        def on_message_begin(self) -> None:
            self._in_head = True
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._in_head = False
            super().on_headers_complete()

        def _heading(self) -> bool:
            return self._in_head

    return MindedHttpTools


def _over_h11() -> type[asyncio.Protocol]:
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class MindedH11(Minded, H11Protocol):
        def _heading(self) -> bool:
            return self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])

    return MindedH11


def main() -> None:
    """Serve until told to end."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--host", required=True)
    options.add_argument("--port", type=int, required=True)
    given = options.parse_args()
    uvicorn.run(
        "pipeline.api.app:create",
        factory=True,
        host=given.host,
        port=given.port,
        http=protocol(),
        h11_max_incomplete_event_size=HEADERS_BYTES,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE_S,
        server_header=False,
    )


if __name__ == "__main__":
    main()
