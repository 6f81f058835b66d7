"""Asks for an errand by name: a Celery client that holds no worker code.

A message is a hint. It may be lost (Redis gone, a worker killed between reading and running), so
whoever sends one relies on the sweeper, never on the message. So nobody waits for a broker that did
not answer a moment ago.

Probes of whoever sends many go behind those of others: the first few of each sender in half a
minute are asked for at once, the rest wait in a list of their own, which a worker takes from while
the first is empty. Celery calls that a priority; with Redis 0 is the highest.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError

from pipeline.breaker import Breaker
from pipeline.errors import PartDown

ERRANDS_QUEUE = "errands"
"""The Celery queue of all errands."""

PROBE = "fairscribe.probe"
"""Errand: find out what a recording is and how long. Argument: job id."""

FETCH = "fairscribe.fetch"
"""Errand: fetch a recording from its URL. Argument: job id."""

NOTIFY = "fairscribe.notify"
"""Errand: look at once for what a webhook is to be told. Argument: webhook id."""

BEHIND = 9
"""The priority of what goes behind."""

ERRANDS_LISTS = (ERRANDS_QUEUE, f"{ERRANDS_QUEUE}\x06\x16{BEHIND}")
"""The lists in Redis in which errands wait."""

FEW = 20
FEW_EACH_S = 30.0
"""Of one sender so many probes in so long are few."""

SENDERS_KEPT = 10_000

_NO_ANSWER = (OperationalError, OSError, TimeoutError)


class Few:
    """Counts what each sender asked for in the running half minute. Safe to use from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[str, tuple[float, int]] = {}
        """By sender: since when (monotonic), and how many."""

    def take(self, sender: str | None, count: int) -> int:
        """How many of `count` go first; without a sender each call is somebody else's."""
        if sender is None:
            return min(count, FEW)
        now_s = time.monotonic()
        with self._lock:
            since_s, asked = self._asked.get(sender, (now_s, 0))
            if now_s - since_s >= FEW_EACH_S:
                since_s, asked = now_s, 0
            if sender not in self._asked and len(self._asked) >= SENDERS_KEPT:
                self._forget(now_s)
            self._asked[sender] = since_s, asked + count
            return max(0, min(count, FEW - asked))

    def _forget(self, now_s: float) -> None:
        live = {k: v for k, v in self._asked.items() if now_s - v[0] < FEW_EACH_S}
        self._asked = live if len(live) < SENDERS_KEPT else {}


class Handover:
    """Sends errands to the broker at `broker_url` (Celery's spelling)."""

    def __init__(self, broker_url: str) -> None:
        self._celery = Celery("fairscribe", broker=broker_url, set_as_current=False)
        self._celery.conf.update(
            task_serializer="json",
            accept_content=["json"],
            task_ignore_result=True,
            broker_connection_timeout=1.0,
            broker_transport_options={"socket_timeout": 1.0, "socket_connect_timeout": 1.0},
        )
        self.breaker = Breaker("The broker", self._ask, after=1)
        self._few = Few()

    def probe(self, job_ids: list[str], sender: str | None = None) -> None:
        """Ask for these jobs to be probed, those beyond the first few of `sender` (a tenant, a
        batch; None: nobody is known) behind what others ask for. Raises `PartDown` when the broker
        does not answer.
        """
        first = self._few.take(sender, len(job_ids))
        self._send(PROBE, job_ids[:first])
        self._send(PROBE, job_ids[first:], priority=BEHIND)

    def fetch(self, job_ids: list[str], in_s: float = 0.0) -> None:
        """Ask for these jobs' recordings to be fetched, not before `in_s` seconds. See `probe`."""
        self._send(FETCH, job_ids, countdown=in_s or None)

    def notify(self, webhook_ids: list[str]) -> None:
        """Ask for what these webhooks are to be told to be sent at once. See `probe`."""
        self._send(NOTIFY, webhook_ids)

    def _ask(self) -> None:
        with self._celery.connection_for_write() as line:
            line.default_channel.client.ping()

    def _send(self, errand: str, ids: list[str], **options: Any) -> None:
        if not ids:
            return
        try:
            with (
                self.breaker.asking(*_NO_ANSWER),
                self._celery.producer_pool.acquire(block=True, timeout=2) as producer,
            ):
                for one in ids:
                    self._celery.send_task(
                        errand,
                        args=[one],
                        queue=ERRANDS_QUEUE,
                        producer=producer,
                        retry=False,
                        **options,
                    )
        except _NO_ANSWER as down:
            raise PartDown(f"The broker does not answer: {down}") from down
