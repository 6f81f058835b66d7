"""Requests that may be sent twice and are carried out once: what became of an Idempotency-Key.

Each tenant chooses its own: they are kept under `TENANT KEY`, and neither holds a space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select, update
from sqlalchemy.dialects.postgresql import insert

from pipeline.caller import Caller
from pipeline.errors import KeyReused, RequestInProgress
from pipeline.store.rows import ago, now
from pipeline.store.tables import submissions

CLAIM_S = 60.0
"""A request without an answer after this long is taken over by the next of its kind, seconds."""

KEPT_DAYS = 7
"""How long a key is remembered."""


@dataclass(frozen=True)
class Submitting:
    """A request that is ours to carry out."""

    key: str
    claimed_at: datetime
    """Names this claim of the key."""
    job_ids: tuple[str, ...]
    """For its recordings, in their order: those of the first try, whoever makes them."""


def kept_key(caller: Caller, key: str) -> str:
    """What an Idempotency-Key of this caller is kept under.

    >>> kept_key(Caller("1a", "acme", frozenset()), "tuesday")
    'acme tuesday'
    """
    return key if caller.tenant is None else f"{caller.tenant} {key}"


def claim(
    c: Connection,
    key: str,
    fingerprint: str,
    job_ids: Sequence[str],
    given_up: frozenset[datetime] = frozenset(),
) -> Submitting | dict[str, Any]:
    """Take a request in hand, or the answer it had before.

    `given_up`: claims that are known to have ended without an answer. Raises `KeyReused` when the
    key came with another `fingerprint`, `RequestInProgress` while somebody else is at it.
    """
    row = {"key": key, "fingerprint": fingerprint, "job_ids": list(job_ids)}
    fresh = insert(submissions).values(row).on_conflict_do_nothing()
    made = c.execute(fresh.returning(submissions.c.claimed_at)).scalar_one_or_none()
    if made is not None:
        return Submitting(key, made, tuple(job_ids))
    stale = submissions.c.claimed_at < ago(CLAIM_S)
    query = select(submissions, stale.label("stale")).where(submissions.c.key == key)
    known = c.execute(query.with_for_update()).first()
    if known is None:  # dropped by `tidy` in this very moment
        raise RequestInProgress
    if known.fingerprint != fingerprint:
        raise KeyReused
    if known.answer is not None:
        return dict(known.answer)
    if not known.stale and known.claimed_at not in given_up:
        raise RequestInProgress
    taken = update(submissions).where(submissions.c.key == key).values(claimed_at=now)
    claimed_at = c.execute(taken.returning(submissions.c.claimed_at)).scalar_one()
    return Submitting(key, claimed_at, tuple(known.job_ids))


def answered(c: Connection, ours: Submitting, answer: dict[str, Any]) -> None:
    """Keep the answer for the next time; the first one stays."""
    c.execute(
        update(submissions)
        .where(submissions.c.key == ours.key, submissions.c.answer.is_(None))
        .values(answer=answer)
    )


def give_up(c: Connection, ours: Submitting) -> None:
    """End our claim without an answer: the same request may come again at once."""
    long_ago = ago(2 * CLAIM_S)
    c.execute(
        update(submissions)
        .where(
            submissions.c.key == ours.key,
            submissions.c.claimed_at == ours.claimed_at,
            submissions.c.answer.is_(None),
        )
        .values(claimed_at=long_ago)
    )


def drop_old(c: Connection) -> None:
    """Forget keys older than `KEPT_DAYS`."""
    old = ago(KEPT_DAYS * 86_400)
    c.execute(submissions.delete().where(submissions.c.claimed_at < old))
