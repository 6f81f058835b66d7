"""Deliveries: which are due, who sends one, how it went, and the log of all that.

`due_at` is when the next attempt may begin. An attempt moves it forward by a lease, so nobody else
begins one meanwhile and a killed sender's delivery is due again by itself; nothing is locked while
it is sent. What an attempt writes counts only while it is the newest.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, delete, func, select, text, tuple_, update

from pipeline.store.rows import ago, ahead, now
from pipeline.store.tables import deliveries, webhooks
from pipeline.webhooks import PAUSED_AFTER_S, PAUSES_S, PING

Status = Literal["waiting", "delivered", "given_up"]

KEPT_DAYS = 30
"""How long the log remembers a delivery, days from the end of its job."""

PAGE = 10_000
"""Deliveries dropped, or brought forward, in one transaction."""

LONGEST_ATTEMPT_S = 600.0
"""Longer than any exchange: what began before is not under way."""


@dataclass(frozen=True)
class Due:
    """A webhook with deliveries that may be sent now."""

    webhook_id: str
    failing: bool
    """Its last attempt failed."""
    count: int
    """How many are due, as far as was looked."""


@dataclass(frozen=True)
class Sending:
    """One attempt."""

    id: str
    webhook_id: str
    job_id: str | None
    event: str
    url: str
    secrets: tuple[str, ...]
    """Those that sign now, the newest first."""
    body: str
    attempt: int
    """Counts from 1 and fences what this attempt writes."""


@dataclass(frozen=True)
class Delivery:
    """A delivery as the log shows it."""

    id: str
    event: str
    job_id: str | None
    status: Status
    attempts: int
    created_at: datetime
    attempted_at: datetime | None
    due_at: datetime | None
    """When the next attempt may begin; None when there is none."""
    delivered_at: datetime | None
    given_up_at: datetime | None
    last_status: int | None
    last_error: str | None


# `now()` and not the clock's time: only with the time of the transaction the index finds what is
# due. Pings go out to a paused webhook too, and have an index of their own: the others may be many.
_OPEN = "d.delivered_at IS NULL AND d.given_up_at IS NULL AND d.due_at <= now()"

_DUE = text(f"""
    SELECT w.id, w.failing_since IS NOT NULL AS failing, due.counted
    FROM webhooks w CROSS JOIN LATERAL (
        SELECT count(*) AS counted FROM (
            (SELECT FROM deliveries d
             WHERE w.paused_at IS NULL AND d.webhook_id = w.id AND {_OPEN} LIMIT :at_most)
            UNION ALL
            (SELECT FROM deliveries d
             WHERE w.paused_at IS NOT NULL AND d.webhook_id = w.id AND d.event = 'ping' AND {_OPEN}
             LIMIT 1)
        ) AS few
    ) AS due
    WHERE due.counted > 0
""")

_TAKE = text(f"""
    UPDATE deliveries
    SET attempts = deliveries.attempts + 1, attempted_at = clock_timestamp(),
        due_at = clock_timestamp() + make_interval(secs => :lease_s)
    FROM webhooks w
    WHERE w.id = deliveries.webhook_id AND deliveries.id = COALESCE(
        (SELECT d.id FROM deliveries d
         WHERE d.webhook_id = :webhook_id AND d.event = 'ping' AND {_OPEN}
         LIMIT 1 FOR UPDATE SKIP LOCKED),
        (SELECT d.id FROM deliveries d JOIN webhooks v ON v.id = d.webhook_id
         WHERE d.webhook_id = :webhook_id AND v.paused_at IS NULL AND {_OPEN}
         ORDER BY d.due_at LIMIT 1 FOR UPDATE OF d SKIP LOCKED)
    )
    RETURNING deliveries.id, deliveries.webhook_id, deliveries.job_id, deliveries.event,
        deliveries.body, deliveries.attempts, w.url, w.secret,
        CASE WHEN w.old_secret_until > now() THEN w.old_secret END AS old_secret
