"""A job's life as Celery events, so that Flower shows one task a job.

Flower builds all it shows from events, `inspect active` and heartbeats from the worker's own sets
of requests. Both are fed here for jobs that never were Celery messages. Events are plain pub/sub:
they carry ids, lengths and counts, never a file name and never a word of what was said.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from celery import Celery
from celery.worker import state as worker_state

from pipeline.logs import log


class _LateAcks:
    acks_late = True


class JobRequest:
    """Stands for a job where Celery expects the request of a task it received."""

    # Celery's own shutdown and connection loss cancel late-ack requests that are not acknowledged;
    # ours end by draining, so they count as acknowledged.
    acknowledged = True
    task = _LateAcks

    def __init__(
        self,
        task_id: str,
        name: str,
        facts: dict[str, Any],
        hostname: str,
        on_terminate: Callable[[], None],
    ) -> None:
        self.id, self.name, self.hostname = task_id, name, hostname
        self.type = self.task_name = name
        self.args: list[Any] = []
        self.kwargs = facts
        self.time_start = time.time()
        self.worker_pid = os.getpid()
        self.delivery_info = {"routing_key": "sorted set", "exchange": "", "priority": None}
        self._on_terminate = on_terminate

    def info(self, safe: bool = False) -> dict[str, Any]:
        """What `inspect active` and Flower's worker page show."""
        return {
            "id": self.id,
            "name": self.name,
            "type": self.name,
            "args": self.args,
            "kwargs": self.kwargs,
            "hostname": self.hostname,
            "time_start": self.time_start,
            "acknowledged": True,
            "delivery_info": self.delivery_info,
            "worker_pid": self.worker_pid,
        }

    def terminate(self, pool: Any, signal: Any = None) -> None:
        """A person pressed Terminate: the job is cancelled."""
        self._on_terminate()

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:
        """Celery shuts down or lost its broker: no concern of a job held under a lease."""


class FlowerEvents:
    """Sends the events of one worker from a thread of its own: a slow broker delays no window."""

    def __init__(self, app: Celery, hostname: str) -> None:
        self._app, self._hostname = app, hostname
        self._events: queue.SimpleQueue[tuple[str, dict[str, Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._send_all, name="flower-events", daemon=True)
        self._thread.start()

    def started(self, request: JobRequest, tries: int) -> None:
        """The job was granted to this worker; `tries` counts the grants of its stage, from 1."""
        known = {"name": request.name, "args": "()", "kwargs": repr(request.kwargs)}
        if tries > 1:
            # Flower ignores a second start of a task unless it was said to be retried
            self._put("task-retried", request, exception=f"try {tries}", traceback="")
        self._put(
            "task-received",
            request,
            **known,
            root_id=request.id,
            parent_id=None,
            retries=tries - 1,
            eta=None,
            expires=None,
        )
        worker_state.task_reserved(request)
        worker_state.task_accepted(request)
        self._put("task-started", request, **known)

    def succeeded(self, request: JobRequest, result: str) -> None:
        """The job's result is committed."""
        runtime_s = time.time() - request.time_start
        self._put("task-succeeded", request, result=repr(result), runtime=runtime_s)
        worker_state.task_ready(request, successful=True)

    def failed(self, request: JobRequest, code: str) -> None:
        """The job ended without a result."""
        self._put("task-failed", request, exception=code, traceback="")
        worker_state.task_ready(request)

    def given_back(self, request: JobRequest, why: str) -> None:
        """The job waits again, or somebody else has it."""
        self._put("task-retried", request, exception=why, traceback="")
        worker_state.task_ready(request)

    def revoked(self, request: JobRequest) -> None:
        """The job was cancelled."""
        self._put("task-revoked", request, terminated=True, signum=None, expired=False)
        worker_state.task_ready(request)

    def close(self) -> None:
        """Send what is left, within 3 s."""
        self._events.put(None)
        self._thread.join(3.0)

    def _put(self, kind: str, request: JobRequest, **fields: Any) -> None:
        self._events.put((kind, {"uuid": request.id, "timestamp": time.time(), **fields}))

    def _send_all(self) -> None:
        with self._app.connection_for_write() as connection:
            dispatcher = self._app.events.Dispatcher(
                connection, hostname=self._hostname, enabled=True, buffer_while_offline=True
            )
            while (event := self._events.get()) is not None:
                kind, fields = event
                try:
                    dispatcher.flush()  # what was buffered while the broker was away comes first
                    dispatcher.send(kind, **fields)
                except Exception as why:
                    log().warning("event_lost", kind=kind, uuid=fields["uuid"], why=repr(why))
