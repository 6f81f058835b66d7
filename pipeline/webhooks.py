"""Words of webhooks: what they tell of, when they are tried again, how they are signed.

Signatures are those of Standard Webhooks (https://www.standardwebhooks.com): HMAC-SHA256 over id,
timestamp and body, so that none of them can be changed and an old message cannot be sent again. A
receiver in Python may use `verify`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Literal

from pipeline.errors import SignatureRefused

Event = Literal["job.completed", "job.failed", "job.cancelled"]

EVENTS: tuple[Event, ...] = ("job.completed", "job.failed", "job.cancelled")
"""What a webhook may ask to be told of."""

PING = "ping"
"""The event of a delivery that only tries whether the receiver hears us."""

PAUSES_S = (30.0, 120.0, 600.0, 3600.0, 3 * 3600.0, 12 * 3600.0, 24 * 3600.0)
"""From each failed attempt to the next, seconds. With the last one used up it is given up."""

PAUSED_AFTER_S = 3 * 86_400.0
"""A webhook that fails for so long without one success is paused, seconds."""

RESENT_WITHIN_S = 7 * 86_400.0
"""What is older is not sent when a paused webhook is resumed, seconds."""

OLD_SECRET_S = 86_400.0
"""How long the secret before signs beside a new one, seconds."""

TOLERANCE_S = 300.0
"""A message whose time is further away than this is taken for one that somebody kept, seconds."""

_PREFIX = "whsec_"


def new_secret() -> str:
    """A secret of 32 random bytes, as people copy it."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def sign(of: Sequence[str], delivery_id: str, timestamp_s: int, body: bytes) -> str:
    """The value of `webhook-signature`: one signature for each of the secrets `of`.

    >>> secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    >>> sign([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    content = f"{delivery_id}.{timestamp_s}.".encode() + body
    made = (hmac.new(_key(secret), content, hashlib.sha256).digest() for secret in of)
    return " ".join(f"v1,{base64.b64encode(one).decode()}" for one in made)


def verify(
    secret: str, headers: Mapping[str, str], body: bytes, now_s: float | None = None
) -> None:
    """Return if `body`, the bytes as they came, was signed with `secret` within `TOLERANCE_S`.

    `headers`: of the request, names in any case. `now_s`: Unix time; the clock's unless given.
    Raises `SignatureRefused` with what is wrong.
    """
    told = {name.lower(): value for name, value in headers.items()}
    try:
        delivery_id, stamp = told["webhook-id"], told["webhook-timestamp"]
        signatures = told["webhook-signature"].split()
    except KeyError as missing:
        raise SignatureRefused(f"The request has no header {missing.args[0]}.") from None
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):
        raise SignatureRefused("The request's webhook-timestamp is no time.")
    if abs((time.time() if now_s is None else now_s) - int(stamp)) > TOLERANCE_S:
        raise SignatureRefused("The request was signed too long ago, or in the future.")
    right = sign([secret], delivery_id, int(stamp), body).encode()
    # all of them, each in constant time: how long it takes tells nothing of the right one
    if not sum(hmac.compare_digest(one.encode(errors="replace"), right) for one in signatures):
        raise SignatureRefused


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:
        raise ValueError("a webhook's secret is whsec_ and base64") from None
