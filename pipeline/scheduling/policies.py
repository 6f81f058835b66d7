"""Who is next: every policy as one pair of numbers a size bucket.

    rank of a waiting job = u[bucket] * W + v[bucket]       W = time waited, ms, not below 0

The highest rank goes first; ties go to the smaller bucket, then the earlier arrival, then the
smaller id. Inside a bucket u and v are equal, so the oldest leads under every policy and only the
heads of buckets need comparing. Nothing stored depends on time or policy, so a policy is switched
while a million jobs wait.

    fcfs         u = 1, v = 0              longest wait first
    sjf          u = 0, v = -bucket        smallest work first
    hrrn(g)      u = S^-g, v = 0           g = 1 orders as the ratio 1 + W/S; more leans to sjf
    hrrn(g,K)    the same up to S = K, and u = K^(1-g) / S beyond: see `Policy.knee_s`
    aged(beta)   u = 1, v = -beta * S      nothing is overtaken by what came beta * (S - S') later
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from pipeline.scheduling.work import BUCKETS, S0, bucket_work_s

DEFAULT_PARAMETER = {"fcfs": None, "sjf": None, "hrrn": 1.0, "aged": 10.0}
"""Each policy's parameter when none is written; None where it takes none."""

PARAMETER_LIMIT = {"hrrn": 10.0, "aged": 1000.0}
"""A larger g or beta only makes sjf of it, and would in the end leave the range of a double."""

KNEE_LIMIT_S = 1e9
"""More work than any recording has."""


@dataclass(frozen=True)
class Policy:
    """A rule of order: its name and, for hrrn and aged, its parameter."""

    name: str
    parameter: float | None = None
    knee_s: float | None = None
    """Of hrrn with g > 1: work, reference slot seconds, beyond which the rank falls as S and no
    longer as S^g. Else the longest recordings alone would pay for everyone's median. None: nowhere.
    """

    def __str__(self) -> str:
        given = [f"{x:g}" for x in (self.parameter, self.knee_s) if x is not None]
        return f"{self.name}({','.join(given)})" if given else self.name


def parse_policy(text: str) -> Policy:
    """Read `fcfs`, `sjf`, `hrrn`, `hrrn(1.5)`, `hrrn(2.5,300)`, `aged(20)`.

    Raises ValueError with a sentence for anything else.

    >>> [str(parse_policy(text)) for text in ("hrrn", " AGED(2.50) ", "hrrn(2, 9)")]
    ['hrrn(1)', 'aged(2.5)', 'hrrn(2,9)']
    """
    written = re.fullmatch(r"\s*([a-z]+)\s*(?:\(([^(),]*)(?:,([^(),]*))?\))?\s*", text.lower())
    if not written or written[1] not in DEFAULT_PARAMETER:
        raise ValueError(f"{text!r} is not a policy: fcfs, sjf, hrrn(g), hrrn(g,K) or aged(beta)")
    name, parameter = written[1], DEFAULT_PARAMETER[written[1]]
    if written[2] is None:
        return Policy(name, parameter)
    if parameter is None:
        raise ValueError(f"{name} takes no parameter")
    number = _number(written[2], 0.0, PARAMETER_LIMIT[name])
    if written[3] is None:
        return Policy(name, number)
    if name != "hrrn" or number <= 1:
        raise ValueError(f"{text!r}: only hrrn with g above 1 takes a second parameter")
    return Policy(name, number, _number(written[3], S0, KNEE_LIMIT_S))


def _number(text: str, least: float, most: float) -> float:
    """Six digits of it: what is written of a policy reads back as the same policy."""
    try:
        if "_" in text or not text.isascii():  # which Python takes, and nobody means
            raise ValueError(text)
        number = float(f"{float(text):g}")
    except ValueError:
        raise ValueError(f"{text.strip()!r} is not a number") from None
    if math.isnan(number) or not least <= number <= most:
        raise ValueError(f"the parameter {text.strip()} is not in {least:g}..{most:g}")
    return number


@lru_cache(maxsize=64)
def pairs(policy: Policy) -> tuple[tuple[float, float], ...]:
    """(u, v) for every bucket, by bucket number."""
    return tuple(_pair(policy, bucket, bucket_work_s(bucket)) for bucket in range(BUCKETS))


def _pair(policy: Policy, bucket: int, work_s: float) -> tuple[float, float]:
    parameter = policy.parameter or 0.0
    if policy.name == "sjf":
        return 0.0, -float(bucket)
    if policy.name == "hrrn":
        beyond = max(1.0, work_s / (policy.knee_s or math.inf))
        return work_s**-parameter * beyond ** (parameter - 1), 0.0
    if policy.name == "aged":
        return 1.0, -parameter * work_s * 1000.0
    return 1.0, 0.0


@dataclass(frozen=True)
class Waiting:
    """A waiting job as ranking sees it."""

    job_id: str
    bucket: int
    arrival_ms: int


def rank(job: Waiting, table: Sequence[tuple[float, float]], now_ms: int) -> float:
    """How urgent `job` is at `now_ms` under the pairs of a policy; the highest goes first."""
    u, v = table[job.bucket]
    return u * max(0, now_ms - job.arrival_ms) + v


def order_key(
    job: Waiting, table: Sequence[tuple[float, float]], now_ms: int
) -> tuple[float, int, int, str]:
    """Sort key: the smallest goes first, ties settled as the module text says."""
    return (-rank(job, table, now_ms), job.bucket, job.arrival_ms, job.job_id)


def arrivals_ahead_ms(
    job: Waiting, bucket: int, table: Sequence[tuple[float, float]], now_ms: int
) -> int:
    """Jobs of another `bucket` that arrived before this moment (ms) go before `job`.

    A first guess is solved from u * W + v = rank; the exact moment is found around it with the very
    arithmetic of `rank`, so that a position agrees with the claims to the last bit: inside a bucket
    rank only falls with a later arrival.
    """
    own = order_key(job, table, now_ms)

    def goes_before(arrival_ms: int) -> bool:
        return order_key(Waiting("", bucket, arrival_ms), table, now_ms) < own

    u, v = table[bucket]
    if not u > 0:  # a rank that does not grow: all of the bucket or none
        return 2 * now_ms if goes_before(0) else 0
    guess = now_ms - int(min(now_ms, max(0.0, (-own[0] - v) / u)))
    before, after, step = guess, guess, 1
    while before > 0 and not goes_before(before - 1):
        before, step = max(0, before - step), step * 2
    step = 1
    while after < 2 * now_ms and goes_before(after):
        after, step = min(2 * now_ms, after + step), step * 2
    while before < after:
        middle = (before + after) // 2
        if goes_before(middle):
            before = middle + 1
        else:
            after = middle
    return before
