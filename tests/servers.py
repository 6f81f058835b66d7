"""Real servers for tests, in folders that are gone afterwards.

As a program, `python -m tests.servers HOME [--orphan]`, it starts both servers, prints one line of
JSON and waits to be killed; with --orphan the servers are not told when it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from workers import child
from workers.postgres import Postgres
from workers.state_folder import StateFolder
from workers.valkey import Valkey


@contextlib.contextmanager
def throwaway_home() -> Iterator[Path]:
    """A folder the servers' user can enter, removed at the end.

    pytest's own are closed to everybody else, and root's servers run as somebody else.
    """
    home = Path(tempfile.mkdtemp(prefix="fairscribe-test-", dir=_quick_place()))
    home.chmod(0o711)
    try:
        yield home
    finally:
        shutil.rmtree(home)


def _quick_place() -> str | None:
    """Memory where there is plenty: tests kill processes, not the power supply, and sync a lot."""
    shm = "/dev/shm"
    if not os.access(shm, os.W_OK):
        return None
    found = os.statvfs(shm)
    roomy = found.f_bavail * found.f_frsize > 4 * 2**30
    return shm if roomy and not found.f_flag & os.ST_NOEXEC else None


def start_servers(tmp: Path) -> tuple[str, str, Callable[[], None]]:
    """Start Postgres (an empty database) and Valkey.

    They live in `tmp`, under root in a folder of their own (see `throwaway_home`). Returns
    (database_url, redis_url, stop); `stop()` ends both and removes what they wrote.
    """
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(throwaway_home()) if os.geteuid() == 0 else tmp / "servers"
        folder = stack.enter_context(StateFolder(home))
        postgres, valkey = Postgres(folder), Valkey(folder)
        stack.callback(postgres.stop)
        stack.callback(valkey.stop)
        return postgres.start(), valkey.start(), stack.pop_all().close


def is_alive(pid: int) -> bool:
    """Whether process `pid` runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


def wait_until(holds: Callable[[], bool], within_s: float, what: str) -> None:
    """Return once `holds()`; fails with `what` after `within_s` seconds."""
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s, f"not within {within_s:g} s: {what}"
        time.sleep(0.01)


def main() -> None:
    """Start both servers, say where they are, wait."""
    if "--orphan" in sys.argv:
        vars(child)["die_with_parent"] = lambda _signal: lambda: None
    folder = StateFolder(Path(sys.argv[1]))
    postgres, valkey = Postgres(folder), Valkey(folder)
    urls = [postgres.start(), valkey.start()]
    pids = [server.process.pid for server in (postgres, valkey) if server.process]
    print(json.dumps({"urls": urls, "pids": pids, "uid": os.geteuid()}), flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
