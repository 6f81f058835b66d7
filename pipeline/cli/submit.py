"""Files to jobs: a few a request, each read while it is sent."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import IO, Any

from pipeline.cli.collect import Found, NotSent
from pipeline.cli.service import Service, Unreachable
from pipeline.errors import PartDown

FILES_A_REQUEST = 8
BYTES_A_REQUEST = 64_000_000
"""A request ends at either: small enough that one that fails costs little."""

PAUSES_S = (2.0, 2.0, 5.0, 10.0)
"""How long to wait before a file is sent again because Postgres or storage did not answer."""


Job = dict[str, Any]
"""A job as the API tells it."""


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


Outcome = tuple[Found, Job | NotSent | PartDown]


def submit(
    service: Service, files: Iterable[Found], fields: dict[str, str]
) -> Iterator[Job | NotSent]:
    """Send the files; each one's job, or why it has none, as it is known.

    A file that vanished, cannot be read or changes under our hands does not disturb the others.
    Raises `Unreachable`, and `BadRequest` for fields the API refuses.
    """
    for batch in _batches(files):
        yield from _send_patiently(service, batch, fields)


def _batches(files: Iterable[Found]) -> Iterator[list[Found]]:
    batch: list[Found] = []
    room_bytes = BYTES_A_REQUEST
    for file in files:
        size_bytes = _size_bytes(file)
        if batch and (len(batch) == FILES_A_REQUEST or size_bytes > room_bytes):
            yield batch
            batch, room_bytes = [], BYTES_A_REQUEST
        batch.append(file)
        room_bytes -= size_bytes
    if batch:
        yield batch


def _size_bytes(file: Found) -> int:
    try:
        return file.path.stat().st_size
    except OSError:
        return 0  # opening it will tell


def _send_patiently(
    service: Service, batch: list[Found], fields: dict[str, str]
) -> Iterator[Job | NotSent]:
    """Send, and send again what found no part to keep it."""
    for pause_s in (*PAUSES_S, None):
        again: list[Found] = []
        why = ""
        for file, outcome in _send(service, batch, fields):
            if isinstance(outcome, PartDown):
                again.append(file)
                why = outcome.message
            else:
                yield outcome
        if pause_s is None:
            yield from (NotSent(str(file.path), why) for file in again)
        if not again or pause_s is None:
            return
        time.sleep(pause_s)
        batch = again


def _send(service: Service, batch: list[Found], fields: dict[str, str]) -> list[Outcome]:
    """One request; for each file its job, why there will be none, or what was down."""
    outcomes: list[Outcome] = []
    with ExitStack() as stack:
        opened: list[tuple[Found, Steady]] = []
        for file in batch:
            try:
                opened.append((file, Steady(stack.enter_context(file.path.open("rb")))))
            except OSError as error:
                outcomes.append((file, NotSent(str(file.path), error.strerror or str(error))))
        files = [file for file, _ in opened]
        if not files:
            return outcomes
        try:
            answer = service.upload([(file.name, stream) for file, stream in opened], fields)
        except OSError as error:
            return outcomes + _send_singly(service, files, fields, error)
        except Unreachable:
            raise
        except PartDown as down:
            return outcomes + [(file, down) for file in files]
    return outcomes + [
        (file, job if job["id"] else PartDown(job["error"]["message"]))
        for file, job in zip(files, answer["jobs"], strict=True)
    ]


def _send_singly(
    service: Service, files: list[Found], fields: dict[str, str], error: OSError
) -> list[Outcome]:
    """One of the files broke the request, which made no job: find out which."""
    if len(files) > 1:
        return [outcome for file in files for outcome in _send(service, [file], fields)]
    return [(files[0], NotSent(str(files[0].path), error.strerror or str(error)))]
