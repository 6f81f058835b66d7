"""Checks of Postgres and Redis: do they answer, are they as we need them, do clocks agree."""

from __future__ import annotations

import time
from typing import Any

import redis as redis_py
from redis.exceptions import OutOfMemoryError, ReadOnlyError, RedisError
from sqlalchemy import Engine, create_engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from pipeline.cli.checks.verdict import Here, Verdict, fine, problem
from pipeline.errors import PartDown
from pipeline.settings import sqlalchemy_url
from pipeline.store.schema import knows, revisions
from pipeline.store.session import clock_ms, transaction
from pipeline.store.webhooks import paused

WAIT_S = 3

OLDEST_REDIS = 7
"""Scripts that name their engine (`#!lua`) came with it."""

SKEW_S = 2.0
"""Clocks further apart than this make waits, leases and signatures hard to believe."""

START = "Start everything with `fairscribe up`"


def postgres(here: Here) -> Verdict:
    """It answers and has the tables of this version."""
    if here.database_url is None:
        said = "No Postgres is known: nothing is up here and FAIRSCRIBE_DATABASE_URL is not set."
        return problem("postgres", said, f"{START}, or set FAIRSCRIBE_DATABASE_URL.")
    try:
        with transaction(_store(here.database_url)) as connection:
            found, expected = revisions(connection)
            newer = found is not None and not knows(connection, found)
    except (PartDown, SQLAlchemyError, UnicodeError) as down:
        cure = f"{START}, or see that it runs and that FAIRSCRIBE_DATABASE_URL names it rightly."
        return problem("postgres", _sentence(down), cure)
    if newer:
        said = f"Postgres answers and has the tables of a newer version ({found}), which serve too."
        return fine("postgres", said)
    if found != expected:
        said = f"Postgres has the tables of version {found or 'none'}, expected {expected}."
        return problem("postgres", said, "Run `python -m workers.migrate`; `fairscribe up` does.")
    return fine("postgres", f"Postgres answers and has the tables of version {found}.")


def redis(here: Here) -> Verdict:
    """It answers, takes writes, forgets nothing by itself, and is new enough."""
    if here.redis_url is None:
        said = "No Redis is known: nothing is up here and FAIRSCRIBE_REDIS_URL is not set."
        return problem("redis", said, f"{START}, or set FAIRSCRIBE_REDIS_URL.")
    try:
        client = _client(here.redis_url)
        about: dict[str, Any] = client.info()
    except (RedisError, OSError, ValueError) as down:
        cure = f"{START}, or see that it runs and that FAIRSCRIBE_REDIS_URL names it rightly."
        return problem("redis", f"Redis does not answer: {_sentence(down)}", cure)
    if why := _why_no_writes(client):
        return why
    name = "Valkey" if "valkey_version" in about else "Redis"
    version = str(about.get("valkey_version") or about["redis_version"])
    if int(version.split(".")[0]) < OLDEST_REDIS:
        cure = f"Use Redis {OLDEST_REDIS} or newer, or Valkey."
        return problem("redis", f"Redis is {version}.", cure)
    evicts = about.get("maxmemory_policy", "noeviction")
    if evicts != "noeviction":
        said = f"Redis throws keys away when its memory is full (maxmemory-policy {evicts})."
        return problem(
            "redis", said, "Set `maxmemory-policy noeviction`: a lost key is a lost hint."
        )
    return fine("redis", f"{name} {version} answers, takes writes and evicts nothing.")


def _why_no_writes(client: redis_py.Redis) -> Verdict | None:
    try:
        client.set("fairscribe:doctor", "1", px=1000)
    except RedisError as refused:
        cure = "See the log of Redis for why it refuses."
        if isinstance(refused, OutOfMemoryError):
            cure = "Raise `maxmemory`: it is full, and must evict nothing."
        elif isinstance(refused, ReadOnlyError):
            cure = "Point FAIRSCRIBE_REDIS_URL to the master: this one only copies."
        elif str(refused).startswith("MISCONF"):
            cure = "Free disk space where Redis keeps its data: it cannot save and so refuses."
        return problem("redis", f"Redis takes no writes: {_sentence(refused)}", cure)
    return None


def clocks(here: Here) -> Verdict:
    """Postgres and Redis have the time of this machine, as far as they can be asked."""
    skews_s = {}
    if here.database_url is not None:
        try:
            with transaction(_store(here.database_url)) as connection:
                skews_s["Postgres"] = clock_ms(connection) / 1000 - time.time()
        except (PartDown, SQLAlchemyError, UnicodeError):
            pass  # told by its own check
    if here.redis_url is not None:
        try:
            seconds, micros = _client(here.redis_url).time()
            skews_s["Redis"] = seconds + micros / 1e6 - time.time()
        except (RedisError, OSError, ValueError):
            pass
    for name, skew_s in skews_s.items():
        if abs(skew_s) > SKEW_S:
            way = "ahead of" if skew_s > 0 else "behind"
            said = f"The clock of {name} is {abs(skew_s):.0f} s {way} this machine's."
            return problem("clocks", said, "Let NTP set the clocks of all machines.")
    if not skews_s:
        return fine("clocks", "There is no other clock to compare with.")
    return fine("clocks", f"The clocks of this machine and of {', '.join(skews_s)} agree.")


def webhooks(here: Here) -> Verdict:
    """None was paused because nothing came through."""
    if here.database_url is None:
        return fine("webhooks", "No Postgres is known, so no webhook is.")
    try:
        with transaction(_store(here.database_url)) as connection:
            found = paused(connection)
    except (PartDown, SQLAlchemyError, UnicodeError):
        return fine("webhooks", "They could not be looked at; postgres tells why.")
    if not found:
        return fine("webhooks", "No webhook is paused.")
    first = found[0]
    said = f"{len(found)} paused, such as {first.id}: {first.paused_reason or 'by hand'}"
    cure = f"See that its receiver works, then `fairscribe webhook resume {first.id}`."
    return problem("webhooks", f"Webhooks are told nothing: {said}", cure)


def _store(database_url: str) -> Engine:
    return create_engine(
        sqlalchemy_url(database_url), poolclass=NullPool, connect_args={"connect_timeout": WAIT_S}
    )


def _client(redis_url: str) -> redis_py.Redis:
    return redis_py.Redis.from_url(redis_url, socket_timeout=WAIT_S, socket_connect_timeout=WAIT_S)


def _sentence(error: Exception) -> str:
    """The first line of what a driver says."""
    text = getattr(error, "message", None) or str(error) or type(error).__name__
    return str(text).strip().splitlines()[0].rstrip(".") + "."
