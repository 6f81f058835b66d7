"""The Celery bootstep that puts a puller into a worker.

It is a step of the *worker* blueprint: the consumer blueprint is stopped and started again at every
loss of the broker, this one once. The worker runs with `-P solo`, takes no Celery tasks, and is
there for what Celery is good at: remote control, heartbeats, events, signals.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from celery import bootsteps
from celery.worker import state as worker_state

from pipeline.logs import configure, log
from pipeline.parts import Parts, open_parts
from pipeline.settings import read_settings
from workers.held import Work
from workers.puller import EXIT_PULLER_DIED, Puller

HEARTBEAT_S = 2.0
"""While draining, heartbeats are ours to send: Celery's own loop no longer turns."""

LEAVE_S = 5.0
"""Time to give back what is in hand and to free the engine."""

EXIT_LEFT_BEHIND = 71
"""Exit code of a worker that had to leave something running behind."""


class PullStep(bootsteps.StartStopStep):
    """Starts, drains and stops a puller. A stage's own step says which `work` it does."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        self._puller: Puller | None = None
        self._drain_s = 0.0
        super().__init__(parent, **kwargs)

    def work(self, parts: Parts) -> Work:
        """What this worker does. Called once, at start."""
        raise NotImplementedError

    def start(self, parent: Any) -> None:
        """Begin; returns at once, since a signal is not heard before Celery's loop turns."""
        settings = read_settings()
        parts = open_parts(settings)
        work = self.work(parts)
        configure(work.stage.name, settings.log_level)
        self._drain_s = settings.drain_s
        self._puller = Puller(parent.app, parent.hostname, work, parts)
        self._puller.start()
        _stop_worker_when(self._puller)

    def close(self, parent: Any) -> None:
        """Warm shutdown: let units in flight end, while the broker is still connected."""
        if self._puller is None or worker_state.should_terminate:
            return
        self._puller.drain()
        deadline_s = time.monotonic() + self._drain_s
        beat_s = 0.0
        # short waits: signal handlers run between them, so that a second signal hastens the end
        while not self._puller.ended.wait(0.1):
            if worker_state.should_terminate or time.monotonic() > deadline_s:
                break
            if time.monotonic() - beat_s > HEARTBEAT_S:
                beat_s = time.monotonic()
                _beat(parent)

    def stop(self, parent: Any) -> None:
        """End of the worker: what has not ended in the drain's time is given back."""
        if self._puller is None:
            return
        self._puller.hurry()
        self._puller.stop(timeout_s=LEAVE_S)
        if not self._puller.ended.is_set():
            # an engine in mid-start or a file in mid-decode: what is held is left to its lease,
            # and Python would wait for their threads without end
            log().error("puller_left_behind")
            os._exit(EXIT_LEFT_BEHIND)

    def terminate(self, parent: Any) -> None:
        """Cold shutdown: give back at once."""
        self.stop(parent)

    def info(self, parent: Any) -> dict[str, Any]:
        """Part of `celery inspect stats`."""
        return {"puller": self._puller.facts()} if self._puller is not None else {}


def _stop_worker_when(puller: Puller) -> None:
    """A worker whose puller died must not look alive: it ends with EXIT_PULLER_DIED."""

    def watch() -> None:
        puller.ended.wait()
        if puller.error is not None:
            worker_state.should_stop = EXIT_PULLER_DIED

    threading.Thread(target=watch, name="puller-watch", daemon=True).start()


def _beat(parent: Any) -> None:
    try:
        parent.consumer.event_dispatcher.send(
            "worker-heartbeat",
            freq=HEARTBEAT_S,
            active=len(worker_state.active_requests),
            processed=worker_state.all_total_count[0],
            loadavg=os.getloadavg(),
            **worker_state.SOFTWARE_INFO,
        )
    except Exception as why:
        log().info("heartbeat_not_sent", why=repr(why))
