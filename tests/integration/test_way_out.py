"""No way into our own house: what callers' URLs may reach, when we fetch and when we tell."""

from __future__ import annotations

import ipaddress
import socket
import time
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from pipeline.errors import FetchFailed, LeaseLost
from pipeline.fetch import addresses
from pipeline.fetch.fetcher import Fetcher
from pipeline.fetch.poster import ANSWER_LIMIT, Answer, Poster
from tests.web import Web

Ask = Callable[[str], object]


FETCHER = Fetcher(timeout_s=5.0, private=False)
POSTER = Poster(timeout_s=5.0, private=False)


def fetch(url: str) -> object:
    with FETCHER.open(url, 10**6) as found:
        return b"".join(found.chunks)


def post(url: str) -> object:
    return POSTER.post(url, b"{}", [])


both_ways = pytest.mark.parametrize("ask", [fetch, post])


@pytest.fixture
def one_public_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.1 stands for a public address; every other is judged as ever."""
    judge = addresses.is_public
    public = ipaddress.ip_address("127.0.0.1")
    monkeypatch.setattr(addresses, "is_public", lambda a: a == public or judge(a))


def resolving(monkeypatch: pytest.MonkeyPatch, name: str, *answers: list[str]) -> list[str]:
    """Make `name` resolve to each of `answers` in turn, the last for ever; who asked so far."""
    resolve, asked = socket.getaddrinfo, []

    def answer(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        if host != name:
            return resolve(host, port, *rest, **more)
        asked.append(host)
        found = answers[min(len(asked), len(answers)) - 1]
        return [one for address in found for one in resolve(address, port, *rest, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    return asked


INSIDE = [
    *("127.0.0.1", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "localhost", "0.0.0.0", "0"),
    *("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]"),
    *("[64:ff9b::7f00:1]", "[64:ff9b:1::1]", "[2002:7f00:1::1]", "[2002:0a00:0001::]"),
    *("[::ffff:0:127.0.0.1]", "[fe80::1]", "[fec0::1]", "[fd00:ec2::254]", "[ff02::1]"),
    *("[2001:db8::1]", "[2001:0:7f00:1::]", "[100::1]", "[5f00::1]"),
    *("10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "100.100.100.200"),
    *("192.0.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
]
"""Hosts of our own, however they are written."""


@both_ways
@pytest.mark.parametrize("host", INSIDE)
def test_nothing_inside_is_asked_however_it_is_written(ask: Ask, web: Web, host: str) -> None:
    url = web.page("/secret", b"secret").replace("127.0.0.1", host)
    with pytest.raises(FetchFailed, match="not public"):
        ask(url)
    assert web.asked == []


@both_ways
@pytest.mark.parametrize(
    "found",
    [["127.0.0.1"], ["169.254.169.254"], ["::1"], ["93.184.216.34", "10.0.0.1"], ["fd00::1"]],
)
def test_a_name_that_leads_inside_is_refused_also_when_it_leads_outside_too(
    ask: Ask, web: Web, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolving(monkeypatch, "inside.test", found)
    with pytest.raises(FetchFailed, match="not public"):
        ask(web.url("/", "inside.test"))
    assert web.asked == []


@both_ways
@pytest.mark.usefixtures("one_public_address")
def test_a_name_that_changes_between_the_look_and_the_call_changes_nothing(
    ask: Ask, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = resolving(monkeypatch, "rebind.test", ["127.0.0.1"], ["127.0.0.2"])
    web.page("/a.wav", b"sound")
    ask(web.url("/a.wav", "rebind.test"))
    assert asked == ["rebind.test"]
    assert [headers["host"] for _, headers in web.asked] == [f"rebind.test:{web.port}"]
    with pytest.raises(FetchFailed, match="not public"):
        ask(web.url("/a.wav", "rebind.test"))  # resolved anew, and judged anew


@both_ways
@pytest.mark.usefixtures("one_public_address")
@pytest.mark.parametrize("inside", ["127.0.0.2", "[::1]", "2130706434", "[::ffff:127.0.0.2]"])
def test_a_redirect_does_not_lead_inside(ask: Ask, web: Web, inside: str) -> None:
    web.page("/secret", b"secret")
    lure = web.page("/lure", status=307, location=f"http://{inside}:{web.port}/secret")
    if ask is fetch:
        with pytest.raises(FetchFailed, match="not public"):
            ask(lure)
    else:
        assert ask(lure) == Answer(307, None)
    assert {path for path, _ in web.asked} == {"/lure"}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_of_a_message_is_followed(web: Web, status: int) -> None:
    web.page("/there")
    here = web.page("/here", status=status, location=web.url("/there"))
    assert trusting().post(here, b"{}", []).status == status
    assert [path for path, _, _ in web.sent] == ["/here"]


# -- what a receiver may do to us -----------------------------------------------------------


def trusting(timeout_s: float = 5.0) -> Poster:
    return Poster(timeout_s=timeout_s, private=True)


def test_a_message_arrives_as_it_is_and_its_status_comes_back(web: Web) -> None:
    url = web.page("/hook?a=b", b"thanks", 503, retry_after="7").replace("//", "//me:s%3At@")
    answer = trusting().post(url, b'{"a": 1}', [("webhook-id", "d1")])
    assert answer == Answer(503, 7.0)
    ((path, headers, body),) = web.sent
    assert (path, body, headers["webhook-id"]) == ("/hook?a=b", b'{"a": 1}', "d1")
    assert headers["content-type"] == "application/json"
    assert headers["authorization"] == "Basic bWU6czp0"  # me:s:t
    assert headers["user-agent"].startswith("fairscribe/")


@pytest.mark.parametrize("said", ["soon", "-1", "1e9", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_a_retry_after_that_is_no_number_of_seconds_says_nothing(web: Web, said: str) -> None:
    assert trusting().post(web.page("/a", b"", 429, retry_after=said), b"{}", []) == Answer(
        429, None
    )


def test_an_answer_without_end_is_read_for_a_while_only(web: Web) -> None:
    written = 0

    def endless(request: BaseHTTPRequestHandler) -> None:
        nonlocal written
        request.send_response(200)
        request.end_headers()
        while True:
            written += request.wfile.write(bytes(4096))

    web.pages["/endless"] = endless
    begun_s = time.monotonic()
    assert trusting(20.0).post(web.url("/endless"), b"{}", []).status == 200
    assert time.monotonic() - begun_s < 5
    assert written < 100 * ANSWER_LIMIT  # what the sockets between hold, and no more


def test_a_packed_answer_is_not_unpacked(web: Web) -> None:
    bomb = zlib.compress(bytes(50_000_000), 9, 31)
    assert len(bomb) < ANSWER_LIMIT
    assert trusting().post(web.page("/a", bomb, content_encoding="gzip"), b"{}", []).status == 200
    assert web.sent[0][1]["accept-encoding"] == "identity"


def test_a_receiver_that_says_nothing_is_given_up_when_the_time_is_over(web: Web) -> None:
    web.pages["/silent"] = lambda request: time.sleep(3)

    def drips(request: BaseHTTPRequestHandler) -> None:
        while True:  # a status line that never ends
            request.wfile.write(b"H")
            time.sleep(0.05)

    web.pages["/drips"] = drips
    for path in ("/silent", "/drips"):
        begun_s = time.monotonic()
        with pytest.raises(FetchFailed, match=r"An answer was not there within 0\.3 seconds|broke"):
            trusting(0.3).post(web.url(path), b"{}", [])
        assert time.monotonic() - begun_s < 2


def test_an_answer_that_goes_on_too_long_counts_by_its_status(web: Web) -> None:
    begun_s = time.monotonic()
    assert trusting(0.5).post(web.drip("/drip", 0.05), b"{}", []).status == 200
    assert time.monotonic() - begun_s < 2


def test_headers_as_long_as_a_book_are_no_answer(web: Web) -> None:
    url = web.page("/a", b"", x_long="x" * 300_000)
    with pytest.raises(FetchFailed):
        trusting().post(url, b"{}", [])


def test_nobody_waits_for_a_message_once_the_worker_ends(web: Web) -> None:
    with pytest.raises(LeaseLost):
        trusting().post(web.page("/a"), b"{}", [], lambda: True)
    assert web.sent == []


def test_what_is_no_header_is_not_sent(web: Web) -> None:
    with pytest.raises(FetchFailed, match="cannot be asked"):
        trusting().post(web.page("/a"), b"{}", [("webhook-id", "d1\r\nX-Evil: 1")])
    assert web.sent == []
