"""notify: a webhook is told of a job that ended; what does not come through is tried again.

Safe to run several times at once: each takes another delivery. One that was sent, but whose sender
died before it was written down, is sent again: receivers see it twice, under one id.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import Engine

from pipeline.crash_points import reach
from pipeline.errors import FetchFailed, LeaseLost
from pipeline.fetch.poster import Answer, Poster
from pipeline.logs import log
from pipeline.store import deliveries
from pipeline.store.deliveries import Sending
from pipeline.store.session import transaction
from pipeline.webhooks import sign

GONE = 410
_ASKED_TO_WAIT = (429, 503)

LONGEST_WAIT_S = 86_400.0
"""A receiver is left alone for as long as it asks, but no longer than this."""


def notify(
    store: Engine,
    poster: Poster,
    webhook_id: str,
    *,
    lease_s: float,
    stopping: Callable[[], bool] = lambda: False,
    now_s: Callable[[], float] = time.time,
) -> bool:
    """Send the delivery of this webhook that is due the longest. False when none is.

    `lease_s`: longer than `poster` takes at most. Raises `PartDown` when Postgres does not answer;
    what was taken then is due again after the lease.
    """
    with transaction(store) as c:
        sending = deliveries.take(c, webhook_id, lease_s)
    if sending is None:
        return False
    reach("delivery_taken")
    try:
        answer = _send(poster, sending, int(now_s()), stopping)
    except LeaseLost:
        with transaction(store) as c:
            deliveries.give_back(c, sending)
        return False
    except FetchFailed as failed:
        _failed(store, sending, None, failed.fact)
    except (OSError, ValueError) as odd:  # nothing that one delivery meets may repeat for ever
        log().warning("delivery_not_sent", **_named(sending), exc_info=odd)
        _failed(store, sending, None, "It could not be sent.")
    else:
        reach("delivery_sent")
        _answered(store, sending, answer)
    return True


def _send(
    poster: Poster, sending: Sending, timestamp_s: int, stopping: Callable[[], bool]
) -> Answer:
    body = sending.body.encode()
    headers = (
        ("webhook-id", sending.id),
        ("webhook-timestamp", str(timestamp_s)),
        ("webhook-signature", sign(sending.secrets, sending.id, timestamp_s, body)),
    )
    return poster.post(sending.url, body, headers, stopping)


def _answered(store: Engine, sending: Sending, answer: Answer) -> None:
    status = answer.status
    if 200 <= status < 300:
        with transaction(store) as c:
            # the webhook before the delivery, as everywhere, so that no two wait for each other
            back = deliveries.came_back(c, sending.webhook_id)
            deliveries.delivered(c, sending, status)
        log().info("delivered", **_named(sending), status=status)
        if back:
            _bring_forward(store, sending.webhook_id)
        return
    error = f"The receiver answered {status}."
    if 300 <= status < 400:
        error = f"The receiver answered {status}; redirects are not followed."
    wait_s = (answer.retry_after_s or 0.0) if status in _ASKED_TO_WAIT else 0.0
    pause = "The receiver answered 410: it wants no more." if status == GONE else None
    _failed(store, sending, status, error, min(wait_s, LONGEST_WAIT_S), pause)


def _bring_forward(store: Engine, webhook_id: str) -> None:
    """The receiver is back: nothing waits out a pause that was meant for its absence."""
    total, count = 0, deliveries.PAGE
    while count == deliveries.PAGE:
        with transaction(store) as c:
            count = deliveries.bring_forward(c, webhook_id)
        total += count
    log().info("receiver_is_back", webhook_id=webhook_id, brought_forward=total)


def _failed(
    store: Engine,
    sending: Sending,
    status: int | None,
    error: str,
    not_before_s: float = 0.0,
    pause: str | None = None,
) -> None:
    with transaction(store) as c:
        paused = deliveries.failed(
            c, sending, status, error, not_before_s=not_before_s, pause=pause
        )
    log().info("delivery_failed", **_named(sending), status=status, why=error)
    if paused:
        log().warning("webhook_paused", webhook_id=sending.webhook_id, why=paused)


def _named(sending: Sending) -> dict[str, object]:
    # the URL is left out: in many of them stands a secret
    return {
        "webhook_id": sending.webhook_id,
        "delivery_id": sending.id,
        "job_id": sending.job_id,
        "delivery": sending.event,
        "attempt": sending.attempt,
    }
