"""A request that carries an Idempotency-Key is carried out once, however often it comes.

Its job ids are written down before the first job is made. So a request that was cut off, by a crash
of this process too, is taken over by the next of its kind: it makes the jobs that are missing,
under the same ids.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from pipeline.errors import BadRequest, PartDown
from pipeline.logs import log
from pipeline.parts import Parts
from pipeline.store import submissions
from pipeline.store.session import transaction

_given_up: deque[datetime] = deque(maxlen=1000)
"""Claims of this process that ended without an answer and could not say so: Postgres was away."""

Carried = tuple[dict[str, Any], bool]
"""An answer, and whether it is whole: one that is not may be asked for again."""


def checked_key(key: str) -> str:
    """The key; raises `BadRequest` for what cannot be one."""
    if not re.fullmatch(r"[\x21-\x7e]{1,200}", key):
        raise BadRequest("Idempotency-Key has 1 to 200 visible ASCII characters.")
    return key


def once(
    parts: Parts,
    key: str,
    fingerprint: str,
    job_ids: Sequence[str],
    carry_out: Callable[[Sequence[str]], Carried],
) -> tuple[dict[str, Any], bool]:
    """The answer of `carry_out(job ids)`, now or from the first time; and whether it is a replay.

    Raises `KeyReused` when the key came with another `fingerprint`, `RequestInProgress` while it is
    being carried out, and what `carry_out` raises: the key can then be used again at once.
    """
    with transaction(parts.store) as c:
        known = frozenset(_given_up)
        ours = submissions.claim(c, key, fingerprint, job_ids, known)
    if isinstance(ours, dict):
        return ours, True
    whole = False
    try:
        answer, whole = carry_out(ours.job_ids)
        if whole:
            _keep(parts, ours, answer)
        return answer, False
    finally:
        if not whole:
            _give_up(parts, ours)


def _keep(parts: Parts, ours: submissions.Submitting, answer: dict[str, Any]) -> None:
    """All jobs are made: an answer that cannot be kept is made again from the same ids."""
    try:
        with transaction(parts.store) as c:
            submissions.answered(c, ours, answer)
    except PartDown as down:
        log().warning("answer_not_kept", why=down.message)
        _give_up(parts, ours)


def _give_up(parts: Parts, ours: submissions.Submitting) -> None:
    try:
        with transaction(parts.store) as c:
            submissions.give_up(c, ours)
    except PartDown as down:
        _given_up.append(ours.claimed_at)
        log().warning("claim_not_given_up", why=down.message)
