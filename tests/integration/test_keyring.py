"""How often Postgres is asked for keys, and how soon what it says counts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from pipeline.api import keyring
from pipeline.api.keyring import KEPT_S, Keyring
from pipeline.caller import Scope
from pipeline.clock import SetClock
from pipeline.errors import KeyMissing, KeyUnknown, PartDown
from pipeline.parts import Parts
from pipeline.store import keys
from pipeline.store.session import open_store, transaction
from tests.keyed import id_of, new_key, revoke

NOWHERE = "postgresql+psycopg://nobody@127.0.0.1:1/none"


def bearer(key: str) -> list[str]:
    return [f"Bearer {key}"]


@contextmanager
def statements(store: Engine) -> Iterator[list[str]]:
    """What Postgres is asked meanwhile."""
    said: list[str] = []

    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        said.append(statement)

    event.listen(store, "before_cursor_execute", note)
    try:
        yield said
    finally:
        event.remove(store, "before_cursor_execute", note)


def test_a_thousand_requests_cost_one_lookup_and_one_note_of_use(parts: Parts) -> None:
    key = new_key(parts, "acme", Scope.READ, rate_per_s=7.0, rate_burst=9)

    async def ask() -> None:
        ring = Keyring(parts.store, SetClock())
        callers = await asyncio.gather(*(ring.caller(bearer(key)) for _ in range(500)))
        for _ in range(500):
            callers.append(await ring.caller(bearer(key)))
        (caller,) = set(callers)
        assert (caller.key_id, caller.tenant, caller.scopes) == (id_of(key), "acme", {Scope.READ})
        assert (caller.rate_per_s, caller.rate_burst) == (7.0, 9)

    with statements(parts.store) as said:
        asyncio.run(ask())
    assert [one.split()[0] for one in said] == ["SELECT", "UPDATE"]


def test_a_use_is_written_down_once_a_minute(parts: Parts) -> None:
    key = new_key(parts, "acme")
    clock = SetClock()

    async def ask(times: int) -> None:
        ring = Keyring(parts.store, clock)
        for _ in range(times):
            await ring.caller(bearer(key))
            clock.now_s += KEPT_S + 1

    with statements(parts.store) as said:
        asyncio.run(ask(5))
        assert [one.split()[0] for one in said] == ["SELECT", "UPDATE", *["SELECT"] * 4]
    with transaction(parts.store) as c:
        long_ago = "UPDATE api_keys SET last_used_at = last_used_at - interval '61 s'"
        c.execute(text(long_ago))
    with statements(parts.store) as said:
        asyncio.run(ask(1))
        assert [one.split()[0] for one in said] == ["SELECT", "UPDATE"]


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_a_key_that_ended_opens_nothing_within_five_seconds(parts: Parts, how: str) -> None:
    key = new_key(parts, "acme", lasts_s=3600.0)
    clock = SetClock()

    async def ask() -> None:
        ring = Keyring(parts.store, clock)
        await ring.caller(bearer(key))
        if how == "revoked":
            revoke(parts, key)
        else:
            with transaction(parts.store) as c:
                c.execute(text("UPDATE api_keys SET expires_at = clock_timestamp()"))
        clock.now_s += 4.9
        with pytest.raises(KeyUnknown):
            await ring.caller(bearer(key))

    asyncio.run(ask())
    assert KEPT_S < 4.9


def test_with_postgres_away_a_key_just_met_goes_on_and_others_wait(parts: Parts) -> None:
    key, other = new_key(parts, "acme"), new_key(parts, "acme")
    clock = SetClock()

    async def ask() -> None:
        ring = Keyring(parts.store, clock)
        await ring.caller(bearer(key))
        ring._store = open_store(NOWHERE)
        await ring.caller(bearer(key))
        with pytest.raises(PartDown):
            await ring.caller(bearer(other))
        clock.now_s += KEPT_S + 0.1
        with pytest.raises(PartDown):
            await ring.caller(bearer(key))
        ring._store = parts.store
        await ring.caller(bearer(key))

    asyncio.run(ask())


def test_only_what_could_be_a_key_is_looked_up(parts: Parts) -> None:
    key = new_key(parts, "acme")
    wrong = [
        *([f"Bearer {key}x"], [f"Bearer {key[:-1]}"], ["Bearer "], [f"Bearer {'a' * 1_000_000}"]),
        *([f"Bearer {key}\n"], [f"Bearer {key}\0"], ["Bearer fs__"], [f"Bearer fs_é_{key}"]),
        *([f"Bearer {key}", f"Bearer {key}"], [f"Bearer {key.upper()}"]),
    ]
    none = [[], [""], [key], [f"Basic {key}"], [f"Token {key}"], [f"Bearer{key}"]]

    async def ask() -> None:
        ring = Keyring(parts.store, SetClock())
        for header in wrong:
            with pytest.raises(KeyUnknown):
                await ring.caller(header)
        for header in none:
            with pytest.raises(KeyMissing):
                await ring.caller(header)

    with statements(parts.store) as said:
        asyncio.run(ask())
    assert said == []


def test_another_secret_opens_nothing_and_is_no_use_of_the_key(parts: Parts) -> None:
    key = new_key(parts, "acme")
    other = new_key(parts, "rival")
    mixed = f"fs_{id_of(key)}_{other.split('_', 2)[2]}"

    async def ask() -> None:
        ring = Keyring(parts.store, SetClock())
        with pytest.raises(KeyUnknown):
            await ring.caller(bearer(mixed))
        await ring.caller(["bearer " + other])

    asyncio.run(ask())
    with transaction(parts.store) as c:
        used = {one.id: one.last_used_at for one in keys.listed(c)}
    assert used[id_of(key)] is None
    assert used[id_of(other)] is not None


def test_guesses_fill_no_memory(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring, "REMEMBERED", 3)
    key = new_key(parts, "acme")
    secret = key.split("_", 2)[2]

    async def ask() -> None:
        ring = Keyring(parts.store, SetClock())
        for guess in range(8):
            with pytest.raises(KeyUnknown):
                await ring.caller(bearer(f"fs_{guess:012x}_{secret}"))
        await ring.caller(bearer(key))
        assert len(ring._met) == 3
        assert ring._looking == {}

    asyncio.run(ask())


def test_of_a_key_only_the_hash_of_its_secret_is_kept(parts: Parts) -> None:
    key = new_key(parts, "acme")
    with transaction(parts.store) as c:
        row = " ".join(str(value) for value in c.execute(text("SELECT * FROM api_keys")).one())
    secret = key.split("_", 2)[2]
    assert secret not in row
    assert keys.hashed(secret) in row
    assert len(secret) >= 43, "256 bits, six a letter"
