"""Fetching over real sockets: what arrives and what is refused. No way into the house:
test_way_out.py.
"""

from __future__ import annotations

import datetime
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import FetchFailed, FetchInterrupted, LeaseLost, TooLarge
from pipeline.fetch.fetcher import Fetcher
from tests.web import Web, serving


@pytest.fixture(scope="module")
def fetcher() -> Fetcher:
    return Fetcher(timeout_s=10.0, private=True)


def get(fetcher: Fetcher, url: str, limit: int = 10**6) -> tuple[str | None, bytes]:
    with fetcher.open(url, limit) as found:
        return found.file_name, b"".join(found.chunks)


def test_a_recording_arrives_whole_under_the_name_its_server_gives(
    web: Web, fetcher: Fetcher
) -> None:
    body = bytes(range(256)) * 4000
    name = "attachment; filename*=UTF-8''Gespr%C3%A4ch%201.wav"
    url = web.page("/download?id=1", body, content_disposition=name)
    assert get(fetcher, url, 2 * 10**6) == ("Gespräch 1.wav", body)
    assert get(fetcher, web.page("/calls/a%20b.wav", b"x")) == ("a b.wav", b"x")
    assert get(fetcher, web.page("/", b"x"))[0] is None
    path, headers = web.asked[0]
    assert (path, headers["host"]) == ("/download?id=1", f"127.0.0.1:{web.port}")
    assert headers["accept-encoding"] == "identity"


def test_five_redirects_are_followed_and_a_sixth_is_not(web: Web, fetcher: Fetcher) -> None:
    web.page("/0.wav", b"sound")
    for n in range(6):
        web.page(f"/{n + 1}.wav", status=(301, 302, 303, 307, 308)[n % 5], location=f"{n}.wav")
    assert get(fetcher, web.url("/5.wav")) == ("0.wav", b"sound")
    with pytest.raises(FetchFailed, match="more than 5"):
        get(fetcher, web.url("/6.wav"))
    for location in ("file:///etc/passwd", "ftp://example.com/a", "http://", ""):
        web.page("/odd", status=302, location=location)
        with pytest.raises(FetchFailed):
            get(fetcher, web.url("/odd"))


def test_an_unknown_host_is_said_to_be_one(
    fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for errno, kind in ((socket.EAI_NONAME, FetchFailed), (socket.EAI_AGAIN, FetchInterrupted)):

        def unknown(*_: Any, _errno: int = errno, **__: Any) -> Any:
            raise socket.gaierror(_errno, "resolver.internal says no")

        monkeypatch.setattr(socket, "getaddrinfo", unknown)
        with pytest.raises(FetchFailed, match="host is not known") as refused:
            get(fetcher, "http://nowhere.test/a.wav")
        assert type(refused.value) is kind


@pytest.mark.parametrize("status", [204, 206, 304, 400, 401, 403, 404, 410, 451])
def test_a_status_that_stays_so_is_told_at_once(web: Web, fetcher: Fetcher, status: int) -> None:
    with pytest.raises(FetchFailed, match=str(status)) as refused:
        get(fetcher, web.page("/a", b"", status))
    assert type(refused.value) is FetchFailed


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_status_that_may_pass_is_told_as_one(web: Web, fetcher: Fetcher, status: int) -> None:
    with pytest.raises(FetchInterrupted, match=str(status)):
        get(fetcher, web.page("/a", b"busy", status))


def test_a_recording_that_breaks_off_is_not_taken_for_whole(web: Web, fetcher: Fetcher) -> None:
    url = web.page("/a", b"half", content_length="8")
    with pytest.raises(FetchInterrupted, match="broke"):
        get(fetcher, url)
    with pytest.raises(FetchInterrupted, match="cannot be reached"):
        get(fetcher, "http://127.0.0.1:1/a")


def test_a_recording_too_large_is_refused_before_it_is_read(web: Web, fetcher: Fetcher) -> None:
    with pytest.raises(TooLarge):
        get(fetcher, web.page("/a", b"", content_length="1001"), limit=1000)


def test_a_compressed_answer_is_refused(web: Web, fetcher: Fetcher) -> None:
    with pytest.raises(FetchFailed, match="compressed"):
        get(fetcher, web.page("/a", b"x", content_encoding="gzip"))


def test_a_server_that_drips_is_given_up_when_the_time_is_over(web: Web) -> None:
    begun_s = time.monotonic()
    with pytest.raises(FetchFailed, match=r"within 0\.5 seconds"):
        get(Fetcher(timeout_s=0.5, private=True), web.drip("/drip", 0.05))
    assert time.monotonic() - begun_s < 2


def test_a_fetch_nobody_waits_for_ends_at_the_next_byte(web: Web, fetcher: Fetcher) -> None:
    stop: list[bool] = []
    url = web.drip("/drip", 0.02)
    with fetcher.open(url, 10**6, lambda: bool(stop)) as found:
        assert next(found.chunks)
        stop.append(True)
        with pytest.raises(LeaseLost):
            list(found.chunks)


def test_a_proxy_of_the_environment_is_not_asked(
    web: Web, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert get(fetcher, web.page("/a", b"x")) == ("a", b"x")


def test_a_name_and_password_go_to_the_first_server_only(web: Web, fetcher: Fetcher) -> None:
    web.page("/end", b"x")
    url = web.page("/begin", status=302, location="/end").replace("//", "//us%40er:p%3Ass@")
    assert get(fetcher, url)[1] == b"x"
    first, second = (headers for _, headers in web.asked)
    assert first["authorization"] == "Basic dXNAZXI6cDpzcw=="  # us@er:p:ss
    assert "authorization" not in second


def test_a_certificate_counts_and_is_asked_for_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    chain = make_certificate(tmp_path, "calls.test")
    tls.load_cert_chain(chain)
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *a, **k: resolve("127.0.0.1" if host.endswith(".test") else host, *a, **k),
    )
    with serving(tls=tls) as web:
        web.page("/a", b"sound")
        named = f"https://calls.test:{web.port}/a"
        with pytest.raises(FetchFailed, match="certificate"):
            get(Fetcher(timeout_s=5.0, private=True), named)
        monkeypatch.setenv("SSL_CERT_FILE", str(chain))
        trusting = Fetcher(timeout_s=5.0, private=True)
        assert get(trusting, named) == ("a", b"sound")
        with pytest.raises(FetchFailed, match="certificate"):
            get(trusting, f"https://other.test:{web.port}/a")


def make_certificate(folder: Path, name: str) -> Path:
    """A key and a certificate for `name`, signed by nobody."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    chain = folder / "chain.pem"
    chain.write_bytes(key.private_bytes(pem, *plain) + certificate.public_bytes(pem))
    return chain
