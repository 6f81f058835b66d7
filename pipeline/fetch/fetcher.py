"""One recording over HTTP: redirects, limits, and what went wrong in a sentence for its sender."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from urllib.parse import unquote, urljoin, urlsplit

import httpcore

from pipeline.clock import Clock, SystemClock
from pipeline.errors import BadRequest, FetchFailed, FetchInterrupted, TooLarge
from pipeline.fetch.addresses import Patience, PublicBackend
from pipeline.fetch.urls import checked_url, name_in_disposition, name_in_url, shown_url

REDIRECTS = 5
"""Followed at most; a recording's address is rarely behind more than two."""

SILENCE_S = 20.0
"""A server that says nothing for this long, at the beginning or in between, is given up."""

_TIMEOUTS = {"connect": 10.0, "read": SILENCE_S, "write": SILENCE_S, "pool": SILENCE_S}
_REDIRECT = frozenset({301, 302, 303, 307, 308})
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Fetched:
    """A recording on its way."""

    file_name: str | None
    """What its server, or else its URL, calls it."""
    chunks: Iterator[bytes]
    """Its bytes; raises what `Fetcher.open` raises."""


class Fetcher:
    """Fetches recordings; safe to use from several threads. Knows no proxy of the environment."""

    def __init__(self, *, timeout_s: float, private: bool, clock: Clock | None = None) -> None:
        """`timeout_s` is for all of one fetch; `private` lets it ask addresses of this network."""
        self._timeout_s, self._private = timeout_s, private
        self._clock = clock or SystemClock()
        self._tls = tls_context()

    @contextmanager
    def open(
        self, url: str, limit_bytes: int, stopping: Callable[[], bool] = lambda: False
    ) -> Iterator[Fetched]:
        """Ask for `url`; inside the context its bytes can be read once.

        Raises `FetchInterrupted` for what may go better later, `FetchFailed` for what will not,
        `TooLarge` when the server says it is, `LeaseLost` once `stopping` is true.
        """
        patience = Patience(self._clock, self._timeout_s, stopping)
        with telling(patience):
            for _ in range(REDIRECTS + 1):
                with self._ask(url, patience) as response:
                    if response.status not in _REDIRECT:
                        _check(response, limit_bytes)
                        yield Fetched(_name(response, url), _chunks(response, patience))
                        return
                    url = _next(url, response)
        raise FetchFailed(f"The URL was redirected more than {REDIRECTS} times.")

    @contextmanager
    def _ask(self, url: str, patience: Patience) -> Iterator[httpcore.Response]:
        backend = PublicBackend(patience, private=self._private)
        with (
            httpcore.ConnectionPool(ssl_context=self._tls, network_backend=backend) as pool,
            pool.stream(
                "GET", url, headers=headers_for(url), extensions={"timeout": _TIMEOUTS}
            ) as it,
        ):
            yield it


def tls_context() -> ssl.SSLContext:
    """Whose certificates hold: those of public authorities, and of the installation's own."""
    context = httpcore.default_ssl_context()
    context.load_default_certs()
    return context


def headers_for(url: str) -> list[tuple[bytes, bytes]]:
    """Who asks, and the name and password that stand in `url`."""
    headers = [
        (b"User-Agent", f"fairscribe/{version('fairscribe')}".encode()),
        (b"Accept", b"*/*"),
        (b"Accept-Encoding", b"identity"),
    ]
    userinfo = urlsplit(url).netloc.rpartition("@")[0]
    if userinfo:
        name, _, password = userinfo.partition(":")
        secret = b64encode(f"{unquote(name)}:{unquote(password)}".encode())
        headers.append((b"Authorization", b"Basic " + secret))
    return headers


def _check(response: httpcore.Response, limit_bytes: int) -> None:
    """Raise unless this answer is a recording in full, of a size that is taken."""
    status = response.status
    if status in _LATER:
        raise FetchInterrupted(f"The URL's server answered {status}.")
    if status not in (200, 203):
        raise FetchFailed(f"The URL's server answered {status}.")
    if header_of(response, b"content-encoding").lower() not in (b"", b"identity"):
        raise FetchFailed("The URL's server sent the recording compressed, which was not asked.")
    length = header_of(response, b"content-length")
    if length.isdigit() and int(length) > limit_bytes:
        raise TooLarge(f"The file is larger than {limit_bytes} bytes.")


def _next(url: str, response: httpcore.Response) -> str:
    """Where a redirect leads. The name and password in the URL before stay behind."""
    location = header_of(response, b"location").decode("utf-8", "replace").replace(" ", "%20")
    try:
        return checked_url(urljoin(shown_url(url), location))
    except (BadRequest, ValueError):
        raise FetchFailed("The URL was redirected to what cannot be fetched.") from None


def _name(response: httpcore.Response, url: str) -> str | None:
    return name_in_disposition(header_of(response, b"content-disposition")) or name_in_url(url)


def header_of(response: httpcore.Response, name: bytes) -> bytes:
    """The first header of this name (lower case); empty when there is none."""
    return next((value for key, value in response.headers if key.lower() == name), b"")


def _chunks(response: httpcore.Response, patience: Patience) -> Iterator[bytes]:
    with telling(patience):
        yield from response.iter_stream()


@contextmanager
def telling(patience: Patience) -> Iterator[None]:
    """Turn httpcore's errors to ours. What it says of hosts and ports stays in the chain."""
    try:
        yield
    except httpcore.TimeoutException as slow:
        if patience.is_over:
            raise patience.too_slow() from slow
        raise FetchInterrupted("The URL's server was silent for too long.") from slow
    except httpcore.ConnectError as error:
        # httpcore gives the socket's own error as an argument and clears the cause
        if any(isinstance(why, ssl.SSLCertVerificationError) for why in error.args):
            raise FetchFailed("The URL's server has no certificate that holds.") from error
        raise FetchInterrupted("The URL's server cannot be reached.") from error
    except (httpcore.NetworkError, httpcore.RemoteProtocolError) as error:
        raise FetchInterrupted("The connection to the URL's server broke.") from error
    except (httpcore.UnsupportedProtocol, httpcore.LocalProtocolError) as error:
        raise FetchFailed("The URL cannot be asked for.") from error
