"""The postman: threads beside an errands worker's own that tell webhooks what is due.

They are not the worker's threads, so a receiver that takes long keeps no recording from being
probed. Few of them serve one webhook, a single one a webhook that fails, and none for long in a
row, so a receiver that takes long does not keep those of others waiting either. The order in which
a webhook is told things is not promised.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

from pipeline.errors import PartDown
from pipeline.fetch.poster import Poster
from pipeline.logs import log
from pipeline.parts import Parts
from pipeline.steps.notify import notify
from pipeline.store import deliveries
from pipeline.store.deliveries import Due
from pipeline.store.session import transaction

THREADS = 16
"""Deliveries sent at once by this process."""

EACH = 4
"""Of these for one webhook; one where its last attempt failed."""

LOOK_EACH_S = 1.0
"""How often it looks for what is due, unless it is woken."""

ROUND_S = 5.0
"""After this long a thread leaves its webhook, and whoever has the fewest gets it."""

SPARE_S = 20.0
"""A delivery is taken for the time an exchange may take and this, seconds."""

ENDING_S = 2.0
"""How long `stop` waits for exchanges under way. What they take longer is sent again later."""


class Postman:
    """Looks for what is due and has it sent, from `start` to `stop`."""

    def __init__(self, parts: Parts, poster: Poster) -> None:
        self._parts, self._poster = parts, poster
        self._lease_s = parts.settings.webhook_timeout_s + SPARE_S
        self._running: Counter[str] = Counter()
        """Rounds under way, by webhook."""
        self._lock = threading.Lock()
        self._woken, self._stopping = threading.Event(), threading.Event()
        self._idle = threading.Condition(self._lock)
        self._looking = threading.Thread(target=self._look, name="postman", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._looking.start()

    def wake(self) -> None:
        """Look at once: there may be something."""
        self._woken.set()

    def stop(self) -> None:
        """Begin nothing more, and wait a moment for what is under way."""
        self._stopping.set()
        self._woken.set()
        if self._looking.is_alive():
            self._looking.join(ENDING_S)
        with self._idle:
            self._idle.wait_for(lambda: not self._running.total(), ENDING_S)

    def _look(self) -> None:
        while not self._stopping.is_set():
            self._woken.clear()
            try:
                self._begin_rounds()
            except PartDown as down:
                log().warning("postman_waits", why=down.message)
            except Exception as error:  # one bad look must not be the last
                log().error("postman_failed", exc_info=error)
            self._woken.wait(LOOK_EACH_S)

    def _begin_rounds(self) -> None:
        with transaction(self._parts.store) as c:
            due = deliveries.due(c, EACH)
        while due:
            with self._lock:
                free = THREADS - self._running.total()
                due = [one for one in due if self._running[one.webhook_id] < self._most(one)]
                if not free or not due or self._stopping.is_set():
                    return
                next_ = min(due, key=lambda one: self._running[one.webhook_id])
                self._running[next_.webhook_id] += 1
            self._thread(next_.webhook_id)

    @staticmethod
    def _most(one: Due) -> int:
        return 1 if one.failing else min(EACH, one.count)

    def _thread(self, webhook_id: str) -> None:
        """Daemons: an exchange that takes long must not keep the worker from ending."""
        name = f"postman-{webhook_id[-12:]}"
        threading.Thread(target=self._round, args=(webhook_id,), name=name, daemon=True).start()

    def _round(self, webhook_id: str) -> None:
        end_s = time.monotonic() + ROUND_S
        try:
            while time.monotonic() < end_s and self._send(webhook_id):
                pass
        except PartDown as down:
            log().warning("postman_waits", why=down.message)
        except Exception as error:  # of one webhook; the others go on
            log().error("postman_failed", webhook_id=webhook_id, exc_info=error)
        finally:
            with self._idle:
                self._running -= Counter([webhook_id])  # leaves none at zero behind
                self._idle.notify_all()
            self._woken.set()

    def _send(self, webhook_id: str) -> bool:
        if self._stopping.is_set():
            return False
        return notify(
            self._parts.store,
            self._poster,
            webhook_id,
            lease_s=self._lease_s,
            stopping=self._stopping.is_set,
        )
