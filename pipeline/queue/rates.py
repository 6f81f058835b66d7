"""How often a caller may ask: a token bucket each, in Redis: all API processes count together.

Redis being away limits nobody: a recording must be taken in then too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from pipeline.errors import PartDown
from pipeline.queue import keys
from pipeline.queue.scripts import Scripts

AWAY_S = 2.0
"""Redis that did not answer is not asked again for so long."""


@dataclass(frozen=True)
class Rate:
    """What a caller may do."""

    per_s: float
    """Requests a second, in the long run; 0: no limit."""
    burst: int
    """Requests at once, 1 or more."""


class Rates:
    """The buckets of all callers. Safe to use from several threads; connects at first use."""

    def __init__(self, redis_url: str, tell: Callable[[PartDown | None], None]) -> None:
        """`tell` is called once when Redis went away, and once, with None, when it is back."""
        # a request waits for this answer: better none than a late one
        client = redis.Redis.from_url(
            redis_url,
            decode_responses=True,
            socket_timeout=0.5,
            socket_connect_timeout=0.5,
            retry=Retry(NoBackoff(), 1),
        )
        self._scripts = Scripts(client)
        self._tell = tell
        self._lock = threading.Lock()
        self._away_until_s = 0.0
        self._away = False

    def wait_s(self, caller: str, rate: Rate) -> float:
        """0: one request of `caller` may go through, and has been counted. Else it may not, and one
        may after so many seconds.
        """
        if rate.per_s <= 0 or time.monotonic() < self._away_until_s:
            return 0.0
        token_us = max(1, round(1e6 / rate.per_s))
        try:
            wait_us = self._scripts.run("allow", [keys.bucket(caller)], [token_us, rate.burst])
        except PartDown as down:
            self._note(down)
            return 0.0
        self._note(None)
        return int(wait_us) / 1e6

    def _note(self, down: PartDown | None) -> None:
        with self._lock:
            was, self._away = self._away, down is not None
            if down is not None:
                self._away_until_s = time.monotonic() + AWAY_S
        if was != (down is not None):
            self._tell(down)
