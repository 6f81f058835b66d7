"""A queue in few numbers: enough to say who goes before whom at any moment, without asking it.

Of each size bucket a few arrivals are known with their numbers; between two of them arrivals are
taken to be evenly spread. With M marks a bucket, a count of who arrived before some moment is wrong
by less than a part 1 / (M - 1) of that bucket, and right for buckets of up to M jobs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.scheduling.policies import Waiting, rank

Marks = Sequence[tuple[int, int]]
"""(number in its bucket from 0, arrival ms) of some jobs, oldest first; first and last always."""


def marked(count: int, marks: int) -> list[int]:
    """Which of the `count` jobs of a bucket to mark, by number: at most `marks`, evenly spread.

    >>> marked(3, 5), marked(101, 5)
    ([0, 1, 2], [0, 25, 50, 75, 100])
    """
    if count <= marks:
        return list(range(count))
    return [round(n * (count - 1) / (marks - 1)) for n in range(marks)]


@dataclass(frozen=True)
class Sketch:
    """One queue as it stood."""

    marks: Mapping[int, Marks]
    """By bucket; empty buckets are left out."""

    def by_bucket(self) -> dict[int, int]:
        """How many wait in each bucket."""
        return {bucket: marks[-1][0] + 1 for bucket, marks in self.marks.items()}

    def ahead(
        self, place: Waiting, table: Sequence[tuple[float, float]], now_ms: int
    ) -> dict[int, float]:
        """How many of each bucket go before `place` at `now_ms` under the pairs of a policy.

        Those that arrived before the moment t at which u * (now - t) + v is the place's own rank.
        """
        own, found = rank(place, table, now_ms), dict[int, float]()
        for bucket, marks in self.marks.items():
            if bucket == place.bucket:
                before = arrived_before(marks, place.arrival_ms)
            else:
                u, v = table[bucket]
                before = float(marks[-1][0] + 1)
                first = bucket < place.bucket  # of equal ranks the smaller goes first
                if not u > 0:
                    before = before if v > own or (v == own and first) else 0.0
                elif own > v or (own == v and not first):
                    before = arrived_before(marks, now_ms - (own - v) / u)
            if before:
                found[bucket] = before
        return found

    def joined_by(self, others: Mapping[int, Marks]) -> Sketch:
        """The same with others waiting in it too: {bucket: their marks}."""
        both = {b: _merged(self.marks.get(b, ()), marks) for b, marks in others.items()}
        return Sketch({**self.marks, **both})


def arrived_before(marks: Marks, moment_ms: float) -> float:
    """How many of a bucket arrived before a moment.

    >>> arrived_before([(0, 1000), (11, 2000)], 1500.0), arrived_before([(0, 1000)], 1000.0)
    (6.0, 0.0)
    """
    after = bisect_left(marks, moment_ms, key=lambda mark: mark[1])
    if after == 0:
        return 0.0
    number, arrival_ms = marks[after - 1]
    if after == len(marks):
        return float(number + 1)
    next_number, next_ms = marks[after]
    between = (moment_ms - arrival_ms) / (next_ms - arrival_ms)
    return number + 1 + (next_number - number - 1) * between


def _merged(some: Marks, others: Marks) -> Marks:
    """The marks of both together: at each the number of either that arrived no later."""
    moments = sorted({at for _, at in (*some, *others)})
    counts = [
        round(arrived_before(some, at + 0.5) + arrived_before(others, at + 0.5)) for at in moments
    ]
    marks = [(count - 1, at) for count, at in zip(counts, moments, strict=True)]
    # a moment at which several came stands for its first and its last
    return marks if not marks or marks[0][0] == 0 else [(0, moments[0]), *marks]
