"""Asks for an errand by name: a Celery client that holds no worker code.

A message is a hint. It may be lost (Redis gone, a worker killed between reading and running), so
whoever sends one relies on the sweeper, never on the message. So nobody waits for a broker that did
not answer a moment ago.
"""

from __future__ import annotations

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

_NO_ANSWER = (OperationalError, OSError, TimeoutError)


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

    def probe(self, job_ids: list[str]) -> None:
        """Ask for these jobs to be probed. Raises `PartDown` when the broker does not answer."""
        self._send(PROBE, job_ids)

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
