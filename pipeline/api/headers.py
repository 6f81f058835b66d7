"""Headers of every answer: nothing is kept by a cache, guessed by a browser or shown in a frame.

What encrypts the way to the caller (HSTS) is the proxy's to say. No other site may read answers in
a browser: there is no CORS header.
"""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAFE = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""Of every answer that does not say otherwise itself."""

PAGE_POLICY = "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
"""The policy of a page that people look at: it may load what it needs."""


def make_safe(headers: MutableHeaders) -> None:
    """Add what is missing of `SAFE`."""
    page = headers.get("Content-Type", "").startswith("text/html")
    for name, value in SAFE.items():
        shown = PAGE_POLICY if page and name == "Content-Security-Policy" else value
        headers.setdefault(name, shown)


class SafeHeaders:
    """Passes everything on and adds the headers. Streams are not held up."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                make_safe(MutableHeaders(scope=message))
            await send(message)

        await self._app(scope, receive, send_safely if scope["type"] == "http" else send)
