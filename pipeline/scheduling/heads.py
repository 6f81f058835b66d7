"""A line of waiting jobs in size buckets, of which only the heads are compared.

Inside a bucket the oldest leads under every policy, so the first of all is one of the heads. What
the Lua script does with one sorted set is done here with a heap a bucket: the same comparison, the
same ties (smaller bucket, earlier arrival, smaller id).
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar


class Placed(Protocol):
    """A job that can stand in a line. `place` belongs to the line it stands in."""

    job_id: str
    counted_ms: int
    """Its arrival as ranks count it, ms."""
    place: tuple[int, int] | None
    """(number of the line, bucket) while it stands in one."""


Job = TypeVar("Job", bound=Placed)


class Heads(Generic[Job]):
    """Jobs by bucket. `number` tells several lines apart; a job stands in one at a time."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self._heaps: dict[int, list[tuple[int, str, Job]]] = {}
        self._buckets: list[int] = []  # not empty, in order; with the arrival of each one's head
        self._oldest: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._buckets)

    def put(self, job: Job, bucket: int) -> None:
        """Let `job` stand in `bucket`, wherever it stood before: in this line or in none."""
        if job.place == (self.number, bucket):
            return
        self.take(job)
        job.place = (self.number, bucket)
        heap = self._heaps.setdefault(bucket, [])
        heapq.heappush(heap, (job.counted_ms, job.job_id, job))
        self._tidy(bucket)

    def take(self, job: Job) -> None:
        """Take `job` out, if it stands here."""
        if job.place is None or job.place[0] != self.number:
            return
        bucket, job.place = job.place[1], None
        self._tidy(bucket)

    def first(self, table: Sequence[tuple[float, float]], now_ms: int) -> tuple[float, Job] | None:
        """The job of the highest rank under the pairs of `table`, and that rank."""
        best, at = float("-inf"), -1
        for bucket, oldest_ms in zip(self._buckets, self._oldest, strict=True):
            u, v = table[bucket]
            rank = u * max(0, now_ms - oldest_ms) + v
            # strictly greater: buckets come in order, so a tie stays with the smaller one
            if rank > best or at < 0:
                best, at = rank, bucket
        return None if at < 0 else (best, self._heaps[at][0][2])

    def overdue(self, overdue_ms: int) -> Job | None:
        """The oldest job, if it arrived at `overdue_ms` or before."""
        if not self._oldest:
            return None
        oldest_ms = min(self._oldest)
        if oldest_ms > overdue_ms:
            return None
        return self._heaps[self._buckets[self._oldest.index(oldest_ms)]][0][2]

    def _tidy(self, bucket: int) -> None:
        """Drop who left from the front of a bucket, and know its head again."""
        heap, here = self._heaps[bucket], (self.number, bucket)
        while heap and heap[0][2].place != here:
            heapq.heappop(heap)
        at = bisect.bisect_left(self._buckets, bucket)
        known = at < len(self._buckets) and self._buckets[at] == bucket
        if heap and known:
            self._oldest[at] = heap[0][0]
        elif heap:
            self._buckets.insert(at, bucket)
            self._oldest.insert(at, heap[0][0])
        elif known:
            del self._buckets[at], self._oldest[at]
