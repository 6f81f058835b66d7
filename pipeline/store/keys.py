"""API keys and their tenants: made, found, revoked.

A key reads `fs_<id>_<secret>`. The id finds its row, and is no secret: lists and the record of
accesses show it. Of the secret only the sha256 is kept. A slow hash, as for passwords, would add
nothing: 256 random bits cannot be guessed however fast one may try, and each request would pay.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert

from pipeline.caller import Caller, Scope
from pipeline.errors import NoSuchKey
from pipeline.store.rows import ago, ahead, now
from pipeline.store.tables import api_keys, jobs, tenants, webhooks

SECRET_BYTES = 32

FORM = re.compile(r"fs_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
"""A key: its id and its secret."""

TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A tenant's name: fit for paths, logs and Redis keys, and without a space."""

USED_AGAIN_S = 60.0
"""How exactly is known when a key was used last: a write a minute, not one a request."""


@dataclass(frozen=True)
class ApiKey:
    """A key as people read it."""

    id: str
    tenant: str
    name: str
    scopes: tuple[Scope, ...]
    rate_per_s: float | None
    rate_burst: int | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    """To the minute."""
    revoked_at: datetime | None
    state: str
    """`active`, `expired` or `revoked`."""


@dataclass(frozen=True)
class Kept:
    """What a key is checked against."""

    caller: Caller
    secret_hash: str
    usable: bool
    """Neither revoked nor expired, by Postgres' clock."""
    used_lately: bool
    """Known to have been used within the last minute."""

    def opens_with(self, secret: str) -> bool:
        """Whether this is its secret, and it may be used. Takes as long for every secret."""
        return hmac.compare_digest(self.secret_hash, hashed(secret)) and self.usable


def hashed(secret: str) -> str:
    """As it is kept."""
    return hashlib.sha256(secret.encode()).hexdigest()


def add(
    c: Connection,
    tenant: str,
    name: str,
    scopes: Iterable[Scope],
    *,
    rate_per_s: float | None = None,
    rate_burst: int | None = None,
    lasts_s: float | None = None,
) -> tuple[ApiKey, str]:
    """A new key, and its text, which nobody can read again. `lasts_s`: None is for ever.

    A tenant that is new is made.
    """
    key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(SECRET_BYTES)
    c.execute(insert(tenants).values(name=tenant).on_conflict_do_nothing())
    values: dict[str, Any] = {
        "id": key_id,
        "tenant": tenant,
        "name": name,
        "secret_hash": hashed(secret),
        "scopes": sorted(scope.value for scope in scopes),
        "rate_per_s": rate_per_s,
        "rate_burst": rate_burst,
    }
    if lasts_s is not None:
        values["expires_at"] = ahead(lasts_s)
    c.execute(insert(api_keys).values(**values))
    return _found(c, key_id), f"fs_{key_id}_{secret}"


def listed(c: Connection, tenant: str | None = None) -> list[ApiKey]:
    """All keys, revoked ones too, the oldest first; of one tenant if named."""
    query = _keys().order_by(api_keys.c.created_at, api_keys.c.id)
    if tenant is not None:
        query = query.where(api_keys.c.tenant == tenant)
    return [_key(row) for row in c.execute(query)]


def revoke(c: Connection, key_id: str) -> ApiKey:
    """End a key for ever; one that was revoked stays as it is. Raises `NoSuchKey`."""
    revoked_at = func.coalesce(api_keys.c.revoked_at, now)
    c.execute(update(api_keys).where(api_keys.c.id == key_id).values(revoked_at=revoked_at))
    return _found(c, key_id)


def give_share(c: Connection, tenant: str, share: float | None) -> None:
    """How much a tenant may ask of all engines, in reference slot seconds a second; None: no
    limit. A tenant that is new is made.
    """
    made = insert(tenants).values(name=tenant, share=share)
    c.execute(made.on_conflict_do_update(index_elements=[tenants.c.name], set_={"share": share}))


def adopt_page(c: Connection, tenant: str, after: str | None, limit: int) -> tuple[int, str | None]:
    """Give `tenant` the next jobs by id that belong to nobody, for they came while keys were off:
    (how many, where to go on or None). A tenant that is new is made.
    """
    c.execute(insert(tenants).values(name=tenant).on_conflict_do_nothing())
    query = select(jobs.c.id).where(jobs.c.tenant.is_(None))
    if after is not None:
        query = query.where(jobs.c.id > UUID(after))
    ids = list(c.scalars(query.order_by(jobs.c.id).limit(limit).with_for_update()))
    c.execute(update(jobs).where(jobs.c.id.in_(ids)).values(tenant=tenant))
    return len(ids), str(ids[-1]) if len(ids) == limit else None


def adopt_webhooks(c: Connection, tenant: str) -> int:
    """Give `tenant` the webhooks that belong to nobody; how many."""
    theirs = update(webhooks).where(webhooks.c.tenant.is_(None)).values(tenant=tenant)
    return int(c.execute(theirs).rowcount)


def kept(c: Connection, key_id: str) -> Kept | None:
    """What a key with this id is checked against; None when there is none."""
    usable = api_keys.c.revoked_at.is_(None) & _not_expired()
    lately = func.coalesce(api_keys.c.last_used_at > ago(USED_AGAIN_S), False)
    query = select(api_keys, usable.label("usable"), lately.label("lately"))
    row = c.execute(query.where(api_keys.c.id == key_id)).first()
    if row is None:
        return None
    scopes = frozenset(Scope(scope) for scope in row.scopes)
    caller = Caller(row.id, row.tenant, scopes, row.rate_per_s, row.rate_burst)
    return Kept(caller, row.secret_hash, row.usable, row.lately)


def used(c: Connection, key_id: str) -> None:
    """Write down that it was used now."""
    c.execute(update(api_keys).where(api_keys.c.id == key_id).values(last_used_at=now))


def _not_expired() -> Any:
    return or_(api_keys.c.expires_at.is_(None), api_keys.c.expires_at > now)


def _keys() -> Any:
    return select(api_keys, _not_expired().label("lasts"))


def _found(c: Connection, key_id: str) -> ApiKey:
    row = c.execute(_keys().where(api_keys.c.id == key_id)).first()
    if row is None:
        raise NoSuchKey
    return _key(row)


def _key(row: Any) -> ApiKey:
    state = "revoked" if row.revoked_at else "active" if row.lasts else "expired"
    return ApiKey(
        id=row.id,
        tenant=row.tenant,
        name=row.name,
        scopes=tuple(Scope(scope) for scope in row.scopes),
        rate_per_s=row.rate_per_s,
        rate_burst=row.rate_burst,
        created_at=row.created_at,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
        state=state,
    )
