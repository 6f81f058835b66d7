"""Child processes: started so that they cannot outlive us, ended so that nothing of them stays.

Every server and every part of `fairscribe up` is started here. In: a command line. Out: a `Popen`
in a session of its own (Ctrl-C in a terminal reaches only the supervisor), to which the kernel
sends a signal when the process that started it is gone, however it went.

Start children from the main thread: the kernel ties that signal to the thread that forked.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import PartDown
from workers.die_with_parent import die_with_parent

LOG_KEEP_BYTES = 32 * 1024 * 1024
"""A log larger than this is put aside as `.old` at the next start of what writes it."""


@dataclass(frozen=True)
class User:
    """An account a child runs as."""

    name: str
    uid: int
    gid: int


def spawn(
    argv: Sequence[str | Path],
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
    user: User | None = None,
    death_signal: signal.Signals = signal.SIGKILL,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start `argv` in its own session, writing to the end of `log`.

    `env` replaces the environment (None: ours). `user` is who it runs as (None: as we do; anyone
    else needs root). `death_signal` reaches it when this thread is gone. Raises `PartDown` when the
    program cannot be started.
    """
    if log.exists() and log.stat().st_size > LOG_KEEP_BYTES:
        log.replace(log.with_name(log.name + ".old"))
    with open(log, "ab", opener=_private) as out:
        try:
            return subprocess.Popen(
                [str(a) for a in argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                start_new_session=True,
                user=user.uid if user else None,
                group=user.gid if user else None,
                extra_groups=[] if user else None,
                # CPython calls this after it changed the user; a change of user would undo it.
                preexec_fn=_prepared(death_signal),
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise PartDown(f"cannot start {argv[0]}: {error}") from error


def _prepared(death_signal: signal.Signals) -> Callable[[], None]:
    """What a child does between fork and exec.

    A shell starts background commands with SIGINT and SIGQUIT ignored, and ignoring is inherited:
    under `nohup fairscribe up &` a part would be deaf to the signals that stop and hurry it.
    """
    bind_to_parent = die_with_parent(death_signal)

    def prepare() -> None:
        for number in (signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        bind_to_parent()

    return prepare


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def wait_ready(
    name: str,
    process: subprocess.Popen[bytes],
    log: Path,
    ready: Callable[[], bool],
) -> None:
    """Return once `ready()`, however long that takes: a database may have a long log to replay.

    Raises `PartDown`, with the reason and the last lines of `log`, when the process ends first.
    """
    while not ready():
        if process.poll() is not None:
            raise PartDown(
                f"{name} ended while starting: {cause(process.returncode)}.\n{last_lines(log)}"
            )
        time.sleep(0.01)


def stop(process: subprocess.Popen[bytes], *steps: tuple[signal.Signals, float]) -> None:
    """End `process`: each (signal, seconds to wait after it) in turn, SIGKILL at the very end."""
    for number, patience_s in steps:
        if process.poll() is not None:
            return
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
    if process.poll() is None:
        process.kill()
        process.wait()


def ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether `process` has ended; if so, what is left of its process group is killed first.

    The dead leader is looked at before it is reaped: until then its number cannot go to a stranger.
    """
    if process.returncode is not None:
        return True
    seen = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if seen is None:
        return False
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return True


def cause(returncode: int) -> str:
    """Why a process ended, in words.

    >>> cause(3), cause(-9)
    ('exit code 3', 'killed by SIGKILL')
    """
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


def last_lines(log: Path, count: int = 15) -> str:
    """The last `count` lines of `log`, indented; a sentence when there are none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 16_384))
            lines = file.read().decode(errors="replace").splitlines()[-count:]
    except FileNotFoundError:
        lines = []
    return "\n".join(f"    {line}" for line in lines) or "    (its log is empty)"
