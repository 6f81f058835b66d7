"""Tells that something happened in a batch, by the API's server-sent events where they get through.

Only that something happened: how the jobs stand is asked for anew, so a lost event, a service that
starts again or a proxy that holds events back costs some seconds and nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.cli.service import Service, batch_path
from pipeline.errors import FairscribeError, PartDown

AT_LEAST_S = 5.0
"""How often to look although nothing was told."""

SILENCE_S = 60.0
"""A stream that says nothing for this long, not even that it is there, is opened anew."""

AGAIN_S = 2.0
"""Before a stream that broke is opened anew."""


class News:
    """A bell: rung by events where there are some, by time where there are none."""

    def __init__(self) -> None:
        self._bell = threading.Event()
        self._over = threading.Event()
        self._listening = False

    def wait(self, tick_s: float) -> None:
        """Return when something happened; without events after `tick_s` seconds."""
        if self._listening:
            # not before the tick: a hundred events a second are one look
            self._over.wait(tick_s)
            self._bell.wait(max(0.0, AT_LEAST_S - tick_s))
            self._bell.clear()
        else:
            self._over.wait(tick_s)

    def listen(self, service: Service, batch_id: str) -> None:
        """Ring for every event of the batch, until told that it is over."""
        path = f"{batch_path(batch_id)}/events"
        while not self._over.is_set():
            try:
                with service.stream(path, SILENCE_S) as lines:
                    for line in lines:
                        self._listening = True
                        if line.startswith("data:"):
                            self._bell.set()
                        if self._over.is_set():
                            return
            except PartDown:
                pass  # it starts again, or went silent
            except FairscribeError:
                return  # the batch is gone, and nothing more will be told of it
            finally:
                self._listening = False
                self._bell.set()
            self._over.wait(AGAIN_S)

    def end(self) -> None:
        """Listen no longer."""
        self._over.set()


@contextmanager
def news_of(service: Service, batch_id: str | None) -> Iterator[News]:
    """The news of a batch; for None those of the clock."""
    news = News()
    if batch_id is not None:
        threading.Thread(target=news.listen, args=(service, batch_id), daemon=True).start()
    try:
        yield news
    finally:
        news.end()
