"""Our own Valkey (or Redis): real, on a Unix socket only, safe under kill -9.

In: a locked `StateFolder`. Out: a URL. The data is HOME/valkey, an append-only file synced each
second: a power cut may take the last second, which the reconciler puts back from Postgres.
"""

from __future__ import annotations

import signal
import socket
import subprocess
from urllib.parse import quote

from workers.child import spawn, stop, wait_ready
from workers.leftovers import shut_down
from workers.server_binaries import SERVER_ENV, valkey_server
from workers.state_folder import StateFolder

STOP_WITHIN_S = 60.0


class Valkey:
    """One Valkey server on HOME/valkey."""

    name = "valkey"

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder
        self.data = folder.server_folder("valkey")
        self.socket = folder.sockets / "valkey.sock"
        self.log = folder.logs / "valkey.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it answers, in redis-py's form."""
        return f"unix://{quote(str(self.socket))}?db=0"

    def start(self) -> str:
        """Start it and wait until it has loaded its data; returns `url`.

        Raises `PartDown` with the last lines of its log when it does not come up.
        """
        wait_ready(self.name, self.launch(), self.log, self.is_ready)
        return self.url

    def launch(self) -> subprocess.Popen[bytes]:
        """Start it without waiting, after shutting down an older one on the same data."""
        program = valkey_server(self._folder)
        names = ["valkey-server", "redis-server"]
        shut_down(names, self.data, self.socket, [(signal.SIGTERM, STOP_WITHIN_S)])
        self.socket.unlink(missing_ok=True)
        options = {
            "--dir": self.data,
            "--unixsocket": self.socket,
            "--unixsocketperm": "700",
            "--port": "0",
            "--daemonize": "no",
            "--save": "",
            "--appendonly": "yes",
            "--appendfsync": "everysec",
            # Full memory must be an error somebody sees, never a job that vanished.
            "--maxmemory-policy": "noeviction",
        }
        self.process = spawn(
            [program, *(str(word) for pair in options.items() for word in pair)],
            self.log,
            env=SERVER_ENV,
            user=self._folder.server_user,
            death_signal=signal.SIGTERM,
            cwd=self.data,
        )
        return self.process

    def is_ready(self) -> bool:
        """Whether it answers commands; False while it still loads its data."""
        try:
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(1.0)
                line.connect(str(self.socket))
                line.sendall(b"PING\r\n")
                return line.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def stop(self) -> None:
        """End it, its file written and synced. Nothing when it does not run."""
        if self.process is not None:
            stop(self.process, (signal.SIGTERM, STOP_WITHIN_S))
