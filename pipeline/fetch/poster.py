"""One message to a caller's webhook: sent to public addresses only, and what it answered.

Of the answer only the status counts. A redirect is an answer like any other: where it leads,
nobody agreed to be sent this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import httpcore

from pipeline.clock import Clock, SystemClock
from pipeline.errors import FetchFailed
from pipeline.fetch.addresses import Patience, PublicBackend
from pipeline.fetch.fetcher import header_of, headers_for, telling, tls_context

LONGEST_S = 1e9
"""The longest pause that is believed, seconds."""

ANSWER_LIMIT = 64 * 1024
"""Bytes of an answer that are read, and thrown away, so that its sender may end it in peace."""


@dataclass(frozen=True)
class Answer:
    """What a receiver said."""

    status: int
    retry_after_s: float | None
    """When it wants to be asked again, seconds from now; None where it did not say."""


class Poster:
    """Sends messages; safe to use from several threads. Knows no proxy of the environment."""

    def __init__(self, *, timeout_s: float, private: bool, clock: Clock | None = None) -> None:
        """`timeout_s` is for all of one exchange; `private` lets it ask addresses of this
        network.
        """
        self._timeout_s, self._private = timeout_s, private
        self._clock = clock or SystemClock()
        self._tls = tls_context()

    def post(
        self,
        url: str,
        body: bytes,
        headers: Iterable[tuple[str, str]],
        stopping: Callable[[], bool] = lambda: False,
    ) -> Answer:
        """Send `body`, JSON, to `url`.

        Raises `FetchFailed` when it cannot be sent or is not answered in time, with a sentence
        that holds nothing the receiver said; `LeaseLost` once `stopping` is true.
        """
        patience = Patience(self._clock, self._timeout_s, stopping, "An answer")
        said = [
            *headers_for(url),
            (b"Content-Type", b"application/json"),
            *((name.encode("ascii"), value.encode("ascii")) for name, value in headers),
        ]
        backend = PublicBackend(patience, private=self._private)
        with (
            telling(patience),
            httpcore.ConnectionPool(ssl_context=self._tls, network_backend=backend) as pool,
            pool.stream("POST", url, headers=said, content=body) as response,
        ):
            answer = Answer(response.status, _retry_after_s(response))
            _read_out(response)
            return answer


def _read_out(response: httpcore.Response) -> None:
    """Read the answer as far as it is read; as it came, for unpacking it could fill the memory."""
    left = ANSWER_LIMIT
    try:
        for chunk in response.iter_stream():
            left -= len(chunk)
            if left <= 0:
                return
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, FetchFailed):
        pass  # its status is known; how it goes on or breaks off changes nothing


def _retry_after_s(response: httpcore.Response) -> float | None:
    said = header_of(response, b"retry-after").strip()
    return min(float(said), LONGEST_S) if said.isdigit() else None  # bytes: digits are ASCII
