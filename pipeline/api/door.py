"""The door: who asks is known before anything of a request is read, or nothing of it is.

Without a key nobody gets further, whatever the path and whether it exists, nor more often than the
key may ask, and of an upload not a byte is stored. What a key allows is said at each endpoint, by
what it is `given`.
"""

from __future__ import annotations

from fastapi import FastAPI, Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from pipeline.api.keyring import Keyring
from pipeline.api.problems import fairscribe_error
from pipeline.api.rate import within_rate
from pipeline.caller import ANYONE, Caller
from pipeline.errors import FairscribeError, NotAllowed, PartDown
from pipeline.parts import Parts

OPEN = frozenset(
    {"/v1/health", "/v1/health/ready", "/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc"}
)
"""Paths that need no key: whether it lives, and what it can do, which tells nothing of anybody."""


def open_door(app: FastAPI, parts: Parts) -> None:
    """Ask for keys from now on, or not, as the settings say."""
    app.state.keyring = Keyring(parts.store) if parts.settings.needs_keys else None


class Door:
    """Stands before the whole application and leaves `request.state.caller`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in with its caller, or answer why not."""
        if scope["type"] == "http":
            try:
                caller = await _caller(scope)
                await within_rate(caller, scope["app"].state.parts)
            except FairscribeError as refused:
                answer = await fairscribe_error(Request(scope, receive), refused)
                await answer(scope, receive, send)
                return
            scope.setdefault("state", {})["caller"] = caller
        await self._app(scope, receive, send)


async def _caller(scope: Scope) -> Caller:
    keyring: Keyring | None = scope["app"].state.keyring
    if keyring is None or scope["path"] in OPEN:
        return ANYONE
    return await keyring.caller(Headers(scope=scope).getlist("authorization"))


async def revoked(request: Request) -> bool:
    """Whether the key `request` came with opens nothing any more: for answers that take long.

    While Postgres is away it is not known to be.
    """
    try:
        await _caller(request.scope)
    except NotAllowed:
        return True
    except PartDown:
        return False
    return False
