"""One queue in Redis: each method is one script of `lua/`, each answer a value or a named error.

Redis TIME is the only lease clock. Scripts are safe to send twice. Every method raises `PartDown`
when Redis does not answer; nothing is lost by that, because Postgres knows every job.
"""

from __future__ import annotations

import itertools
import math
import os
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from pipeline.errors import PartDown
from pipeline.queue import keys
from pipeline.queue.board import Board
from pipeline.queue.order import Order
from pipeline.queue.outage import Client, redis_errors
from pipeline.queue.roll import Roll
from pipeline.queue.scripts import CHUNK, Scripts, packed_table
from pipeline.scheduling.policies import Policy, Waiting, parse_policy

TAKEOVER_S = 4.0
"""How long a reaper may take to settle the leases it took over, seconds, and a lease at most. One
that dies keeps their jobs waiting so much longer; one that is slower has its work done twice."""

CLAIM_LIMIT = 64
"""Jobs a claim takes at most, so that it does not keep the server: who wants more asks again."""

RENEWED, REASSERTED, LOST = 1, 2, 0
"""Answers of `renew`."""


def connect(redis_url: str) -> Client:
    """A client that gives up after about 3 s rather than hang: callers tick again anyway."""
    client = Client.from_url(
        redis_url,
        decode_responses=True,
        socket_timeout=3.0,
        socket_connect_timeout=3.0,
        health_check_interval=10,
        # not after a timeout: who did not answer for 3 s would cost 9
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), 2, (redis.ConnectionError,)),
    )
    return cast(Client, client)


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
class Promotion:
    """Permission for a claim to take overdue jobs past its floor, the oldest first."""

    jobs: int = 1
    """At most so many. One that is first by rank besides is not counted."""
    older_than_ms: int = keys.SCORE_BASE
    """Only who arrived before this, Postgres time; else any that is overdue."""


