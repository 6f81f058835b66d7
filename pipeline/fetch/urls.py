"""URLs as callers give them: which are taken, what of them is shown, how their files are called."""

from __future__ import annotations

import ipaddress
import re
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from pipeline.errors import BadRequest

URL_LIMIT = 2000
"""Longest URL taken, characters."""

NAME_LIMIT = 255
"""Longest file name taken from a URL or its server, characters."""

_RESERVED = "/%:@!$&'()*+,;=~?"
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_EXTENDED = re.compile(r"filename\*\s*=\s*(utf-8|iso-8859-1)'[^']*'([^;\s]+)", re.IGNORECASE)
_PLAIN = re.compile(r'filename\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s]+))', re.IGNORECASE)


def checked_url(text: Any) -> str:
    """The URL in the spelling that is asked for: ASCII, without fragment.

    Raises `BadRequest` with a sentence for what is no http or https URL.

    >>> checked_url("https://example.com/Gespräch 1.wav".replace(" ", "%20"))
    'https://example.com/Gespr%C3%A4ch%201.wav'
    """
    if not isinstance(text, str) or not text:
        raise BadRequest("A URL is a text.")
    if len(text) > URL_LIMIT:
        raise BadRequest(f"A URL has at most {URL_LIMIT} characters, this one {len(text)}.")
    if re.search(r"[\x00-\x20\x7f-\xa0\ud800-\udfff]", text):
        raise BadRequest("The URL holds a space or a control character.")
    try:
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https"):
            raise BadRequest("Only http and https URLs are fetched.")
        netloc = _netloc(parts)
    except (ValueError, UnicodeError):
        raise BadRequest("The URL cannot be read: its host or port is malformed.") from None
    path, query = (quote(part, safe=_RESERVED) for part in (parts.path or "/", parts.query))
    return urlunsplit((parts.scheme, netloc, path, query, ""))


def _netloc(parts: SplitResult) -> str:
    """Userinfo, host and port in ASCII. Raises `ValueError`."""
    host = parts.hostname or ""
    if ":" in host:
        if "%" in host:
            raise ValueError(host)
        host = f"[{ipaddress.IPv6Address(host)}]"
    else:
        host = host if host.isascii() else host.encode("idna").decode("ascii")
        if not _HOST.fullmatch(host):
            raise ValueError(host)
    userinfo = quote(parts.netloc.rpartition("@")[0], safe=_RESERVED)
    port = "" if parts.port is None else f":{parts.port}"
    return f"{userinfo}@{host}{port}" if userinfo else host + port


def shown_url(url: str) -> str:
    """The URL without the name and password in it: what may be given back.

    >>> shown_url("https://user:secret@example.com/a.wav")
    'https://example.com/a.wav'
    """
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def name_in_url(url: str) -> str | None:
    """What the end of a URL's path calls the file; None when it ends in a slash.

    >>> name_in_url("https://example.com/calls/Gespr%C3%A4ch%201.wav?x=1")
    'Gespräch 1.wav'
    """
    return plain_name(unquote(urlsplit(url).path.rpartition("/")[2]))


def name_in_disposition(header: bytes) -> str | None:
    """What a Content-Disposition header (RFC 6266) calls the file; `filename*` goes before.

    >>> name_in_disposition(b"attachment; filename=a.wav; filename*=UTF-8''%e2%82%ac.wav")
    '€.wav'
    """
    try:
        text = header.decode("utf-8")
    except UnicodeDecodeError:
        text = header.decode("latin-1")
    if extended := _EXTENDED.search(text):
        return plain_name(unquote(extended[2], encoding=extended[1]))
    plain = _PLAIN.search(text)
    if plain is None:
        return None
    return plain_name(re.sub(r"\\(.)", r"\1", plain[1]) if plain[1] is not None else plain[2])


def plain_name(name: str) -> str | None:
    r"""A name and never a path: what stands after the last slash of either kind.

    >>> plain_name("..\\..\\etc/passwd"), plain_name("a/")
    ('passwd', None)
    """
    last = re.split(r"[/\\]", name)[-1]
    clean = re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", "", last).strip()[:NAME_LIMIT]
    return None if clean in ("", ".", "..") else clean
