"""What a submission has sent so far, kept on disk until all of it is: so that it can be resumed.

One file a command line in $XDG_STATE_HOME/fairscribe/submissions, lines of JSON: the batch first,
then a line for each recording that has a job. Nothing is promised by it: a line lost to a kill -9
costs one more upload, which the API answers with the job it made before (Idempotency-Key).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from pipeline.errors import BadSetting, FairscribeError


class AlreadyRunning(FairscribeError):
    """The same submission is being sent by another process."""

    code = "already_running"


def journal_folder() -> Path:
    """Where journals lie: the user's own state folder."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "fairscribe" / "submissions"


def journal_path(service: str, words: Iterable[str]) -> Path:
    """The journal of a command line: its arguments and options as `words`, sent to `service`."""
    told = json.dumps([service, *words]).encode()
    return journal_folder() / f"{hashlib.sha256(told).hexdigest()[:32]}.jsonl"


@dataclass(frozen=True)
class Sent:
    """A recording that has a job."""

    given: str
    """How it was named."""
    key: str
    """Its Idempotency-Key."""
    job: dict[str, Any]


class Journal:
    """The journal at `path`, ours alone until it is closed.

    Raises `AlreadyRunning` when another process holds it, `BadSetting` when it cannot be written.
    """

    def __init__(self, path: Path, batch_id: str) -> None:
        """`batch_id`: of a submission that begins now."""
        self._path = path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = _open_locked(path)
        except OSError as error:
            raise BadSetting(
                f"{path.parent} cannot be written ({error.strerror}): set XDG_STATE_HOME to a "
                "folder that can."
            ) from error
        found, self.sent = _read(self._file)
        self.resumes = found is not None
        """Whether an earlier run has begun this submission."""
        self.batch_id = found or batch_id
        if not self.resumes:
            self.begin_anew()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def begin_anew(self) -> None:
        """Forget what was sent."""
        self.resumes, self.sent = False, {}
        self._file.truncate(0)
        self._write({"batch_id": self.batch_id})
        # the one line that cannot be had again: jobs may be made in this batch from now on
        os.fsync(self._file.fileno())

    def note(self, sent: Sent) -> None:
        """Remember a recording that has a job."""
        self.sent[sent.key] = sent
        with suppress(OSError):  # a full disk here costs an upload later, not this submission
            self._write({"given": sent.given, "key": sent.key, "job": sent.job})

    def remove(self) -> None:
        """All is sent: nothing is left to resume."""
        self._path.unlink(missing_ok=True)

    def _write(self, line: dict[str, Any]) -> None:
        # begins with a line's end: what a kill left half written stays a line of its own
        self._file.write(b"\n" + json.dumps(line).encode() + b"\n")
        self._file.flush()


def read_journal(path: Path) -> tuple[str | None, dict[str, Sent]]:
    """(batch or None, what was sent by key) for a run that only looks."""
    try:
        with path.open("rb") as file:
            return _read(file)
    except OSError:
        return None, {}


def _open_locked(path: Path) -> IO[bytes]:
    while True:
        file = path.open("a+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    return file
        except BlockingIOError:
            file.close()
            raise AlreadyRunning(
                "The same submission is being sent by another process; wait for it, or stop it."
            ) from None
        # its holder has removed it since we opened it: take the new one
        file.close()


def _read(file: IO[bytes]) -> tuple[str | None, dict[str, Sent]]:
    file.seek(0)
    sent: dict[str, Sent] = {}
    found = None
    for line in file:
        try:
            read = json.loads(line)
            if found is None:
                found = str(read["batch_id"])
            else:
                one = Sent(str(read["given"]), str(read["key"]), dict(read["job"]))
                sent[one.key] = one
        except (ValueError, KeyError, TypeError):
            continue  # an empty line, or one a kill left half written
    return found, sent
