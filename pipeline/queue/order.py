"""Who goes before whom in one queue: what its sorted set says, read without a claim.

A claim finds the best of all buckets itself (lua/claim.lua). Here the same order is read for the
queue people see, for forecasts and for the survey, which looks at the head of the next stage.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from pipeline.queue import keys
from pipeline.queue.outage import redis_errors
from pipeline.scheduling.policies import Policy, Waiting, arrivals_ahead_ms, order_key, pairs
from pipeline.scheduling.sketch import Sketch, marked
from pipeline.scheduling.work import BUCKETS

HEAD_READ = 16
"""Jobs of a bucket that `head` reads at first."""

MARKS = 5
"""Jobs of a bucket that a sketch holds at most."""


@dataclass(frozen=True)
class Ahead:
    """Who waits before a place."""

    position: int | None
    """From 1; None when the place itself does not wait."""
    by_bucket: dict[int, int]
    """How many of each size bucket go before it; empty buckets are left out."""


class Order:
    """The order of one queue. Every method raises `PartDown` when Redis does not answer."""

    def __init__(self, client: redis.Redis, queue: str) -> None:
        self._redis, self._ready = client, keys.ready(queue)

    def head(self, limit: int, policy: Policy, now_ms: int) -> list[Waiting]:
        """The `limit` jobs that would be claimed first if all were claimed at `now_ms`.

        Exact for that moment: a job among the first `limit` is among the first of its bucket. A
        bucket of which all that was read is among them is read further. `now_ms` is Postgres time.
        """
        table, read = pairs(policy), dict.fromkeys(range(BUCKETS), min(limit, HEAD_READ))
        found: dict[int, list[Waiting]] = {}
        while True:
            found |= self._oldest(read)
            every = itertools.chain.from_iterable(found.values())
            best = sorted(every, key=lambda job: order_key(job, table, now_ms))[:limit]
            taken = Counter(job.bucket for job in best)
            read = {
                bucket: min(limit, 4 * number)
                for bucket, number in read.items()
                if number < limit and taken[bucket] == len(found[bucket]) == number
            }
            if not read:
                return best

    def _oldest(self, read: Mapping[int, int]) -> dict[int, list[Waiting]]:
        """The oldest jobs of some buckets: {bucket: how many at most}."""
        with redis_errors():
            pipe = self._redis.pipeline(transaction=False)
            for bucket, number in read.items():
                first, end = bucket * keys.SCORE_BASE, (bucket + 1) * keys.SCORE_BASE
                pipe.zrangebyscore(
                    self._ready, first, f"({end}", start=0, num=number, withscores=True
                )
            answers = pipe.execute()
        return {
            bucket: [Waiting(job_id, *keys.from_score(value)) for job_id, value in rows]
            for bucket, rows in zip(read, answers, strict=True)
        }

    def ahead(
        self,
        places: Sequence[Waiting],
        policy: Policy,
        now_ms: int,
        likely: Iterable[int] | None = None,
    ) -> list[Ahead]:
        """Who waits before each of `places` at `now_ms` (Postgres time). One place costs one
        pipeline; for several, only buckets that hold somebody are asked, after one more.

        A place need not wait here: then it is told who would go before it. In every bucket those
        are the jobs that arrived before some moment, which follows from the place's own rank:
        u * W + v >= rank. `likely`: buckets that held somebody a moment ago. If with the place's
        own they still hold all, one place costs no more than asking them.
        """
        table = pairs(policy)
        if likely is not None and len(places) == 1:
            known = sorted({*likely, places[0].bucket})
            if (found := self._ahead_in(places[0], known, table, now_ms)) is not None:
                return [found]
        buckets = sorted(self.by_bucket()) if len(places) > 1 else range(BUCKETS)
        with redis_errors():
            pipe = self._redis.pipeline(transaction=False)
            for place in places:
                self._ask_ahead(pipe, place, buckets, table, now_ms)
            answers = iter(pipe.execute())
        size = len(buckets) + 2
        return [
            _read_ahead(place, buckets, list(itertools.islice(answers, size))) for place in places
        ]

    def _ahead_in(
        self,
        place: Waiting,
        buckets: Sequence[int],
        table: Sequence[tuple[float, float]],
        now_ms: int,
    ) -> Ahead | None:
        """Who of these buckets is ahead of a place; None when another bucket holds somebody."""
        ends = [-1, *buckets, BUCKETS]
        gaps = [(low + 1, high) for low, high in itertools.pairwise(ends) if high > low + 1]
        with redis_errors():
            pipe = self._redis.pipeline(transaction=False)
            for low, high in gaps:
                pipe.zcount(self._ready, low * keys.SCORE_BASE, f"({high * keys.SCORE_BASE}")
            self._ask_ahead(pipe, place, buckets, table, now_ms)
            answers = pipe.execute()
        if any(answers[: len(gaps)]):
            return None
        return _read_ahead(place, buckets, answers[len(gaps) :])

    def _ask_ahead(
        self,
        pipe: Any,
        place: Waiting,
        buckets: Sequence[int],
        table: Sequence[tuple[float, float]],
        now_ms: int,
    ) -> None:
        pipe.zrank(self._ready, place.job_id)
        pipe.zcount(self._ready, "-inf", f"({place.bucket * keys.SCORE_BASE}")
        for bucket in buckets:
            low, ahead = bucket * keys.SCORE_BASE, place.arrival_ms
            if bucket != place.bucket:
                ahead = arrivals_ahead_ms(place, bucket, table, now_ms)
            pipe.zcount(self._ready, low, f"({low + ahead}")

    def by_bucket(self) -> dict[int, int]:
        """How many wait in each bucket; empty buckets are left out."""
        with redis_errors():
            pipe = self._redis.pipeline(transaction=False)
            for bucket in range(BUCKETS):
                first, end = bucket * keys.SCORE_BASE, (bucket + 1) * keys.SCORE_BASE
                pipe.zcount(self._ready, first, f"({end}")
            return {bucket: count for bucket, count in enumerate(pipe.execute()) if count}

    def sketch(self) -> Sketch:
        """The queue in few numbers; what is claimed while it is read may be missing in it."""
        sizes, first = self.by_bucket(), 0
        with redis_errors():
            pipe = self._redis.pipeline(transaction=False)
            asked = []
            for bucket, count in sizes.items():
                for number in marked(count, MARKS):
                    asked.append((bucket, number))
                    pipe.zrange(self._ready, first + number, first + number, withscores=True)
                first += count
            answers = pipe.execute()
        marks: dict[int, list[tuple[int, int]]] = {}
        for (bucket, number), answer in zip(asked, answers, strict=True):
            for _, value in answer:
                found, arrival_ms = keys.from_score(value)
                if found == bucket:
                    marks.setdefault(bucket, []).append((number, arrival_ms))
        return Sketch(marks)

    def some(self, number: int) -> list[str]:
        """Ids of up to `number` jobs that wait, drawn by chance."""
        with redis_errors():
            return [str(job_id) for job_id in self._redis.zrandmember(self._ready, number) or []]


def _read_ahead(place: Waiting, buckets: Sequence[int], answer: list[Any]) -> Ahead:
    at, before_bucket, *found = answer
    counts = dict(zip(buckets, found, strict=True))
    if at is not None:  # of equal arrivals in its own bucket, the smaller id goes first
        counts[place.bucket] = at - before_bucket
    by_bucket = {bucket: count for bucket, count in counts.items() if count}
    return Ahead(None if at is None else 1 + sum(by_bucket.values()), by_bucket)
