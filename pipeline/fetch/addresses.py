"""Which addresses may be asked, and the connection to exactly those.

A caller's URL, of a recording or of a webhook, must not reach what only this machine can: its own
ports, the network behind it, a cloud's metadata service. So a name is resolved here, every address
it has is judged, and the connection is made to one of the addresses judged: a name that resolves
differently the next moment changes nothing. The name itself stays what TLS asks the certificate
for.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from typing import Any

import httpcore

from pipeline.clock import Clock
from pipeline.errors import FetchFailed, FetchInterrupted, LeaseLost

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NEVER = [
    ipaddress.ip_network(network)
    for network in ("::/96", "64:ff9b:1::/48", "192.88.99.0/24", "240.0.0.0/4")
]
"""Not global, whatever Python's version says: IPv4-compatible, a network's own NAT64, relays."""

_UNICAST = ipaddress.ip_network("2000::/3")
"""All that is given out of IPv6; what else may be routed somewhere leads into some network."""


def is_public(address: Address) -> bool:
    """Whether an address belongs to the public internet, looking into IPv4 carried in IPv6.

    >>> [is_public(ipaddress.ip_address(a)) for a in ("8.8.8.8", "10.0.0.1", "::ffff:10.0.0.1")]
    [True, False, False]
    """
    if isinstance(address, ipaddress.IPv6Address):
        inside = [address.ipv4_mapped, address.sixtofour]
        if address in _NAT64:
            inside.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        carried = [one for one in inside if one is not None]
        if carried:
            return all(is_public(one) for one in carried)
        if address not in _UNICAST:
            return False
    if any(address in network for network in _NEVER):
        return False
    return address.is_global and not address.is_multicast


def written_address(host: str) -> Address | None:
    """The address a URL's host is, in any of the ways the system takes one; None for a name.

    >>> written_address("0x7f.1"), written_address("example.com")
    (IPv4Address('127.0.0.1'), None)
    """
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


class Patience:
    """How long one exchange may still take."""

    def __init__(
        self,
        clock: Clock,
        limit_s: float,
        stopping: Callable[[], bool],
        awaited: str = "The recording",
    ) -> None:
        """`awaited`: what was not there in time, for the error that says so."""
        self._clock, self._limit_s, self._stopping = clock, limit_s, stopping
        self._awaited = awaited
        self._end_s = clock.monotonic_s() + limit_s

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self._clock.monotonic_s() >= self._end_s

    def at_most(self, timeout_s: float | None) -> float:
        """`timeout_s`, or what is left when that is less.

        Raises `FetchFailed` when nothing is left, `LeaseLost` once nobody waits for it.
        """
        if self._stopping():
            raise LeaseLost
        if self.is_over:
            raise self.too_slow()
        left_s = self._end_s - self._clock.monotonic_s()
        return left_s if timeout_s is None else min(timeout_s, left_s)

    def too_slow(self) -> FetchFailed:
        """The error that says so."""
        return FetchFailed(f"{self._awaited} was not there within {self._limit_s:g} seconds.")


class PublicBackend(httpcore.NetworkBackend):
    """Connections of one exchange: to judged addresses only, all within its patience."""

    def __init__(self, patience: Patience, *, private: bool) -> None:
        """`private`: every address may be asked."""
        self._patience, self._private = patience, private
        self._plain = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address of `host` that answers.

        Raises `FetchFailed` when one of its addresses is not public, httpcore's errors otherwise.
        """
        addresses = self._judged(host, port)
        for last, address in enumerate(addresses, 1 - len(addresses)):
            try:
                stream = self._plain.connect_tcp(address, port, self._patience.at_most(timeout))
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if last == 0:
                    raise
            else:
                return _Timed(stream, self._patience)
        raise FetchFailed("The URL's host has no address.")

    def _judged(self, host: str, port: int) -> list[str]:
        found = _resolve(host, port, self._patience.at_most(30.0))
        refused = [one for one in found if not is_public(ipaddress.ip_address(one))]
        if refused and not self._private:
            # not which: a caller must not learn how names resolve in here
            raise FetchFailed("The URL leads to an address that is not public.")
        return found


class _Timed(httpcore.NetworkStream):
    """A stream whose every wait ends with the fetch's patience."""

    def __init__(self, stream: httpcore.NetworkStream, patience: Patience) -> None:
        self._stream, self._patience = stream, patience

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._patience.at_most(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._patience.at_most(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left_s = self._patience.at_most(timeout)
        return _Timed(self._stream.start_tls(ssl_context, server_hostname, left_s), self._patience)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _resolve(host: str, port: int, timeout_s: float) -> list[str]:
    """Every address of `host`, in the order to try them. Raises `FetchFailed`.

    In a thread of its own: the system's resolver knows no timeout.
    """
    answer: list[Any] = []

    def ask() -> None:
        try:
            answer.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            answer.append(error)

    asking = threading.Thread(target=ask, name="resolve", daemon=True)
    asking.start()
    asking.join(timeout_s)
    if not answer or isinstance(answer[0], Exception):
        later = not answer or getattr(answer[0], "errno", None) == socket.EAI_AGAIN
        kind = FetchInterrupted if later else FetchFailed
        raise kind("The URL's host is not known.")
    return list(dict.fromkeys(str(found[4][0]) for found in answer))
