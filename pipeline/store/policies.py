"""The order of work that was decided, and every change of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select
from sqlalchemy.dialects.postgresql import insert

from pipeline.scheduling.policies import Policy, parse_policy
from pipeline.store import tables


@dataclass(frozen=True)
class PolicyRow:
    """One decision."""

    policy: Policy
    reason: str
    changed_at: datetime


def change_policy(c: Connection, policy: Policy, reason: str) -> None:
    """Record a new order of work and why."""
    c.execute(insert(tables.policies).values(policy=str(policy), reason=reason))


def newest_policy(c: Connection) -> Policy | None:
    """The order of work last decided; None when nobody ever changed it."""
    last = changes(c, 1)
    return last[0].policy if last else None


def changes(c: Connection, limit: int) -> list[PolicyRow]:
    """The last `limit` decisions, the newest first."""
    rows = c.execute(select(tables.policies).order_by(tables.policies.c.id.desc()).limit(limit))
    return [PolicyRow(parse_policy(row.policy), row.reason, row.changed_at) for row in rows]
