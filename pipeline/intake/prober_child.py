"""The sandbox's own process: requests come in on a socket, each is answered by a child of its own.

Started by `prober` as `python -m pipeline.intake.prober_child FD PARENT`. It loads every codec and
the speech model once and touches no recording itself: a request is a datagram of JSON with the
reply socket and the recording's descriptors; a child is forked for it, confined (`jail`), and
writes one line of JSON to the reply socket:

    {"ok": {...}}    or    {"refused": code, "message": text}

A child whose asker hangs up is killed. When it is gone this process adds {"died": signal} (0: it
left by itself), which counts where no answer came before. It has one thread (or forking would not
be safe), holds no secret (its environment is made for it), and ends with its parent.
"""

from __future__ import annotations

import errno
import gc
import io
import json
import os
import resource
import selectors
import signal
import socket
import sys
import time
import wave
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from av.error import FFmpegError

from pipeline.errors import FairscribeError, LimitExceeded, ParserCrashed, PartDown
from pipeline.intake import container, pack, speech
from pipeline.intake.jail import Limits, confine, die_with_parent
from pipeline.intake.opening import NamelessFile

REQUEST_BYTES = 65_536
REPLY, READ, WRITE = 0, 1, 2
"""Order of a request's descriptors: where to answer, what to read, what to write (survey)."""

_GRACE_S = 5.0
"""A child that outlives its own alarm by this much has disarmed it, and is killed."""


def main() -> None:
    """Serve until the parent is gone."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    die_with_parent(int(sys.argv[2]))
    most = min(4_096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    _warm_up()
    gc.freeze()
    Server(requests).serve()


@dataclass
class Child:
    """A request being answered."""

    pid: int
    pidfd: int
    reply: socket.socket
    deadline_s: float
    """Monotonic time at which it is killed."""
    overdue: bool = False
    """It was."""


class Server:
    """Forks a child for each request, reaps it, and reports how it ended."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._selector = selectors.DefaultSelector()
        self._selector.register(requests, selectors.EVENT_READ)
        self._children: dict[int, Child] = {}

    def serve(self) -> None:
        """Serve until the other end of the request socket is closed."""
        while True:
            for key, _ in self._selector.select(timeout=1.0 if self._children else None):
                child: Child | None = key.data
                if child is None:
                    if not self._accept():
                        return
                elif self._children.get(child.pidfd) is not child:
                    continue  # it was reaped a moment ago
                elif key.fd == child.pidfd:
                    self._reap(self._children.pop(key.fd))
                else:
                    self._stop(child)
            self._kill_overdue()

    def _accept(self) -> bool:
        message, fds, _, _ = socket.recv_fds(self._requests, REQUEST_BYTES, 8)
        if not message:
            return False
        request = json.loads(message)
        limits = Limits(**request["limits"])
        server_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            _answer(server_pid, request, limits, fds)
        deadline_s = time.monotonic() + limits.wall_s + _GRACE_S
        child = Child(pid, os.pidfd_open(pid), socket.socket(fileno=fds[REPLY]), deadline_s)
        for fd in fds[READ:]:
            os.close(fd)
        self._children[child.pidfd] = child
        self._selector.register(child.pidfd, selectors.EVENT_READ, child)
        self._selector.register(child.reply, selectors.EVENT_READ, child)
        return True

    def _stop(self, child: Child) -> None:
        """Whoever asked says nothing more, so this is the end: nobody waits for the answer."""
        self._selector.unregister(child.reply)
        os.kill(child.pid, signal.SIGKILL)

    def _reap(self, child: Child) -> None:
        self._selector.unregister(child.pidfd)
        with suppress(KeyError):  # see `_stop`
            self._selector.unregister(child.reply)
        os.close(child.pidfd)
        _, status = os.waitpid(child.pid, 0)
        # the alarm it disarmed, so that nobody takes the kill for one from outside
        died = signal.SIGALRM if child.overdue else status & 0x7F
        with child.reply, suppress(OSError):  # the asker may have gone, or never read
            child.reply.setblocking(False)
            child.reply.sendall(b'\n{"died": %d}\n' % died)

    def _kill_overdue(self) -> None:
        now_s = time.monotonic()
        for child in self._children.values():
            if now_s > child.deadline_s:
                child.overdue = True
                os.kill(child.pid, signal.SIGKILL)


