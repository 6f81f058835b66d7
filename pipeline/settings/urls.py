"""The stores' URLs in the spellings that libraries want, and as people may see them."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

HIDDEN = "***"


def celery_broker_url(redis_url: str) -> str:
    """The same Redis in Celery's spelling.

    With TLS, its certificate is asked for and checked unless the URL says otherwise: Celery would
    take a `rediss://` that says nothing for one without.

    >>> celery_broker_url("unix:///run/v.sock?db=1"), celery_broker_url("redis://h:6379/0")
    ('redis+socket:///run/v.sock?virtual_host=1', 'redis://h:6379/0')
    >>> celery_broker_url("rediss://h:6379/0?ssl_ca_certs=/ca.pem")
    'rediss://h:6379/0?ssl_ca_certs=/ca.pem&ssl_cert_reqs=required'
    """
    parts = urlsplit(redis_url)
    query = dict(parse_qsl(parts.query))
    if parts.scheme == "rediss":
        query.setdefault("ssl_cert_reqs", "required")
        return urlunsplit(parts._replace(query=urlencode(query, safe="/")))
    if parts.scheme == "unix":
        user, password = (
            parts.username or "",
            parts.password or quote(query.pop("password", ""), safe=""),
        )
        user = user or quote(query.pop("username", ""), safe="")
        who = f"{user}:{password}@" if user or password else ""
        if "db" in query:
            query["virtual_host"] = query.pop("db")
        tail = f"?{urlencode(query, safe='/')}" if query else ""
        return f"redis+socket://{who}{parts.path}{tail}"
    return redis_url


def broker_tls(redis_url: str) -> dict[str, Any] | None:
    """How the broker is asked by TLS, for Flower, which does not read the URL's own words; None
    without TLS.

    >>> broker_tls("rediss://h:6379/0?ssl_ca_certs=/ca.pem&db=1"), broker_tls("redis://h")
    ({'ssl_ca_certs': '/ca.pem', 'ssl_cert_reqs': 'required'}, None)
    """
    parts = urlsplit(celery_broker_url(redis_url))
    if parts.scheme != "rediss":
        return None
    told: dict[str, Any] = {k: v for k, v in parse_qsl(parts.query) if k.startswith("ssl_")}
    if "ssl_check_hostname" in told:
        told["ssl_check_hostname"] = told["ssl_check_hostname"].lower() != "false"
    return told


def sqlalchemy_url(database_url: str) -> str:
    """The same Postgres in SQLAlchemy's spelling, with the psycopg 3 driver.

    >>> sqlalchemy_url("postgresql://u@h/d")
    'postgresql+psycopg://u@h/d'
    """
    scheme, rest = database_url.split("://", 1)
    return "postgresql+psycopg://" + rest if scheme in ("postgres", "postgresql") else database_url


def without_password(value: str) -> str:
    """`value`, fit for people's eyes when it is a URL.

    >>> without_password("redis://:s3cret@h/0"), without_password("unix:///s?db=0&password=x")
    ('redis://:***@h/0', 'unix:///s?db=0&password=***')
    >>> without_password("me:s3cret@h/0"), without_password("16")
    ('***', '16')
    """
    if "://" not in value:
        return HIDDEN if "@" in value else value
    try:
        parts = urlsplit(value)
        user, _, place = parts.netloc.rpartition("@")
        who = user if parts.password is None else f"{user.partition(':')[0]}:{HIDDEN}"
    except ValueError:
        return HIDDEN
    netloc = f"{who}@{place}" if user else place
    words = [
        f"{word.partition('=')[0]}={HIDDEN}" if "password" in word.partition("=")[0] else word
        for word in parts.query.split("&")
    ]
    query = "?" + "&".join(words) if parts.query else ""
    # by hand: urlunsplit writes unix:///s as unix:/s
    return f"{parts.scheme}://{netloc}{parts.path}{query}"
