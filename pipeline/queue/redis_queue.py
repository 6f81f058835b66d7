"""One queue in Redis: each method is one script of `lua/`, each answer a value or a named error.

Redis TIME is the only lease clock. Scripts are safe to send twice. Every method raises `PartDown`
when Redis does not answer; nothing is lost by that, because Postgres knows every job.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, cast

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from pipeline.errors import PartDown
from pipeline.queue import keys
from pipeline.queue.board import Board
from pipeline.queue.order import Order
from pipeline.queue.outage import redis_errors
from pipeline.scheduling.policies import Policy, Waiting, pairs, parse_policy
from pipeline.scheduling.work import bucket_windows

TAKEOVER_S = 10.0
"""How long a reaper may take to settle the leases it took over, seconds."""

SCRIPTS = ("enqueue", "claim", "renew", "complete", "release", "withdraw", "reap", "seed")

RENEWED, REASSERTED, LOST = 1, 2, 0
"""Answers of `renew`."""


def connect(redis_url: str) -> redis.Redis:
    """A client that gives up after about 3 s rather than hang: callers tick again anyway."""
    return redis.Redis.from_url(
        redis_url,
        decode_responses=True,
        socket_timeout=3.0,
        socket_connect_timeout=3.0,
        health_check_interval=10,
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), retries=2),
    )


@dataclass(frozen=True)
class Claimed:
    """A job taken from the queue; it counts only after Postgres granted it."""

    job_id: str
    bucket: int
    arrival_ms: int
    token: str
    """Names this claim; renew, complete and release hold only under it."""


@dataclass(frozen=True)
class Claim:
    """The answer to a claim."""

    jobs: tuple[Claimed, ...]
    now_ms: int
    """Postgres time at the moment of the claim."""
    index_lost: bool
    """True: Redis has forgotten the queue and is not rebuilt yet; empty does not mean no work."""


@dataclass(frozen=True)
class Floor:
    """What a claimed job must outrank: a job in hand, or the head of the next stage."""

    bucket: int
    arrival_ms: int


@dataclass(frozen=True)
class Identity:
    """What tells one life of Redis from another."""

    run_id: str
    replication_id: str


class RedisQueue:
    """The queue of one stage. Safe to use from several threads."""

    def __init__(self, client: redis.Redis, name: str, *, lease_s: float = 15.0) -> None:
        self.name = name
        self.lease_ms = int(lease_s * 1000)
        self.worker = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self.clock_offset_ms = 0
        """Postgres time minus Redis TIME; kept up to date by whoever reconciles."""
        self._redis = client
        self._numbers = itertools.count(1)
        self._scripts = {name: client.register_script(_source(name)) for name in SCRIPTS}
        self.policy_seen = parse_policy("fcfs")
        """The policy of the last claim: by it a worker also ranks the jobs it holds."""
        self.board = Board(client, name)
        """What is written up for people; no claim reads it."""
        self.order = Order(client, name)
        """Who goes before whom, for people and forecasts; no claim reads it either."""

    # -- the life of a job ------------------------------------------------------------------

    def enqueue(self, jobs: Iterable[Waiting]) -> int:
        """Let jobs wait; those here or in work are left alone. Returns how many were new."""
        flat: list[Any] = []
        for job in jobs:
            flat += [job.job_id, keys.score(job.bucket, job.arrival_ms)]
        return self._count("enqueue", [self._ready, self._lease], flat)

    def offer(self, place: Waiting) -> bool:
        """Like `enqueue` for one job, but an outage is no error: the outbox offers it again."""
        try:
            self.enqueue([place])
        except PartDown:
            return False
        return True

    def claim(self, windows: int, floor: Floor | None = None) -> Claim:
        """Take the jobs that go first, worth about `windows` (>= 1) windows, and lease them.

        The policy is the one in force at this moment. With a floor only jobs that outrank it are
        taken.
        """
        token = f"{self.worker}:{next(self._numbers)}"
        while True:
            limits = [floor.bucket, floor.arrival_ms] if floor else [-1, 0]
            answer = self._run(
                "claim",
                [
                    self._ready,
                    self._lease,
                    self._owner,
                    self._epoch,
                    self._policy_key,
                    self._answer,
                ],
                [
                    *(token, windows, self.lease_ms, self.clock_offset_ms, str(self.policy_seen)),
                    *limits,
                    *_pairs_as_arguments(self.policy_seen),
                ],
            )
            if answer[0] != "policy":
                return _read_claim(answer, token)
            self._follow(answer[1])

    def _follow(self, written: str) -> None:
        """Claim by the policy Redis names from now on; raises `PartDown` for a name of another
        version's, until the reclaimer has written ours over it.
        """
        try:
            policy = parse_policy(written)
        except ValueError as unknown:
            raise PartDown(f"Redis holds a policy that is not ours: {unknown}") from unknown
        if str(policy) != written:  # written by hand: make it what claims compare with
            self.set_policy(policy)
        self.policy_seen = policy

    def renew(self, held: Sequence[tuple[str, str]]) -> list[int]:
        """Extend the leases of (job id, token) pairs: RENEWED, REASSERTED or LOST for each.

        After REASSERTED ask Postgres whether the attempt still holds; if not, `complete`.
        """
        if not held:
            return []
        arguments = [self.lease_ms, *itertools.chain.from_iterable(held)]
        names = [self._ready, self._lease, self._owner]
        return cast("list[int]", self._run("renew", names, arguments))

    def complete(self, held: Sequence[tuple[str, str]]) -> int:
        """Forget jobs that ended, after Postgres has the result."""
        flat = list(itertools.chain.from_iterable(held))
        return self._count("complete", [self._lease, self._owner], flat)

    def release(self, held: Sequence[tuple[str, str, Waiting]]) -> int:
        """Give leased jobs (id, token, new place) back to the queue."""
        flat: list[Any] = []
        for job_id, token, place in held:
            flat += [job_id, token, keys.score(place.bucket, place.arrival_ms)]
        return self._count("release", [self._ready, self._lease, self._owner], flat)

    def withdraw(self, job_ids: Sequence[str]) -> int:
        """Take waiting jobs out; those in work are left to their workers."""
        return self._count("withdraw", [self._ready], job_ids)

    def retract(self, job_ids: Sequence[str]) -> bool:
        """Like `withdraw`, but an outage is no error: the next grant refuses such ghosts."""
        try:
            self.withdraw(job_ids)
        except PartDown:
            return False
        return True

    # -- recovery ---------------------------------------------------------------------------

    def reap(self, limit: int = 100) -> list[tuple[str, str]]:
        """Take over leases that ran out: (job id, token of the takeover) for each."""
        token = f"{self.worker}:reaper:{next(self._numbers)}"
        takeover_ms = int(TAKEOVER_S * 1000)
        answer = self._run("reap", [self._lease, self._owner], [limit, takeover_ms, token])
        return [(job_id, token) for job_id in answer]

    def seed(self, job_ids: Sequence[str]) -> int:
        """Give jobs in work a lease without owner, for their live workers to take up."""
        arguments = [self.lease_ms, *job_ids] if job_ids else []
        return self._count("seed", [self._ready, self._lease], arguments)

    def identity(self) -> Identity:
        """Changes when Redis was restarted or replaced."""
        with redis_errors():
            server = self._redis.info("server")
            replication = self._redis.info("replication")
        return Identity(str(server["run_id"]), str(replication.get("master_replid", "")))

    def time_ms(self) -> int:
        """Redis TIME in ms."""
        with redis_errors():
            seconds, micros = self._redis.time()
        return seconds * 1000 + micros // 1000

    def now_ms(self) -> int:
        """Postgres time in ms, by Redis' clock."""
        return self.time_ms() + self.clock_offset_ms

    def has_epoch(self) -> bool:
        """False: the index was lost and no full audit has rebuilt it."""
        with redis_errors():
            return bool(self._redis.exists(self._epoch))

    def begin_epoch(self) -> None:
        """Say that the index is whole again."""
        with redis_errors():
            self._redis.set(self._epoch, uuid.uuid4().hex, nx=True)

    # -- policy and size --------------------------------------------------------------------

    def set_policy(self, policy: Policy) -> None:
        """Order by `policy` from the next claim on, whoever makes it."""
        with redis_errors():
            self._redis.set(self._policy_key, str(policy))

    def policy(self) -> Policy | None:
        """The policy in force; None when Redis has forgotten it, or holds one that is not ours."""
        with redis_errors():
            written = cast("str | None", self._redis.get(self._policy_key))
        try:
            return parse_policy(written) if written else None
        except ValueError:
            return None

    def waiting(self) -> int:
        """How many jobs wait."""
        with redis_errors():
            return int(self._redis.zcard(self._ready))

    def counts(self) -> tuple[int, int]:
        """(jobs that wait, jobs in work)."""
        with redis_errors():
            pipe = self._redis.pipeline(transaction=False)
            pipe.zcard(self._ready)
            pipe.zcard(self._lease)
            waiting, working = pipe.execute()
        return waiting, working

    # -- plumbing ---------------------------------------------------------------------------

    @property
    def _ready(self) -> str:
        return keys.ready(self.name)

    @property
    def _lease(self) -> str:
        return keys.lease(self.name)

    @property
    def _owner(self) -> str:
        return keys.owner(self.name)

    @property
    def _epoch(self) -> str:
        return keys.epoch(self.name)

    @property
    def _policy_key(self) -> str:
        return keys.policy(self.name)

    @property
    def _answer(self) -> str:
        return keys.answer(self.name, self.worker)

    def _count(self, script: str, names: Sequence[str], arguments: Sequence[Any]) -> int:
        """Run a script that answers a number; nothing to do costs no call."""
        return int(self._run(script, names, arguments)) if arguments else 0

    def _run(self, script: str, names: Sequence[str], arguments: Sequence[Any]) -> Any:
        call = cast(Callable[..., Any], self._scripts[script])
        with redis_errors():
            return call(keys=list(names), args=list(arguments))


@lru_cache(maxsize=8)
def _pairs_as_arguments(policy: Policy) -> tuple[str, ...]:
    # repr() gives the shortest text that reads back as the very same double
    rows = enumerate(pairs(policy))
    return tuple(x for b, (u, v) in rows for x in (repr(u), repr(v), str(bucket_windows(b))))


def _read_claim(answer: list[str], token: str) -> Claim:
    _, now_ms, epoch, *flat = answer
    jobs = tuple(
        Claimed(job_id, *keys.from_score(float(score)), token)
        for job_id, score in zip(flat[::2], flat[1::2], strict=True)
    )
    return Claim(jobs, int(now_ms), index_lost=not epoch)


def _source(script: str) -> str:
    return resources.files("pipeline.queue").joinpath("lua", f"{script}.lua").read_text("utf-8")
