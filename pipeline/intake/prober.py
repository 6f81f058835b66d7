"""The sandbox: recordings are read by other processes, which can do nothing else.

`Prober` starts one server process (`prober_child`) that loads the codecs once and forks a confined
child for each request. What crosses over is a file descriptor and a few numbers; what comes back is
checked JSON. A file that crashes or exhausts its child costs that child.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pipeline.errors import LimitExceeded, ParserCrashed, PartDown, refusal
from pipeline.intake.jail import Limits
from pipeline.intake.reading import Reading
from pipeline.recording import SAMPLE_RATE_HZ, Plan, Probe, Span, SurveyReport

Value = TypeVar("Value")

_ROOT = Path(__file__).resolve().parents[2]
_CHILD_MODULE = "pipeline.intake.prober_child"
_REPLY_LIMIT_BYTES = 64 << 20
_PATIENCE_S = 60.0
"""Beyond a request's own wall clock: the server's start, on a machine with no time to spare."""

_EXHAUSTED = {signal.SIGALRM, signal.SIGXCPU, signal.SIGXFSZ, signal.SIGKILL}
_KILLED = {"died": signal.SIGKILL}
"""By the kernel, which had no memory left for anybody, or by a person: the file's fault only if it
happens again."""
_STOPPED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
"""Somebody ended the child from outside: says nothing about the file."""


class Prober:
    """Reads recordings in a sandbox. Safe to use from several threads; starts again if killed."""

    def __init__(
        self,
        max_duration_s: float = 4 * 3_600,
        probe_wall_s: float = 30.0,
        survey_wall_s: float = 1_800.0,
        probe_memory_bytes: int = 1 << 30,
        survey_memory_bytes: int = 4 << 30,
    ) -> None:
        """Start the server process; it is warm some seconds later, and requests wait for it.

        `max_duration_s` is the longest recording read; `*_wall_s` and `*_memory_bytes` bound one
        request each. Processor time is bounded by the wall clock too: a request has one thread.
        """
        self._max_duration_s = max_duration_s
        # Two channels of speech from end to end, and the silence between their pieces.
        packed_bytes = int(max_duration_s * SAMPLE_RATE_HZ * 2 * 2 * 1.5) + (1 << 20)
        self._limits = {
            "probe": Limits(probe_wall_s, int(probe_wall_s) + 1, probe_memory_bytes, 0),
            "survey": Limits(
                survey_wall_s, int(survey_wall_s) + 1, survey_memory_bytes, packed_bytes
            ),
        }
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._closings = 0
        self._current()

    def probe(self, fd: int, file_name: str, raw_format: str = "") -> Probe:
        """What the recording open at `fd` is and how long it lasts.

        `raw_format` (see `raw.read_raw_format`), or else the extension of `file_name`, declares
        headerless telephony, and nothing else. Raises RecordingRefused, or PartDown when the
        sandbox itself fails.
        """
        asked = self._ask("probe", [fd], file_name, raw_format, Reading())
        return _read(asked, lambda raw: Probe(**raw))

    def survey(
        self,
        fd: int,
        out_fd: int,
        file_name: str,
        raw_format: str = "",
        reading: Reading | None = None,
    ) -> SurveyReport:
        """Plan the recording open at `fd`; write its packed speech to `out_fd`, from its start.

        `out_fd` must be open for writing; it is emptied first. Raises as `probe` does, and
        PartDown when `reading` is called off.
        """
        asked = self._ask("survey", [fd, out_fd], file_name, raw_format, reading or Reading())
        return _read(asked, _report)

    @property
    def server_pid(self) -> int:
        """The process that forks a child for each request, for whoever measures it."""
        return self._current().pid

    def close(self) -> None:
        """End the server and whatever it is doing. A later request starts it again."""
        with self._lock:
            self._closings += 1
            if self._server is not None:
                self._server.close()
            self._server = None

    def _ask(
        self, verb: str, fds: list[int], file_name: str, raw_format: str, reading: Reading
    ) -> dict[str, Any]:
        limits = self._limits[verb]
        arguments = {
            "file_name": file_name[-1_000:],  # only its end counts; a request is one datagram
            "raw_format": raw_format[:100],
            "max_duration_s": self._max_duration_s,
        }
        request = {"verb": verb, "limits": limits.to_json(), "arguments": arguments}
        message = json.dumps(request).encode()
        closings = self._closings
        for last in (False, True):
            answer = self._current().ask(message, fds, limits.wall_s + _PATIENCE_S, reading)
            if reading.called_off:
                raise PartDown("The reading of this file was called off.")
            if answer is not None and (last or answer != _KILLED):
                return _accepted(answer)
            if self._closings != closings:
                raise PartDown("The audio reader was closed while it read this file.")
        raise ParserCrashed

    def _current(self) -> _Server:
        """The running server, started if there is none (or none of this process)."""
        with self._lock:
            if self._server is None or not self._server.alive():
                if self._server is not None:
                    self._server.close()
                self._server = _Server()
            return self._server


def _accepted(answer: dict[str, Any]) -> dict[str, Any]:
    """The value of an answer; raises what it says went wrong."""
    if "died" in answer:
        died = answer["died"]
        if died in _EXHAUSTED:
            raise LimitExceeded
        if died in _STOPPED:
            raise PartDown("The audio reader was stopped while it read this file.")
        raise ParserCrashed
    if "refused" in answer:
        code, message = str(answer["refused"]), str(answer.get("message"))
        raise PartDown(message) if code == PartDown.code else refusal(code, message)
    ok = answer.get("ok")
    return ok if isinstance(ok, dict) else {}


def _read(raw: dict[str, Any], make: Callable[[dict[str, Any]], Value]) -> Value:
    """Make a value of an answer. One that does not fit came from a child no longer ours."""
    try:
        return make(raw)
    except (KeyError, TypeError, ValueError) as error:
        raise ParserCrashed from error


def _report(raw: dict[str, Any]) -> SurveyReport:
    gap = raw["longest_gap"]
    read = {"plan": Plan.from_json(raw["plan"]), "longest_gap": Span(**gap) if gap else None}
    return SurveyReport(**{**raw, **read})


class _Server:
    """One run of the server process, and the socket to it."""

    def __init__(self) -> None:
        self._owner_pid = os.getpid()
        # Datagrams: several threads may send at once and each request arrives whole.
        self._requests, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process: subprocess.Popen[bytes] | None = None
        started = threading.Event()
        # The server dies with the thread that started it, so that thread does nothing but wait.
        threading.Thread(
            target=self._run, args=(started,), name="prober-server", daemon=True
        ).start()
        started.wait()
        if self._process is None:
            raise PartDown("The audio reader cannot be started.")

    def _run(self, started: threading.Event) -> None:
        fd = self._theirs.fileno()
        command = ["-P", "-m", _CHILD_MODULE, str(fd), str(self._owner_pid)]
        try:
            with self._theirs:
                self._process = subprocess.Popen(
                    [sys.executable, *command],
                    env=_environment(),
                    pass_fds=[fd],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    # A signal to our process group must not look like a crash of a parser.
                    start_new_session=True,
                )
        finally:
            started.set()
        self._process.wait()

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None
        return self._process.pid

    def alive(self) -> bool:
        """Whether it still runs and belongs to this process (not to one this was forked from)."""
        ours = self._owner_pid == os.getpid()
        return ours and self._process is not None and self._process.returncode is None

    def ask(
        self, message: bytes, fds: list[int], patience_s: float, reading: Reading
    ) -> dict[str, Any] | None:
        """Send a request and wait for its answer; None when the server died meanwhile, or the
        reading was called off.
        """
        reply, theirs = socket.socketpair()
        with reply, reading.over(reply):
            with theirs:
                try:
                    socket.send_fds(self._requests, [message], [theirs.fileno(), *fds])
                except OSError:  # it died, or another thread noticed that and closed the socket
                    self._kill()
                    return None
            reply.settimeout(patience_s)
            try:
                answer = next(_answers(reply), None)
            except TimeoutError:
                self._kill()  # it holds to no clock any more; the next request starts another
                raise LimitExceeded from None
        if answer is None and not reading.called_off and not self._ended():
            return {"died": 0}  # it filled the reply with so much that the death did not fit in
        return answer

    def close(self) -> None:
        """End it. Safe to call twice."""
        self._requests.close()
        self._kill()

    def _kill(self) -> None:
        if self.alive() and self._process is not None:
            self._process.kill()
            self._process.wait()

    def _ended(self) -> bool:
        """Whether it has died; its sockets may close a moment before that shows."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1.0)
        return not self.alive()


def _answers(reply: socket.socket) -> Iterator[dict[str, Any]]:
    """Each whole line that is a JSON object, until the other end closes.

    Raises ParserCrashed when it says more than any honest child does.
    """
    pending, total = b"", 0
    while chunk := reply.recv(1 << 20):
        total += len(chunk)
        if total > _REPLY_LIMIT_BYTES:
            raise ParserCrashed
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            try:
                answer = json.loads(line)
            except (ValueError, RecursionError):  # cut off by the death the next line tells of
                continue
            if isinstance(answer, dict):
                yield answer


def _environment() -> dict[str, str]:
    """What the server needs to know: no address, no password; one thread for every library."""
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    quiet = {"ORT_DISABLE_TELEMETRY": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return {"PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONPATH": path, **one, **quiet}
