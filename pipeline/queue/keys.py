"""Every Redis key: its name, type, content, and who writes it.

The keys of one queue share a hash tag, so that one script touches one cluster slot.
"""

from __future__ import annotations

SCORE_BASE = 10**13
"""score = bucket * SCORE_BASE + arrival in ms; below 2^53 for buckets to 899, until year 2286."""


def ready(queue: str) -> str:
    """ZSET: id of a waiting job -> score. Written by enqueue, claim, release, withdraw,
    retake.
    """
    return f"{{fairscribe:{queue}}}:ready"


def heads(queue: str) -> str:
    """ZSET: size bucket -> arrival of its oldest waiting job, ms, or an earlier moment: a bound.

    A claim compares these and looks into a bucket only when it would win. Written by enqueue and
    release (only ever lower) and by claim (as it is). Gone with `ready`, and rebuilt with it.
    """
    return f"{{fairscribe:{queue}}}:heads"


def lease(queue: str) -> str:
    """ZSET: id of a job in work -> end of its lease, ms of Redis TIME. Never also in ready."""
    return f"{{fairscribe:{queue}}}:lease"


def owner(queue: str) -> str:
    """HASH: id of a job in work -> token of the claim that holds it. None after a `seed`."""
    return f"{{fairscribe:{queue}}}:owner"


def epoch(queue: str) -> str:
    """STRING: written by a full audit. Absent: the index was lost and is not rebuilt yet."""
    return f"{{fairscribe:{queue}}}:epoch"


def policy(queue: str) -> str:
    """STRING: the policy in force, as `parse_policy` reads it. A copy of Postgres' newest row."""
    return f"{{fairscribe:{queue}}}:policy"


def answer(queue: str, worker: str) -> str:
    """STRING, kept a minute: a worker's last claim and what it got, for a claim sent twice."""
    return f"{{fairscribe:{queue}}}:answer:{worker}"


def speed(queue: str) -> str:
    """HASH: a worker's name -> JSON {speed, slots, at_ms}: see board.py. Written by each puller."""
    return f"{{fairscribe:{queue}}}:speed"


def speed_known(queue: str) -> str:
    """STRING: speed of one slot as last reported, for use after a start."""
    return f"{{fairscribe:{queue}}}:speed_known"


def ratio(queue: str) -> str:
    """ZSET: id of a waiting job -> its response ratio 1 + W/S. Written by beat, for people only."""
    return f"{{fairscribe:{queue}}}:ratio"


def ratio_as_of(queue: str) -> str:
    """STRING: when `ratio` was computed, ms of Postgres time. Both expire when beat stops."""
    return f"{{fairscribe:{queue}}}:ratio_as_of"


def bucket(caller: str) -> str:
    """STRING: when a caller's bucket of tokens is full again, us of Redis TIME. Expires then."""
    return f"{{fairscribe:rate:{caller}}}"


def score(bucket: int, arrival_ms: int) -> int:
    """A job's place: its bucket, then its arrival.

    >>> score(2, 1_700_000_000_000)
    21700000000000
    """
    return bucket * SCORE_BASE + arrival_ms


def from_score(value: float) -> tuple[int, int]:
    """(bucket, arrival_ms) of a score."""
    bucket, arrival_ms = divmod(int(value), SCORE_BASE)
    return bucket, arrival_ms
