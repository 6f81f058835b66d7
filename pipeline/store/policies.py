"""The order of work that was decided, by whom, and every change of it.

The policy of a row is always one that can be claimed by; `mode` says who decides the next one. So
whoever only wants to know the order asks for `newest_policy` and never hears of `auto`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, insert, select

from pipeline.scheduling.adaptive import Mode
from pipeline.scheduling.policies import Policy, parse_policy
from pipeline.store import tables
from pipeline.store.rows import now

DECIDERS = 7_301_046
"""Key of the lock that whoever decides holds: any number that nobody else locks by."""


@dataclass(frozen=True)
class PolicyRow:
    """One decision."""

    id: int
    policy: Policy
    mode: Mode
    reason: str
    changed_at: datetime
    age_s: float
    """Seconds since then, by Postgres' clock."""


def await_turn(c: Connection) -> None:
    """Hold the right to decide until the transaction ends; waits while another holds it."""
    c.execute(select(func.pg_advisory_xact_lock(DECIDERS)))


def take_turn(c: Connection) -> bool:
    """The same without waiting: False when another decides at this moment."""
    return bool(c.execute(select(func.pg_try_advisory_xact_lock(DECIDERS))).scalar_one())


def change_policy(c: Connection, policy: Policy, reason: str, mode: Mode = Mode.FIXED) -> None:
    """Record a new order of work, who decides the next one, and why."""
    row = {"policy": str(policy), "mode": mode.value, "reason": reason}
    c.execute(insert(tables.policies).values(row))


def newest_policy(c: Connection) -> Policy | None:
    """The order of work last decided; None when nobody ever changed it."""
    last = newest(c)
    return last.policy if last else None


def newest(c: Connection) -> PolicyRow | None:
    """The last decision; None when nobody ever made one."""
    return next(iter(changes(c, 1)), None)


def changes(c: Connection, limit: int) -> list[PolicyRow]:
    """The last `limit` decisions, the newest first."""
    table = tables.policies
    age_s = func.extract("epoch", now - table.c.changed_at).label("age_s")
    rows = c.execute(select(table, age_s).order_by(table.c.id.desc()).limit(limit))
    return [
        PolicyRow(
            row.id,
            parse_policy(row.policy),
            Mode(row.mode),
            row.reason,
            row.changed_at,
            max(0.0, float(row.age_s)),
        )
        for row in rows
    ]
