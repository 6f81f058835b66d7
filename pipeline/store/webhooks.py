"""Webhooks: where a tenant wants to be told of its jobs, and whether that works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Select, and_, delete, func, insert, select, update

from pipeline.store.rows import ago, ahead, now
from pipeline.store.tables import deliveries, webhooks
from pipeline.webhooks import OLD_SECRET_S, RESENT_WITHIN_S

PAGE = 5000
"""Deliveries dropped in one transaction."""


@dataclass(frozen=True)
class Webhook:
    """A webhook as its owner sees it, without the secret."""

    id: str
    tenant: str | None
    url: str
    events: tuple[str, ...]
    created_at: datetime
    failing_since: datetime | None
    """No delivery has come through since; None: the last one did, or none was tried."""
    paused_at: datetime | None
    paused_reason: str | None
    waiting: int
    """Deliveries that are neither there nor given up."""


def add(
    c: Connection,
    webhook_id: str,
    tenant: str | None,
    url: str,
    secret: str,
    events: Sequence[str],
) -> None:
    """A new one, active at once."""
    row = {"id": UUID(webhook_id), "tenant": tenant, "url": url, "secret": secret}
    c.execute(insert(webhooks).values({**row, "events": list(events)}))


def webhook(c: Connection, webhook_id: str) -> Webhook | None:
    """One by its id; None when there is none."""
    row = c.execute(_views().where(webhooks.c.id == UUID(webhook_id))).first()
    return _view(row) if row else None


def of_tenant(c: Connection, tenant: str | None, *, everyones: bool = False) -> list[Webhook]:
    """Those of `tenant`, or of all of them, the oldest first."""
    query = _views().order_by(webhooks.c.created_at, webhooks.c.id)
    if not everyones:
        query = query.where(webhooks.c.tenant.is_not_distinct_from(tenant))
    return [_view(row) for row in c.execute(query)]


def paused(c: Connection) -> list[Webhook]:
    """All that are paused."""
    return [_view(row) for row in c.execute(_views().where(webhooks.c.paused_at.is_not(None)))]


def change_secret(c: Connection, webhook_id: str, secret: str) -> None:
    """Sign with `secret` from now on, and with the one before beside it for `OLD_SECRET_S`."""
    values = {
        "secret": secret,
        "old_secret": webhooks.c.secret,
        "old_secret_until": ahead(OLD_SECRET_S),
    }
    c.execute(update(webhooks).where(webhooks.c.id == UUID(webhook_id)).values(values))


def resume(c: Connection, webhook_id: str) -> int:
    """Active again: what did not come through is due now; how many that are.

    What is older than `RESENT_WITHIN_S` is given up instead: news so old would surprise.
    """
    active = {"paused_at": None, "paused_reason": None, "failing_since": None}
    c.execute(update(webhooks).where(webhooks.c.id == UUID(webhook_id)).values(active))
    theirs = and_(
        deliveries.c.webhook_id == UUID(webhook_id),
        deliveries.c.delivered_at.is_(None),
        deliveries.c.job_id.is_not(None),
    )
    too_old = deliveries.c.created_at < ago(RESENT_WITHIN_S)
    c.execute(
        update(deliveries)
        .where(theirs, deliveries.c.given_up_at.is_(None), too_old)
        .values(given_up_at=now, last_error="Too old to be sent when the webhook was resumed.")
    )
    due = {"due_at": now, "failures": 0, "given_up_at": None}
    return int(c.execute(update(deliveries).where(theirs, ~too_old).values(due)).rowcount)


def drop_page(c: Connection, webhook_id: str) -> bool:
    """Erase the webhook, or, while it has more than `PAGE` deliveries, so many of these.

    True once it is gone. In pages, for whoever ends a job waits while a webhook is erased.
    """
    page = select(deliveries.c.id).where(deliveries.c.webhook_id == UUID(webhook_id)).limit(PAGE)
    if c.execute(delete(deliveries).where(deliveries.c.id.in_(page))).rowcount >= PAGE:
        return False
    c.execute(delete(webhooks).where(webhooks.c.id == UUID(webhook_id)))
    return True


def _views() -> Select[Any]:
    waiting = (
        select(func.count())
        .where(
            deliveries.c.webhook_id == webhooks.c.id,
            deliveries.c.delivered_at.is_(None),
            deliveries.c.given_up_at.is_(None),
        )
        .scalar_subquery()
    )
    return select(webhooks, waiting.label("waiting"))


def _view(row: Any) -> Webhook:
    return Webhook(
        id=str(row.id),
        tenant=row.tenant,
        url=row.url,
        events=tuple(row.events),
        created_at=row.created_at,
        failing_since=row.failing_since,
        paused_at=row.paused_at,
        paused_reason=row.paused_reason,
        waiting=row.waiting,
    )
