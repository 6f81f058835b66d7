"""Which caller a key belongs to, asked of Postgres a few times a minute and not once a request.

What Postgres said of a key holds for `KEPT_S`: ten thousand uploads cost a lookup every few
seconds, and a key that is revoked or expires opens nothing more within 5 s, in every process. Where
Postgres is away and nothing is known yet of a key, nobody comes in: `PartDown`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

import anyio.to_thread
from sqlalchemy import Engine

from pipeline.caller import Caller
from pipeline.clock import Clock, SystemClock
from pipeline.errors import KeyMissing, KeyUnknown
from pipeline.store import keys
from pipeline.store.keys import FORM, Kept
from pipeline.store.session import transaction

KEPT_S = 3.0
"""How long is believed what Postgres said of a key."""

REMEMBERED = 10_000
"""Ids that are remembered, those of no key too: a stranger's guesses fill no memory."""

LOOKUPS = 4
"""At once: strangers' guesses keep neither threads nor connections from those who have a key."""


@dataclass(frozen=True)
class _Looked:
    kept: Kept | None
    at_s: float


class Keyring:
    """The keys this process met lately. Lives in one event loop."""

    def __init__(self, store: Engine, clock: Clock | None = None) -> None:
        self._store, self._clock = store, clock or SystemClock()
        self._met: OrderedDict[str, _Looked] = OrderedDict()
        self._looking: dict[str, asyncio.Task[Kept | None]] = {}
        self._threads = anyio.CapacityLimiter(LOOKUPS)

    async def caller(self, authorization: list[str]) -> Caller:
        """Whose key the `Authorization` headers of a request carry.

        Raises `KeyMissing`, `KeyUnknown`, `PartDown`.
        """
        key_id, secret = _read(authorization)
        looked = self._met.get(key_id)
        if looked is None or self._clock.monotonic_s() - looked.at_s > KEPT_S:
            kept = await self._look(key_id, secret)
        else:
            kept = looked.kept
        if not (kept or _NOBODY).opens_with(secret) or kept is None:
            raise KeyUnknown
        return kept.caller

    async def _look(self, key_id: str, secret: str) -> Kept | None:
        """Ask Postgres, once for all who ask for this key at this moment."""
        task = self._looking.get(key_id)
        if task is None:
            task = asyncio.create_task(self._ask(key_id, secret))
            self._looking[key_id] = task
            task.add_done_callback(lambda _: self._looking.pop(key_id, None))
        return await asyncio.shield(task)  # who hangs up does not spoil it for the others

    async def _ask(self, key_id: str, secret: str) -> Kept | None:
        begun_s = self._clock.monotonic_s()
        kept = await anyio.to_thread.run_sync(self._lookup, key_id, secret, limiter=self._threads)
        self._met[key_id] = _Looked(kept, begun_s)
        self._met.move_to_end(key_id)
        while len(self._met) > REMEMBERED:
            self._met.popitem(last=False)
        return kept

    def _lookup(self, key_id: str, secret: str) -> Kept | None:
        with transaction(self._store) as c:
            kept = keys.kept(c, key_id)
            if kept is not None and not kept.used_lately and kept.opens_with(secret):
                keys.used(c, key_id)
        return kept


_NOBODY = Kept(Caller(None, None, frozenset()), "0" * 64, usable=False, used_lately=False)
"""Compared with where there is no such key, so that this takes as long."""


def _read(authorization: list[str]) -> tuple[str, str]:
    """Id and secret of the key. What cannot be a key is looked up nowhere."""
    if not authorization:
        raise KeyMissing
    scheme, _, key = authorization[0].partition(" ")
    if scheme.lower() != "bearer":
        raise KeyMissing
    # fullmatch first looks at the length: a header may be as long as the server lets it be
    found = FORM.fullmatch(key.strip(" ")) if len(key) <= 100 else None
    if len(authorization) > 1 or found is None:
        raise KeyUnknown
    return found[1], found[2]