class RedisQueue:
    """The queue of one stage. Safe to use from several threads."""

    def __init__(
        self, client: redis.Redis, name: str, *, lease_s: float = 15.0, max_wait_s: float = 0.0
    ) -> None:
        self.name = name
        self.lease_ms = int(lease_s * 1000)
        self.max_wait_ms = math.ceil(max_wait_s * 1000)
        """Who has waited this long is overdue (scheduling/dispatch.py); 0: nobody ever is."""
        self.worker = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self.clock_offset_ms = 0
        """Postgres time minus Redis TIME; kept up to date by whoever reconciles."""
        self._redis = client
        self._ready, self._heads = keys.ready(name), keys.heads(name)
        self._lease, self._owner = keys.lease(name), keys.owner(name)
        self._epoch, self._policy_key = keys.epoch(name), keys.policy(name)
        self._answer = keys.answer(name, self.worker)
        self._numbers = itertools.count(1)
        self._scripts = Scripts(client)
        self.policy_seen = parse_policy("fcfs")
        """The policy of the last claim: by it a worker also ranks the jobs it holds."""
        self.board = Board(client, name)
        """What is written up for people; no claim reads it."""
        self.order = Order(client, name)
        """Who goes before whom, for people and forecasts; no claim reads it either."""
        self.roll = Roll(client, name)
        """All who are in it, for whoever compares it with Postgres."""

    # -- the life of a job ------------------------------------------------------------------

    def enqueue(self, jobs: Iterable[Waiting]) -> int:
        """Let jobs wait; those here or in work are left alone. Returns how many were new."""
        rows = [(job.job_id, keys.score(job.bucket, job.arrival_ms)) for job in jobs]
        return self._scripts.count("enqueue", [self._ready, self._lease, self._heads], rows)

    def offer(self, place: Waiting) -> bool:
        """Like `enqueue` for one job, but an outage is no error: the outbox offers it again."""
        try:
            self.enqueue([place])
        except PartDown:
            return False
        return True

    def claim(
        self,
        windows: int,
        floor: Floor | None = None,
        promotion: Promotion | None = None,
        *,
        most: int = CLAIM_LIMIT,
    ) -> Claim:
        """Take the jobs that go first, worth about `windows` (>= 1) windows, and lease them.

        The policy is the one in force at this moment. With a floor only jobs that outrank it are
        taken, and with a promotion overdue ones besides. `most`: jobs at most, >= 1.
        """
        token = f"{self.worker}:{next(self._numbers)}"
        place = (floor.bucket, floor.arrival_ms) if floor else (-1, 0)
        late = (0, 0, 0)
        if promotion and self.max_wait_ms:
            late = (promotion.jobs, promotion.older_than_ms, self.max_wait_ms)
        names = [self._ready, self._lease, self._owner]
        names += [self._epoch, self._policy_key, self._answer, self._heads]
        while True:
            size = (windows, most, self.lease_ms, self.clock_offset_ms)
            pairs = (str(self.policy_seen), *place, *late, packed_table(self.policy_seen))
            answer = self._scripts.run("claim", names, [token, *size, *pairs])
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
        names = [self._ready, self._lease, self._owner]
        answers = self._scripts.run_in_parts("renew", names, held, [self.lease_ms])
        return list(itertools.chain.from_iterable(answers))

    def retake(self, held: Sequence[tuple[str, str]]) -> list[bool]:
        """Of LOST (job id, token) pairs that Postgres says are in work: whether each waited, by
        mistake, and is leased to its token again.
        """
        names = [self._ready, self._lease, self._owner]
        answers = self._scripts.run_in_parts("retake", names, held, [self.lease_ms])
        return [bool(taken) for taken in itertools.chain.from_iterable(answers)]

    def complete(self, held: Sequence[tuple[str, str]]) -> int:
        """Forget jobs that ended, after Postgres has the result."""
        return self._scripts.count("complete", [self._lease, self._owner], held)

    def release(self, held: Sequence[tuple[str, str, Waiting]]) -> int:
        """Give leased jobs (id, token, new place) back to the queue."""
        rows = [
            (job_id, token, keys.score(place.bucket, place.arrival_ms))
            for job_id, token, place in held
        ]
        names = [self._ready, self._lease, self._owner, self._heads]
        return self._scripts.count("release", names, rows)

    def withdraw(self, job_ids: Sequence[str]) -> int:
        """Take waiting jobs out; those in work are left to their workers."""
        names = [self._ready, self._heads]
        return self._scripts.count("withdraw", names, [(job_id,) for job_id in job_ids])

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
        names = [self._lease, self._owner]
        takeover_ms = min(int(TAKEOVER_S * 1000), self.lease_ms)
        reaped: list[tuple[str, str]] = []
        while len(reaped) < limit:
            token = f"{self.worker}:reaper:{next(self._numbers)}"
            asked = min(CHUNK, limit - len(reaped))
            job_ids = self._scripts.run("reap", names, [asked, takeover_ms, token])
            reaped += [(job_id, token) for job_id in job_ids]
            if len(job_ids) < asked:
                break
        return reaped

    def seed(self, job_ids: Sequence[str]) -> list[str]:
        """Give jobs in work a lease without owner, for their live workers to take up.

        Returns those that had none. Ask Postgres about them once more: one that ended meanwhile
        must not keep its lease (`complete` with the empty token).
        """
        rows = [(job_id,) for job_id in job_ids]
        names = [self._ready, self._lease]
        seeded = self._scripts.run_in_parts("seed", names, rows, [self.lease_ms])
        return list(itertools.chain.from_iterable(seeded))

    def shorten(self) -> int:
        """After Redis TIME went back: no lease lasts longer than one lease from now."""
        shortened = 0
        while some := self._scripts.run("shorten", [self._lease], [self.lease_ms, CHUNK]):
            shortened += some
        return shortened

    def time_ms(self) -> int:
        """Redis TIME in ms."""
        with redis_errors():
            seconds, micros = self._redis.time()
        return seconds * 1000 + micros // 1000

    def now_ms(self) -> int:
        """Postgres time in ms, by Redis' clock."""
        return self.time_ms() + self.clock_offset_ms

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


def _read_claim(answer: list[str], token: str) -> Claim:
    _, now_ms, epoch, *flat = answer
    jobs = tuple(
        Claimed(job_id, *keys.from_score(float(score)), token)
        for job_id, score in zip(flat[::2], flat[1::2], strict=True)
    )
    return Claim(jobs, int(now_ms), index_lost=not epoch)
