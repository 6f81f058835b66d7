"""Bodies as they arrive: one that stands still, drips or does not end is given up.

An endpoint that takes recordings reads its body by `arriving`. All others get theirs through
`SmallBodies`, which lets no more through than any of them can want.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.errors import BadRequest, FairscribeError, UploadTooSlow

SLOWEST_BYTES_A_S = 500
"""Slower than this, on average, nobody sends: a phone on 2G has 2,500 and more. Without it a byte
a second would hold a connection and a file for weeks."""

GRACE_S = 60.0
"""An upload may begin as slowly as it likes for so long."""

SMALL_BODY_BYTES = 1 << 20
"""Longest body of a request that brings no recording."""

READ_THEIR_OWN = ("/v1/jobs", "/v1/audio/transcriptions", "/v1/audio/translations")
"""Paths whose endpoints read by `arriving`."""


class Pace:
    """How fast one body comes. `idle_s`: it may bring nothing for so many seconds."""

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._begun_s = time.monotonic()
        self.size_bytes = 0

    async def next(self, receive: Receive) -> Message:
        """The next piece. Raises `UploadTooSlow`."""
        try:
            async with asyncio.timeout(self._idle_s):
                message = await receive()
        except TimeoutError:
            raise UploadTooSlow(f"The upload stood still for {self._idle_s:g} s.") from None
        self.size_bytes += len(message.get("body", b""))
        took_s = time.monotonic() - self._begun_s
        if took_s > GRACE_S and self.size_bytes < took_s * SLOWEST_BYTES_A_S:
            raise UploadTooSlow(f"The upload came at less than {SLOWEST_BYTES_A_S} bytes a second.")
        return message


async def arriving(request: Request, idle_s: float) -> AsyncIterator[bytes]:
    """The body of `request`, piece by piece. Raises `UploadTooSlow`, and `BadRequest` when its
    client has gone.
    """
    pace = Pace(idle_s)
    while True:
        message = await pace.next(request.receive)
        if message["type"] == "http.disconnect":
            raise BadRequest("The request ended before its body was complete.")
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


class SmallBodies:
    """Middleware: what is no upload has a small body and sends it without delay."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI calls it."""
        minded = _has_body(scope) and not _reads_its_own(scope)
        await self._app(scope, _small(scope, receive) if minded else receive, send)


def _has_body(scope: Scope) -> bool:
    names = {name for name, _ in scope.get("headers", ())}
    return scope["type"] == "http" and bool(names & {b"content-length", b"transfer-encoding"})


def _reads_its_own(scope: Scope) -> bool:
    return scope["method"] == "POST" and scope["path"] in READ_THEIR_OWN


def _small(scope: Scope, receive: Receive) -> Receive:
    pace: Pace | None = None
    ended = False

    async def small() -> Message:
        nonlocal pace, ended
        if ended:
            return await receive()
        pace = pace or Pace(scope["app"].state.parts.settings.upload_idle_s)
        try:
            message = await pace.next(receive)
            if pace.size_bytes > SMALL_BODY_BYTES:
                raise BadRequest(f"A body has at most {SMALL_BODY_BYTES} bytes here.")
        except FairscribeError as refused:
            # the only error that passes through the framework's reading of a body as it is
            raise HTTPException(400) from refused
        ended = not message.get("more_body", False)
        return message

    return small
