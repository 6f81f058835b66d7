"""The API on a socket inside the test's process, and workers played by hand."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from pipeline.api.app import create
from pipeline.api.server import protocol
from pipeline.job import State
from pipeline.parts import Parts
from pipeline.store import views
from pipeline.store.session import transaction
from tests.lines import eventually


@contextlib.contextmanager
def listening() -> Iterator[str]:
    """The address of an API that reads its settings from the environment now.

    A stream that is open at the end is given a second.
    """
    config = uvicorn.Config(
        create(), port=0, log_level="critical", timeout_graceful_shutdown=1, http=protocol()
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        eventually(lambda: server.started, 20)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


@contextlib.contextmanager
def each_job(parts: Parts, end: Callable[[Parts, str], Any]) -> Iterator[list[str]]:
    """Ends every job that comes in as `end` does; gives their ids."""
    over, seen = threading.Event(), []

    def work() -> None:
        while not over.wait(0.02):
            with transaction(parts.store) as c:
                new = views.list_jobs(c, states=[State.RECEIVED])
            for job in new:
                seen.append(job.id)
                with contextlib.suppress(ValueError, AssertionError):  # cancelled meanwhile
                    end(parts, job.id)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield seen
    finally:
        over.set()
        worker.join()