""")


def due(c: Connection, at_most: int) -> list[Due]:
    """Webhooks with something to send now; of each, `at_most` deliveries are counted."""
    rows = c.execute(_DUE, {"at_most": at_most})
    return [Due(str(row.id), row.failing, row.counted) for row in rows]


def take(c: Connection, webhook_id: str, lease_s: float) -> Sending | None:
    """Begin an attempt at a ping, or at what is due the longest; nobody else does for `lease_s`
    seconds.

    None when nothing is due, or the webhook was paused.
    """
    row = c.execute(_TAKE, {"webhook_id": UUID(webhook_id), "lease_s": lease_s}).first()
    if row is None:
        return None
    return Sending(
        id=str(row.id),
        webhook_id=str(row.webhook_id),
        job_id=str(row.job_id) if row.job_id else None,
        event=row.event,
        url=row.url,
        secrets=tuple(one for one in (row.secret, row.old_secret) if one),
        body=row.body,
        attempt=row.attempts,
    )


def give_back(c: Connection, sending: Sending) -> None:
    """The attempt was broken off by ourselves: it is due at once."""
    c.execute(update(deliveries).where(_ours(sending)).values(due_at=now))


def came_back(c: Connection, webhook_id: str) -> bool:
    """Its receiver says yes. True when it had failed before: then `bring_forward`."""
    failing = (webhooks.c.id == UUID(webhook_id)) & webhooks.c.failing_since.is_not(None)
    return bool(c.execute(update(webhooks).where(failing).values(failing_since=None)).rowcount)


def bring_forward(c: Connection, webhook_id: str) -> int:
    """What waits out a failure of this webhook is due now, up to `PAGE` deliveries; how many.

    An attempt under way is left alone.
    """
    over = (deliveries.c.attempts == deliveries.c.failures) | (
        deliveries.c.attempted_at < ago(LONGEST_ATTEMPT_S)
    )
    waiting = (
        select(deliveries.c.id)
        .where(
            deliveries.c.webhook_id == UUID(webhook_id),
            _IN["waiting"] & over,
            deliveries.c.due_at > now,
            deliveries.c.failures > 0,
        )
        .limit(PAGE)
        .with_for_update(skip_locked=True)
    )
    brought = update(deliveries).where(deliveries.c.id.in_(waiting)).values(due_at=now)
    return int(c.execute(brought).rowcount)


def delivered(c: Connection, sending: Sending, status: int) -> bool:
    """It was answered with a `status` that says yes. False when the fence does not hold."""
    values = {"delivered_at": now, "last_status": status, "last_error": None}
    return bool(c.execute(update(deliveries).where(_ours(sending)).values(values)).rowcount)


def failed(
    c: Connection,
    sending: Sending,
    status: int | None,
    error: str,
    *,
    not_before_s: float = 0.0,
    pause: str | None = None,
) -> str | None:
    """It did not come through, for `error`; try again later, or give it up.

    `not_before_s`: how long the receiver asked to be left alone. `pause`: why its webhook is to be
    paused at once. Returns why the webhook was paused now; None when it was not. A ping is not
    tried again and pauses nothing.
    """
    ping = sending.event == PING
    reason = None if ping else _count_against(c, sending.webhook_id, pause)
    row = c.execute(select(deliveries.c.failures).where(_ours(sending)).with_for_update()).first()
    if row is None:
        return reason
    values: dict[str, Any] = {
        "failures": row.failures + 1,
        "last_status": status,
        "last_error": error,
    }
    if ping or row.failures >= len(PAUSES_S):
        values["given_up_at"] = now
    else:
        wait_s = max(PAUSES_S[row.failures], not_before_s)
        values["due_at"] = ahead(wait_s)
    c.execute(update(deliveries).where(_ours(sending)).values(values))
    return reason


def _count_against(c: Connection, webhook_id: str, pause: str | None) -> str | None:
    """Note that the webhook fails, and pause it if it is time; why it was paused now."""
    at = webhooks.c.id == UUID(webhook_id)
    too_long = webhooks.c.failing_since < ago(PAUSED_AFTER_S)
    asked = select(webhooks.c.paused_at, too_long.label("too_long"))
    row = c.execute(asked.where(at).with_for_update(key_share=True)).first()
    if row is None:
        return None
    values: dict[str, Any] = {"failing_since": func.coalesce(webhooks.c.failing_since, now)}
    days = PAUSED_AFTER_S / 86_400
    reason = pause or (f"No delivery came through for {days:g} days." if row.too_long else None)
    newly = reason if row.paused_at is None else None
    if newly:
        values |= {"paused_at": now, "paused_reason": newly}
    c.execute(update(webhooks).where(at).values(values))
    return newly


# -- the log --------------------------------------------------------------------------------


def page(
    c: Connection, webhook_id: str, status: Status | None, before: str | None, limit: int
) -> list[Delivery]:
    """Deliveries of a webhook, the newest first, from the one after the id `before`."""
    query = select(deliveries).where(deliveries.c.webhook_id == UUID(webhook_id))
    if status is not None:
        query = query.where(_IN[status])
    place = (deliveries.c.created_at, deliveries.c.id)
    if before is not None:
        last = select(*place).where(deliveries.c.id == UUID(before))
        row = c.execute(last.where(deliveries.c.webhook_id == UUID(webhook_id))).first()
        if row is None:
            return []
        query = query.where(tuple_(*place) < (row.created_at, row.id))
    newest = query.order_by(*(column.desc() for column in place)).limit(limit)
    return [_view(row) for row in c.execute(newest)]


def delivery(c: Connection, webhook_id: str, delivery_id: str) -> Delivery | None:
    """One of a webhook's deliveries; None when it has no such."""
    row = c.execute(select(deliveries).where(_one(webhook_id, delivery_id))).first()
    return _view(row) if row else None


