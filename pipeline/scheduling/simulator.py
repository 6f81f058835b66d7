"""What an order of work would do to these arrivals: discrete events, the rule of the claims.

In: arrivals, a policy, a house of workers with slots. Out: when each job's first unit started and
its last one ended. Nothing is random here; `workloads.py` makes arrivals.

A free slot goes to who is first by `dispatch.pick`: among what the worker has in hand, ranked by
what is not heard yet of it and its first arrival, and what waits in the queue. A job is in one
worker's hands from its first unit on; one that has no slot for STARVED_S while others get one goes
back. A unit that needs d slot seconds alone is served at `pace(n)` while n units share the worker:

    the worker's own clock V runs at pace(n);  a unit started at V0 ends when V = V0 + d

A newcomer finds the worker with most free slots. Claims, grants and storage take no time here.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.scheduling.dispatch import Credit
from pipeline.scheduling.heads import Heads
from pipeline.scheduling.policies import Policy, pairs
from pipeline.scheduling.scenario import Arrival, House, Outcome, Rule, Run, View
from pipeline.scheduling.work import bucket_of

STARVED_S = 2.0
"""As in workers/pull_loop.py: a job in hand without a slot for this long goes back to the queue."""

ASKED_EACH_S = 1.0
"""A policy that is a rule of the backlog is asked at most once a simulated second."""


def simulate(
    arrivals: Sequence[Arrival],
    policy: Policy | Rule,
    house: House,
    *,
    max_wait_s: float = 0.0,
) -> Run:
    """Let `arrivals` be served by `house` in the order of `policy`.

    `max_wait_s`: who waited this long is promoted within a worker's credit (dispatch.py); 0: never.
    Raises ValueError for an arrival without units or with one below 0.

    >>> calls = [Arrival("long", 0, (1.0,) * 4, 4.0), Arrival("short", 500, (1.0,), 1.0)]
    >>> run = simulate(calls, Policy("sjf"), House(slots=2))
    >>> run.picks, [outcome.ended_s for outcome in run.outcomes]
    (('long', 'long', 'short', 'long', 'long'), [3.0, 2.0])
    """
    if max_wait_s < 0:
        raise ValueError(f"a wait is 0 s or more, not {max_wait_s}")
    return _House(arrivals, policy, house, max_wait_s).run()


@dataclass(eq=False)
class _Job:
    """A job under way."""

    job_id: str
    at_ms: int
    counted_ms: int
    units: tuple[float, ...]
    works: tuple[float, ...]
    left_s: float
    """Predicted work nobody has heard yet."""
    place: tuple[int, int] | None = None
    next_unit: int = 0
    running: int = 0
    worker: _Worker | None = None
    taken: int = 0
    starved_since_s: float | None = None
    started_s: float = -1.0
    ended_s: float = -1.0

    @property
    def waits(self) -> bool:
        return self.next_unit < len(self.units)


def _job(arrival: Arrival, level: str) -> _Job:
    units, works = arrival.units, arrival.unit_works
    if not units or min(units) < 0 or not arrival.work_s >= 0:
        raise ValueError(f"{arrival.job_id}: a job has units and work of 0 s or more")
    if works and len(works) != len(units):
        raise ValueError(f"{arrival.job_id}: {len(works)} works for {len(units)} units")
    if level == "file":
        units, works = (sum(units),), (arrival.work_s,)
    elif not works:
        whole = sum(units)
        works = tuple(arrival.work_s * (u / whole if whole else 0.0) for u in units)
    counted_ms = arrival.at_ms if arrival.counted_ms is None else arrival.counted_ms
    return _Job(arrival.job_id, arrival.at_ms, counted_ms, units, works, arrival.work_s)


@dataclass(eq=False)
class _Worker:
    """One worker: its slots, its own clock, what it has in hand."""

    paces: tuple[float, ...]
    line: Heads[_Job]
    """Jobs in hand with a unit that waits; of a single worker the queue itself."""
    credit: Credit = field(default_factory=Credit)
    held: dict[str, _Job] = field(default_factory=dict)
    clock: float = 0.0
    serving: list[tuple[float, int, _Job, int]] = field(default_factory=list)

    @property
    def free(self) -> int:
        return len(self.paces) - len(self.serving)

    def next_end_s(self, now_s: float) -> float:
        """When the next unit ends if nothing else starts; infinite with none in service."""
        if not self.serving:
            return math.inf
        pace = self.paces[len(self.serving) - 1]
        return now_s + max(0.0, self.serving[0][0] - self.clock) / pace

    def advance(self, passed_s: float) -> None:
        if self.serving:
            self.clock += passed_s * self.paces[len(self.serving) - 1]


class _House:
    """The state of one simulation."""

    def __init__(
        self, arrivals: Sequence[Arrival], policy: Policy | Rule, house: House, max_wait_s: float
    ) -> None:
        self.jobs = [_job(a, house.level) for a in sorted(arrivals, key=lambda a: a.at_ms)]
        self.queue: Heads[_Job] = Heads(0)
        alone = house.workers == 1
        paces = house.paces
        lines = [self.queue] if alone else [Heads(n) for n in range(1, house.workers + 1)]
        self.workers = [_Worker(paces, line) for line in lines]
        self.alone, self.slots = alone, house.slots * house.workers
        self.rule, self.asked_s = policy, -math.inf
        self.policy: Policy | None = None
        self.switches = self.promoted = 0
        self.max_wait_ms = round(max_wait_s * 1000)
        self.now_s = 0.0
        self.picks: list[str] = []
        self.waiting, self.waiting_work_s = 0, 0.0
        self.numbers = itertools.count()

    def run(self) -> Run:
        coming, at = self.jobs, 0
        self.now_s = coming[0].at_ms / 1000 if coming else 0.0
        while True:
            next_s = coming[at].at_ms / 1000 if at < len(coming) else math.inf
            ends = [worker.next_end_s(self.now_s) for worker in self.workers]
            moment_s = min(next_s, *ends)
            if moment_s == math.inf:
                break
            for worker in self.workers:
                worker.advance(moment_s - self.now_s)
            self.now_s = moment_s
            for worker, end_s in zip(self.workers, ends, strict=True):
                self._end_units(worker, due=end_s <= moment_s)
            while at < len(coming) and coming[at].at_ms / 1000 <= moment_s:
                self._arrive(coming[at])
                at += 1
            self._fill()
        return self._told()

    def _told(self) -> Run:
        seconds = [(job.job_id, job.at_ms / 1000, job.started_s, job.ended_s) for job in self.jobs]
        lasted_s = max((s[3] for s in seconds), default=0.0) - (seconds[0][1] if seconds else 0.0)
        return Run(
            outcomes=tuple(Outcome(*each) for each in seconds),
            picks=tuple(self.picks),
            throughput=len(seconds) / lasted_s if lasted_s > 0 else 0.0,
            switches=self.switches,
            promoted=self.promoted,
        )

    # -- in and out -------------------------------------------------------------------------

    def _arrive(self, job: _Job) -> None:
        self.queue.put(job, bucket_of(job.left_s))
        self.waiting += 1
        self.waiting_work_s += job.left_s

    def _end_units(self, worker: _Worker, *, due: bool) -> None:
        """End what is done at this moment: the next one when its time was chosen, and its like."""
        if due:
            worker.clock = max(worker.clock, worker.serving[0][0])  # to the last bit
        while worker.serving and worker.serving[0][0] <= worker.clock:
            _, _, job, unit = heapq.heappop(worker.serving)
            job.running -= 1
            job.left_s -= job.works[unit]
            if job.waits:
                worker.line.put(job, bucket_of(job.left_s))
            elif not job.running:
                job.ended_s = self.now_s
                worker.held.pop(job.job_id, None)
        if not worker.serving:
            worker.clock = 0.0  # keeps its digits for small differences

    # -- who is next ------------------------------------------------------------------------

    def _fill(self) -> None:
        """Give free slots away until nobody waits who may have one."""
        ready = [worker for worker in self.workers if worker.free]
        if not ready:
            return
        if not self.alone:
            for worker in self.workers:
                self._give_back_starved(worker)
        while ready and (self.queue or any(worker.line for worker in ready)):
            worker = max(ready, key=lambda w: w.free)
            job = self._pick(worker)
            if job is not None:
                self._start(worker, job)
            if job is None or not worker.free:
                ready.remove(worker)

    def _pick(self, worker: _Worker) -> _Job | None:
        table, now_ms = pairs(self._policy()), self._now_ms()
        lines = (self.queue,) if self.alone else (self.queue, worker.line)
        found = [best for line in lines if (best := line.first(table, now_ms)) is not None]
        if not found:
            return None
        first = min(found, key=lambda best: (-best[0], _tie(best[1])))[1]
        if self.max_wait_ms and worker.credit:
            overdue_ms = now_ms - self.max_wait_ms
            late = [job for line in lines if (job := line.overdue(overdue_ms)) is not None]
            if late:
                oldest = min(late, key=lambda job: (job.counted_ms, _tie(job)))
                if oldest is not first:
                    worker.credit.spend()
                    self.promoted += 1
                    return oldest
        worker.credit.earn()
        return first

    def _policy(self) -> Policy:
        if isinstance(self.rule, Policy):
            return self.rule
        if self.policy is None or self.now_s >= self.asked_s + ASKED_EACH_S:
            view = View(self.waiting, max(0.0, self.waiting_work_s), self.slots)
            new, self.asked_s = self.rule(self._now_ms(), view), self.now_s
            self.switches += self.policy is not None and new != self.policy
            self.policy = new
        return self.policy

    def _now_ms(self) -> int:
        return int(self.now_s * 1000 + 1e-6)

    def _start(self, worker: _Worker, job: _Job) -> None:
        unit = job.next_unit
        job.next_unit += 1
        job.running += 1
        self.picks.append(job.job_id)
        self.waiting_work_s -= job.works[unit]
        if job.started_s < 0:
            job.started_s = self.now_s
            self.waiting -= 1
        if not self.alone:
            self._hold(worker, job)
        if not job.waits:
            worker.line.take(job)
        finish = worker.clock + job.units[unit]
        heapq.heappush(worker.serving, (finish, next(self.numbers), job, unit))

    # -- several workers --------------------------------------------------------------------

    def _hold(self, worker: _Worker, job: _Job) -> None:
        """It is in this worker's hands, and whoever it passed over begins to starve."""
        if job.worker is not worker:
            job.worker, job.taken = worker, len(self.picks)
            worker.held[job.job_id] = job
            self.queue.take(job)
            worker.line.put(job, bucket_of(job.left_s))
        job.starved_since_s = None
        for other in worker.held.values():
            idle = other.waits and not other.running and other.starved_since_s is None
            if idle and other.taken < job.taken:
                other.starved_since_s = self.now_s

    def _give_back_starved(self, worker: _Worker) -> None:
        for job in list(worker.held.values()):
            since_s = job.starved_since_s
            if since_s is None or job.running or self.now_s - since_s <= STARVED_S:
                continue
            worker.line.take(job)
            del worker.held[job.job_id]
            job.worker = job.starved_since_s = None
            self.queue.put(job, bucket_of(job.left_s))


def _tie(job: _Job) -> tuple[int, int, str]:
    bucket = job.place[1] if job.place else 0
    return bucket, job.counted_ms, job.job_id
