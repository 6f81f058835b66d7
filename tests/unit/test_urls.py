"""URLs of callers: taken or refused, shown without secrets, and no name of theirs is a path."""

from __future__ import annotations

import ipaddress

import pytest

from pipeline.errors import BadRequest
from pipeline.fetch.addresses import is_public
from pipeline.fetch.urls import checked_url, name_in_disposition, name_in_url, shown_url


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("http://example.com", "http://example.com/"),
        ("HTTPS://Example.com:8443/a.wav#t=3", "https://example.com:8443/a.wav"),
        ("https://example.com/a%20b.wav?sig=%2F+x", "https://example.com/a%20b.wav?sig=%2F+x"),
        ("https://bücher.example/é.wav?q=ü", "https://xn--bcher-kva.example/%C3%A9.wav?q=%C3%BC"),
        ("http://u:p%40ss@example.com/", "http://u:p%40ss@example.com/"),
        ("http://[2001:DB8::1]:80/a", "http://[2001:db8::1]:80/a"),
        ("http://127.1/a", "http://127.1/a"),  # judged when it is resolved
    ],
)
def test_a_url_is_asked_for_in_ascii_and_as_it_was_meant(given: str, asked: str) -> None:
    assert checked_url(given) == asked
    assert checked_url(asked) == asked


@pytest.mark.parametrize(
    "given",
    [
        *("", " ", "example.com/a.wav", "/a.wav", "ftp://example.com/a", "file:///etc/passwd"),
        *("gopher://example.com", "javascript:alert(1)", "http://", "http:///a", "http://:80/"),
        *("http://example.com:99999/", "http://example.com:port/", "http://[::1/", "http://a b/"),
        *("http://example.com/a\nb", "http://example.com/\0", "http://exa\tmple.com/", "http://-/"),
        *("http://[fe80::1%25eth0]/", "http://ex\\ample.com/", "http://example.com/\ud800"),
        *("http://" + "a" * 70 + "é.example/", "https://example.com/" + "a" * 2000),
        *(None, 3, ["http://example.com"], b"http://example.com"),
    ],
)
def test_what_is_no_url_to_fetch_is_refused_in_a_sentence(given: object) -> None:
    with pytest.raises(BadRequest) as refused:
        checked_url(given)
    assert refused.value.message.endswith(".")


def test_a_password_is_never_shown() -> None:
    assert shown_url("https://u:secret@example.com:1/a?b=@c") == "https://example.com:1/a?b=@c"
    assert shown_url("https://example.com/@a") == "https://example.com/@a"


@pytest.mark.parametrize(
    ("header", "name"),
    [
        (b'attachment; filename="call 1.wav"', "call 1.wav"),
        (b"attachment; filename=call.wav", "call.wav"),
        (rb'attachment; filename="say \"hi\".wav"', 'say "hi".wav'),
        (b"attachment; filename=\"x.wav\"; filename*=UTF-8''%E4%BC%9A.wav", "会.wav"),
        (b"attachment; filename*=iso-8859-1'de'Gespr%E4ch.wav", "Gespräch.wav"),
        ('attachment; filename="Gespräch.wav"'.encode(), "Gespräch.wav"),
        (b'attachment; filename="Gespr\xe4ch.wav"', "Gespräch.wav"),
        (b'attachment; filename="../../etc/passwd"', "passwd"),
        (b"attachment; filename*=UTF-8''..%2F..%2Fetc%2Fshadow", "shadow"),
        (rb'attachment; filename="C:\\dir\\a.wav"', "a.wav"),
        (b"attachment; filename*=UTF-8''a%00%0Ab.wav", "ab.wav"),
        (b'attachment; filename=".."', None),
        (b'attachment; filename=""', None),
        (b"attachment", None),
        (b"", None),
    ],
)
def test_a_server_may_name_the_file_but_never_a_path(header: bytes, name: str | None) -> None:
    assert name_in_disposition(header) == name


def test_the_end_of_a_path_names_the_file_where_the_server_does_not() -> None:
    assert name_in_url("https://example.com/a/b%2F..%2Fcall.wav?x=/y") == "call.wav"
    assert name_in_url("https://example.com/") is None
    assert len(name_in_url("https://example.com/" + "n" * 1000) or "") == 255


@pytest.mark.parametrize(
    ("address", "public"),
    [
        *(("8.8.8.8", True), ("2606:4700::1111", True), ("::ffff:8.8.8.8", True)),
        *(("64:ff9b::808:808", True), ("2002:808:808::1", True)),
        *(("127.0.0.1", False), ("10.1.2.3", False), ("172.16.0.1", False), ("192.168.1.1", False)),
        *(("169.254.169.254", False), ("100.64.0.1", False), ("0.0.0.0", False)),
        *(("224.0.0.1", False), ("255.255.255.255", False), ("240.0.0.1", False)),
        *(("192.0.2.1", False), ("198.18.0.1", False), ("192.88.99.1", False)),
        *(("::1", False), ("::", False), ("fe80::1", False), ("fc00::1", False)),
        *(("fec0::1", False), ("ff02::1", False), ("2001:db8::1", False), ("::7f00:1", False)),
        *(("::ffff:127.0.0.1", False), ("::ffff:10.0.0.1", False), ("::ffff:169.254.1.1", False)),
        *(("64:ff9b::7f00:1", False), ("64:ff9b::a9fe:a9fe", False), ("64:ff9b:1::808:808", False)),
        *(("2002:7f00:1::", False), ("2002:a00:1::1", False), ("2001:0:808:808::1", False)),
    ],
)
def test_only_addresses_of_the_public_internet_are_public(address: str, public: bool) -> None:
    assert is_public(ipaddress.ip_address(address)) is public