def send_again(c: Connection, webhook_id: str, delivery_id: str) -> bool:
    """Due now, whatever became of it, with all its attempts before it. False: there is none.

    Its id stays: a receiver that had it knows it again.
    """
    values = {"due_at": now, "failures": 0, "delivered_at": None, "given_up_at": None}
    again = update(deliveries).where(_one(webhook_id, delivery_id)).values(values)
    return bool(c.execute(again).rowcount)


def drop_old(c: Connection) -> int:
    """Forget up to `PAGE` deliveries older than `KEPT_DAYS`; how many that were."""
    old = select(deliveries.c.id).where(deliveries.c.created_at < ago(KEPT_DAYS * 86_400))
    dropped = c.execute(delete(deliveries).where(deliveries.c.id.in_(old.limit(PAGE))))
    return int(dropped.rowcount)


_IN: dict[str, ColumnElement[bool]] = {
    "waiting": deliveries.c.delivered_at.is_(None) & deliveries.c.given_up_at.is_(None),
    "delivered": deliveries.c.delivered_at.is_not(None),
    "given_up": deliveries.c.given_up_at.is_not(None),
}


def _one(webhook_id: str, delivery_id: str) -> ColumnElement[bool]:
    return (deliveries.c.id == UUID(delivery_id)) & (deliveries.c.webhook_id == UUID(webhook_id))


def _ours(sending: Sending) -> ColumnElement[bool]:
    return (
        (deliveries.c.id == UUID(sending.id))
        & (deliveries.c.attempts == sending.attempt)
        & _IN["waiting"]
    )


def _view(row: Any) -> Delivery:
    status: Status = "waiting"
    if row.delivered_at is not None:
        status = "delivered"
    elif row.given_up_at is not None:
        status = "given_up"
    return Delivery(
        id=str(row.id),
        event=row.event,
        job_id=str(row.job_id) if row.job_id else None,
        status=status,
        attempts=row.attempts,
        created_at=row.created_at,
        attempted_at=row.attempted_at,
        due_at=row.due_at if status == "waiting" else None,
        delivered_at=row.delivered_at,
        given_up_at=row.given_up_at,
        last_status=row.last_status,
        last_error=row.last_error,
    )
