"""Addresses that parts listen on: who reaches them, and by which URL."""

from __future__ import annotations

import ipaddress

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""What listens on all addresses of its machine, and where the machine itself finds it."""


def is_loopback(host: str) -> bool:
    """Whether `host` can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def nearby(host: str) -> str:
    """An address of this machine at which something that listens on `host` is reached."""
    return _EVERYWHERE.get(host, host)


def address(host: str, port: int) -> str:
    """The URL at which this machine reaches what listens on `host` and `port`.

    >>> address("0.0.0.0", 8000), address("fe80::1", 8000)
    ('http://127.0.0.1:8000', 'http://[fe80::1]:8000')
    """
    near = nearby(host)
    return f"http://[{near}]:{port}" if ":" in near else f"http://{near}:{port}"
