"""The order of work that was decided, and every change of it."""

from __future__ import annotations

from sqlalchemy import Connection, select
from sqlalchemy.dialects.postgresql import insert

from pipeline.scheduling.policies import Policy, parse_policy
from pipeline.store import tables


def change_policy(c: Connection, policy: Policy, reason: str) -> None:
    """Record a new order of work and why."""
    c.execute(insert(tables.policies).values(policy=str(policy), reason=reason))


def newest_policy(c: Connection) -> Policy | None:
    """The order of work last decided; None when nobody ever changed it."""
    query = select(tables.policies.c.policy).order_by(tables.policies.c.id.desc()).limit(1)
    written = c.execute(query).scalar_one_or_none()
    return parse_policy(written) if written else None
