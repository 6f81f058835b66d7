"""Where recordings and packed speech are kept: keys and bytes come in, and come back.

A folder of this machine or an object store. Keys are made by this program (`recordings/<job id>`,
`packed/<job id>-<attempt>-<run>`), never of a file name somebody gave. What `put` has returned for
is durable: a folder has been fsynced, an object store has acknowledged.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, from_url

from pipeline.breaker import Breaker
from pipeline.errors import (
    EmptyRecording,
    FairscribeError,
    PartDown,
    RecordingMissing,
    SoundUnreadable,
    TooLarge,
)

_KEY = re.compile(r"[a-z]+(/[A-Za-z0-9][A-Za-z0-9._-]*)+")

TOMBSTONES = "erased"
"""Folder of what says that a job was erased: `erased/<job id>`, with the time. A backup's are added
to those that are there, never put in their place."""

FULL = "Storage is full."
_FULL_WORDS = ("No space left", "Disk quota exceeded", "File too large")
"""Of the disk, of this user, of the process: what the system calls it."""

_NOBODY = "nobody"
"""Stored under no key: a store that says so of it answers."""


class Storage:
    """Recordings by key. Safe to use from several threads."""

    def __init__(self, place: Path | str, **options: Any) -> None:
        """`place` is a folder, made when missing, or an object store's URL such as s3://bucket/dir.

        `options` are passed on to the object store (credentials, region, endpoint).
        """
        self._folder: Path | None = None
        # a `put` lasts as long as its sender likes
        self.breaker = Breaker("Storage", stall_s=math.inf)
        if "://" in str(place):
            self._store: Any = from_url(str(place), **options)
            return
        self._folder = Path(place).resolve()
        with _telling():
            self._store = LocalStore(self._folder, mkdir=True)

    def put(self, key: str, chunks: Iterable[bytes], limit_bytes: int) -> tuple[int, str]:
        """Store a stream; returns its size in bytes and its sha256 in hex.

        Raises TooLarge beyond `limit_bytes` and EmptyRecording for no bytes at all, PartDown when
        the store fails, and whatever `chunks` raises; nothing is left under `key` then.
        """
        stream = _Measured(chunks, limit_bytes)
        with self._asking():
            try:
                with _telling():
                    obstore.put(self._store, _checked(key), iter(stream))
                    self._make_durable(key)
            except Exception:
                if stream.failure is not None:
                    raise stream.failure from None
                raise
        return stream.size_bytes, stream.digest.hexdigest()

    def open_fd(self, key: str) -> int:
        """A file descriptor to read the whole of `key` from; the caller closes it.

        Raises RecordingMissing, SoundUnreadable, PartDown.
        """
        with self._asking(key), _telling():
            if self._folder is not None:
                return os.open(self._folder / _checked(key), os.O_RDONLY | os.O_NOFOLLOW)
            with tempfile.TemporaryFile() as copy:
                for chunk in obstore.get(self._store, _checked(key)).stream():
                    copy.write(chunk)
                copy.flush()
                return os.dup(copy.fileno())

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """`length` bytes from byte `start`.

        Raises RecordingMissing when there are not that many, SoundUnreadable, PartDown.
        """
        if not length:
            return b""
        # A range that begins past the end is the store's own kind of error, a different one each.
        if start + length > self.size(key):
            raise RecordingMissing("The stored recording is shorter than it was.")
        with self._asking(key), _telling():
            return bytes(obstore.get_range(self._store, key, start=start, length=length))

    def size(self, key: str) -> int:
        """Size in bytes. Raises RecordingMissing, SoundUnreadable, PartDown."""
        with self._asking(key), _telling():
            return int(obstore.head(self._store, _checked(key))["size"])

    def delete(self, key: str) -> None:
        """Erase; no error when it is gone already. Raises PartDown."""
        with self._asking(), _telling(), suppress(FileNotFoundError):
            obstore.delete(self._store, _checked(key))

    def keys(self, folder: str) -> list[tuple[str, float]]:
        """Every key under `folder` ("packed") and its age in seconds. Raises PartDown.

        What somebody else laid there, whose name could be no key, is passed over.
        """
        now = datetime.now(UTC)
        with self._asking(), _telling():
            found = [one for page in obstore.list(self._store, prefix=folder) for one in page]
        return [
            (one["path"], (now - one["last_modified"]).total_seconds())
            for one in found
            if _is_key(one["path"])
        ]

    @contextmanager
    def _asking(self, key: str | None = None) -> Iterator[None]:
        """A store that is full answers, and must let us erase; so does one that fails to read `key`
        (a bad sector, one object refused) and can say what is beside it.
        """
        call = self.breaker.call()
        try:
            yield
        except PartDown as down:
            alone = key is not None and self._answers_beside(key)
            (self.breaker.answered if alone or down.message == FULL else self.breaker.failed)(call)
            if alone:
                raise SoundUnreadable from down
            raise
        except BaseException:
            self.breaker.answered(call)
            raise
        else:
            self.breaker.answered(call)

    def _answers_beside(self, key: str) -> bool:
        folder = key.partition("/")[0]
        try:
            with _telling():
                obstore.head(self._store, f"{folder}/{_NOBODY}")
        except RecordingMissing:
            return True
        except PartDown:
            return False
        return True

    def _make_durable(self, key: str) -> None:
        """Flush the file, its folder, and the folders above up to the store's own."""
        if self._folder is None:
            return
        place = self._folder / key
        while place != self._folder.parent:
            _fsync(place)
            place = place.parent


class _Measured:
    """Bytes on their way in: counted, hashed, and stopped at the limit."""

    def __init__(self, chunks: Iterable[bytes], limit_bytes: int) -> None:
        self._chunks = chunks
        self._limit_bytes = limit_bytes
        self.size_bytes = 0
        self.digest = hashlib.sha256()
        self.failure: Exception | None = None
        """What stopped the stream from its own side: not the store's fault."""

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._measure()
        except Exception as error:
            self.failure = error
            raise

    def _measure(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.size_bytes += len(chunk)
            if self.size_bytes > self._limit_bytes:
                raise TooLarge(f"The file is larger than {self._limit_bytes} bytes.")
            self.digest.update(chunk)
            yield bytes(chunk)
        if not self.size_bytes:
            raise EmptyRecording


def _is_key(name: str) -> bool:
    return _KEY.fullmatch(name) is not None and ".." not in name


def _checked(key: str) -> str:
    if not _is_key(key):
        raise ValueError(f"not a storage key: {key!r}")
    return key


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _telling() -> Iterator[None]:
    """Turn the store's errors to ours."""
    try:
        yield
    except FairscribeError:
        raise
    except FileNotFoundError:
        raise RecordingMissing from None
    except (BaseError, OSError) as error:
        first_line = str(error).partition("\n")[0]
        if any(word in first_line for word in _FULL_WORDS):
            raise PartDown(FULL) from error
        raise PartDown(f"Storage does not answer: {first_line}") from error