def _answer(server_pid: int, request: dict[str, Any], limits: Limits, fds: list[int]) -> None:
    """Run one request in this forked child; never returns."""
    left = 1
    try:
        die_with_parent(server_pid)
        os.dup2(1, 2)  # /dev/null: what a parser prints is no line for our log
        answer = _confined(limits, fds) or _outcome(request, fds)
        with socket.socket(fileno=fds[REPLY]) as reply:
            reply.sendall(json.dumps(answer).encode() + b"\n")
        left = 0
    finally:
        os._exit(left)


def _confined(limits: Limits, fds: list[int]) -> dict[str, Any] | None:
    """Confine this process; an answer when that fails, for then no recording may be read."""
    try:
        confine(limits, fds)
    except (OSError, ValueError) as error:
        return {"refused": PartDown.code, "message": f"The audio reader is not confined: {error}."}
    return None


def _outcome(request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    try:
        return {"ok": _VERBS[request["verb"]](fds, **request["arguments"])}
    except FairscribeError as refused:
        return {"refused": refused.code, "message": refused.message}
    except MemoryError:
        return {"refused": LimitExceeded.code, "message": LimitExceeded.__doc__}
    except Exception as error:
        return _trouble(error)


_DISK_TROUBLE = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE}


def _trouble(error: Exception) -> dict[str, Any]:
    """A full or failing disk is not the recording's fault; anything else unforeseen is."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EFBIG:
        return {"refused": LimitExceeded.code, "message": LimitExceeded.__doc__}
    if number in _DISK_TROUBLE and not isinstance(error, FFmpegError):
        return {"refused": PartDown.code, "message": f"Storage fails: {error}."}
    message = f"{ParserCrashed.__doc__} ({type(error).__name__})"
    return {"refused": ParserCrashed.code, "message": message}


def _probe(
    fds: list[int], file_name: str, max_duration_s: float, raw_format: str
) -> dict[str, Any]:
    file = NamelessFile(fds[READ])
    return asdict(container.probe(file, file_name, max_duration_s, raw_format))


def _survey(
    fds: list[int], file_name: str, max_duration_s: float, raw_format: str
) -> dict[str, Any]:
    out = fds[WRITE]
    # A request is sent again when this process was killed in the middle: start from nothing.
    os.ftruncate(out, 0)
    os.lseek(out, 0, os.SEEK_SET)
    with os.fdopen(out, "wb") as packed:
        file = NamelessFile(fds[READ])
        found = pack.survey(file, packed, file_name, max_duration_s, raw_format)
    return {**asdict(found), "plan": found.plan.to_json()}


_VERBS: dict[str, Callable[..., dict[str, Any]]] = {"probe": _probe, "survey": _survey}


def _warm_up() -> None:
    """Run everything once: a confined child can open no file, so it can import no module either."""
    sound = io.BytesIO()
    with wave.open(sound, "wb") as out:
        out.setnchannels(2)
        out.setsampwidth(2)
        out.setframerate(8_000)
        out.writeframes(bytes(range(256)) * 125)
    speech.model()
    for content in (sound.getvalue(), b"#!AMR\n\x3c" + bytes(31), b"\xff\xfb\x90\x64" + bytes(900)):
        fd = os.memfd_create("warm-up")
        os.write(fd, content)
        for read in (
            lambda fd=fd: container.probe(NamelessFile(fd), "", 60.0),
            lambda fd=fd: pack.survey(NamelessFile(fd), io.BytesIO(), "", 60.0),
        ):
            with suppress(FairscribeError):
                read()
        os.close(fd)


if __name__ == "__main__":
    main()
