"""Where parts listen: ports that are free, whether somebody answers there."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Callable

from pipeline.errors import BadSetting
from pipeline.settings import nearby


def take_ports(**wanted: tuple[str, int]) -> dict[str, int]:
    """The port to use for each setting's (host, port): the one wanted, for 0 one that is free.

    Raises `BadSetting` for one that is taken: its part would die in a loop, or we would take the
    stranger's answer for its own.
    """
    ports = {}
    with contextlib.ExitStack() as held:  # all at once: two free ones must differ
        for name, (host, port) in wanted.items():
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            line = held.enter_context(socket.socket(family))
            line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                line.bind((host, port))
            except OSError as error:
                raise BadSetting(
                    f"FAIRSCRIBE_{name.upper()}={port}: expected a port we can listen on at "
                    f"{host} ({error.strerror or error}); 0 takes a free one"
                ) from error
            ports[name] = int(line.getsockname()[1])
    return ports


def answers_health(host: str, port: int) -> Callable[[], bool]:
    """Asks `GET /v1/health`: true for a 200."""

    def answers() -> bool:
        line = http.client.HTTPConnection(nearby(host), port, timeout=1.0)
        try:
            line.request("GET", "/v1/health")
            return line.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            line.close()

    return answers


def answers_port(host: str, port: int) -> Callable[[], bool]:
    """Asks whether somebody accepts connections there."""

    def answers() -> bool:
        try:
            socket.create_connection((nearby(host), port), timeout=1.0).close()
        except OSError:
            return False
        return True

    return answers
