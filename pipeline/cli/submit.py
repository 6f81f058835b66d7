"""Recordings to jobs: one a request, several requests at once, each file read while it is sent.

Each request carries an Idempotency-Key made of the batch and of what is sent, so one whose answer
was lost is sent again and makes no second job: here a moment later, by another run tomorrow, or
from another machine.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import IO

from pipeline.cli import patience
from pipeline.cli.collect import Found, NotSent
from pipeline.cli.journal import Sent
from pipeline.cli.service import Full, NotFairscribe, Service
from pipeline.cli.side_by_side import side_by_side
from pipeline.errors import BadRequest, FairscribeError, KeyReused, PartDown

TELL_EACH_S = 60.0
"""How often a person is told that the service takes no more for now."""


def key_of(batch_id: str, one: Found, file: os.stat_result | None) -> str:
    """The Idempotency-Key of a recording in a batch; `file`: of its file, None for a URL.

    A file that changed (its size, or its time to the second, which is what archives keep) is
    another one.
    """
    state = [file.st_size, int(file.st_mtime)] if file else []
    told = json.dumps([batch_id, one.given, one.nth, *state])
    return hashlib.sha256(told.encode()).hexdigest()[:40]


class Steady:
    """An open file as long as it was when opened; one that changes cannot be read to its end.

    A request says beforehand how long it is. Sent short it would never end, and sent whole a
    recording that is still being written would lose its end in silence.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._size_bytes = self._left_bytes = self._size_now()

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, all for a negative one. Raises `OSError` once the file changed."""
        asked = self._left_bytes if size < 0 else min(size, self._left_bytes)
        read = self._file.read(asked)
        self._left_bytes -= len(read)
        if len(read) < asked or (not self._left_bytes and self._size_now() != self._size_bytes):
            raise OSError("it changed while it was read")
        return read

    def tell(self) -> int:
        """Bytes read so far."""
        return self._size_bytes - self._left_bytes

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """As files do; this is how httpx asks for the length."""
        place = self._size_bytes + offset if whence == os.SEEK_END else offset
        self._left_bytes = self._size_bytes - self._file.seek(place)
        return place

    def _size_now(self) -> int:
        return os.fstat(self._file.fileno()).st_size


class GivenUp(NotSent):
    """A recording that found nobody to take it for `patience.PATIENCE_S`."""


def submit(
    service: Service, recordings: Iterable[Found], batch_id: str, at_once: int
) -> Iterator[tuple[Found, Sent | NotSent]]:
    """Send the recordings; each one's job, or why it has none, as it is known.

    A file that vanished, cannot be read or changes under our hands does not disturb the others; the
    service may be gone for a minute. Raises `NotFairscribe`, and `BadRequest` for what the API
    refuses of all of them: a row of a table is refused alone.
    """
    sender = _Sender(service, batch_id)
    try:
        yield from side_by_side(lambda one: (one, sender.send(one)), recordings, at_once)
    finally:
        sender.stop()


class _Sender:
    """What the threads of one submission share."""

    def __init__(self, service: Service, batch_id: str) -> None:
        self._service, self._batch_id = service, batch_id
        self._stopped = threading.Event()
        self._given_up: str | None = None
        self._well_s = time.monotonic()
        self._telling = threading.Lock()
        self._told_s = -math.inf

    def stop(self) -> None:
        """Let nothing be sent again."""
        self._stopped.set()

    def send(self, one: Found) -> Sent | NotSent:
        """Send, and send again while the service is away."""
        failing_s: float | None = None
        while self._given_up is None:
            try:
                outcome = self._send(one)
            except NotFairscribe:
                raise
            except Full as full:
                # it is well and says when it takes more: however long that is, it is waited for
                failing_s, self._well_s = None, time.monotonic()
                self._tell(full)
                if self._stopped.wait(patience.pause_s(full)):
                    return GivenUp(one.given, full.message, one.line)
            except PartDown as down:
                failing_s = failing_s or time.monotonic()
                if not self._wait(failing_s, down):
                    return GivenUp(one.given, down.message, one.line)
            else:
                self._well_s = time.monotonic()
                return outcome
        return GivenUp(one.given, self._given_up, one.line)

    def _tell(self, full: Full) -> None:
        """Say why nothing seems to happen, now and then."""
        with self._telling:
            now_s = time.monotonic()
            if now_s < self._told_s + TELL_EACH_S:
                return
            self._told_s = now_s
        print(f"waiting: {full.message}", file=sys.stderr)

    def _wait(self, failing_s: float, down: PartDown) -> bool:
        """Wait, unless patience is at its end or nobody wants it any more."""
        left_s = failing_s + patience.PATIENCE_S - time.monotonic()
        if left_s > 0:
            return not self._stopped.wait(min(patience.pause_s(down), left_s))
        if self._well_s < failing_s:  # nobody was served all the while: the rest need not wait
            self._given_up = down.message
        return False

    def _send(self, one: Found) -> Sent | NotSent:
        try:
            if one.path is None:
                return self._request(one, one.given, key_of(self._batch_id, one, None))
            with one.path.open("rb") as file:
                key = key_of(self._batch_id, one, os.fstat(file.fileno()))
                return self._request(one, (one.name, Steady(file)), key)
        except OSError as error:
            return NotSent(one.given, error.strerror or str(error), one.line)

    def _request(self, one: Found, file: tuple[str, Steady] | str, key: str) -> Sent | NotSent:
        fields = one.asked.fields(self._batch_id)
        try:
            job, _ = self._service.submit(file, fields, key)
        except KeyReused:
            reason = "it was sent before with other words; choose another --batch-id to send it so"
            return NotSent(one.given, reason, one.line)
        except BadRequest as refused:
            if one.line is None:
                raise
            return NotSent(one.given, refused.message, one.line)
        except PartDown:
            raise
        except FairscribeError as error:
            return NotSent(one.given, error.message, one.line)
        return Sent(one.given, key, job)
