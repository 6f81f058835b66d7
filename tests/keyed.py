"""API keys for tests of who may come in."""

from __future__ import annotations

from typing import Any

from pipeline.caller import Scope
from pipeline.parts import Parts
from pipeline.store import keys
from pipeline.store.session import transaction


def new_key(parts: Parts, tenant: str, *scopes: Scope, **how: Any) -> str:
    """The text of a fresh key; all scopes unless some are named."""
    with transaction(parts.store) as c:
        _, text = keys.add(c, tenant, f"key of {tenant}", scopes or tuple(Scope), **how)
    return text


def bearing(key: str) -> dict[str, str]:
    """The headers of a request that carries it."""
    return {"Authorization": f"Bearer {key}"}


def id_of(key: str) -> str:
    """The part that is no secret."""
    return key.split("_")[1]


def revoke(parts: Parts, key: str) -> None:
    """End it."""
    with transaction(parts.store) as c:
        keys.revoke(c, id_of(key))
