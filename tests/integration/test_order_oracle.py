"""Every job the real server hands out is the one a search through all that wait would take.

Hypothesis makes up arrivals (tenants' virtual clocks among them), changes of policy, releases with
remaining work, floors, promotions, claims of one and of many, in any order, and shrinks what fails.
The search is `pick` of scheduling/dispatch.py at the moment the server says it claimed.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from pipeline.queue import keys
from pipeline.queue.redis_queue import Claim, Claimed, Floor, Promotion, RedisQueue, connect
from pipeline.scheduling.dispatch import pick
from pipeline.scheduling.policies import Waiting, order_key, pairs, parse_policy
from pipeline.scheduling.shares import virtual_arrival
from pipeline.scheduling.work import BUCKETS, bucket_of, bucket_windows, bucket_work_s

PICKS, PICKS_LONG = 4_000, 100_000
"""Claimed jobs compared by `make test`, and by `make verify`."""

CROWD = 150
"""Jobs that wait at most: the search looks at all of them for every job claimed."""

ENDLESS = 10**9
"""Windows enough for any number of jobs."""

Place = tuple[int, int]
"""Bucket, and age in ms."""
Promoting = tuple[int, int | None]
"""How many, and the age in ms that those must have besides."""

policies = st.one_of(
    st.sampled_from(["fcfs", "sjf", "hrrn(0)", "hrrn(1)", "hrrn(1.5)", "aged(0)", "aged(10)"]),
    st.floats(0.05, 10).map(lambda g: f"hrrn({g:.3g})"),
    st.floats(0.01, 1000).map(lambda beta: f"aged({beta:.3g})"),
)
# few sizes and moments, so that ranks and arrivals tie; all of them, so that nothing is left out
buckets = st.one_of(st.integers(60, 66), st.integers(0, BUCKETS - 1))
ages_ms = st.one_of(st.sampled_from([0, 1000, 1001, 60_000]), st.integers(-3_600_000, 36_000_000))
floors = st.one_of(st.none(), st.tuples(buckets, ages_ms))
promotions = st.one_of(st.none(), st.tuples(st.integers(1, 3), st.none() | ages_ms))
at_the_edge = st.integers(-1, 1)
"""A millisecond or a bucket below, on and above a limit."""


@dataclass
class Tally:
    """What a run compared."""

    picks: int = 0
    wrong: int = 0
    promoted: int = 0
    floors: int = 0
    released: int = 0
    switches: int = 0


class Line(RuleBasedStateMachine):
    """The queue on the server, and beside it a dict of who waits."""

    client: redis.Redis
    tally: Tally

    def __init__(self) -> None:
        super().__init__()
        self.queue = RedisQueue(self.client, f"oracle-{uuid.uuid4().hex}")
        self.began_ms = self.queue.time_ms()
        self.waiting: dict[str, Waiting] = {}
        self.held: dict[str, Claimed] = {}
        self.clocks = [0, 0, 0]
        self.rng = random.Random(0)
        self.policy = self.queue.policy_seen

    def teardown(self) -> None:
        made = list(self.client.scan_iter(match=f"*{self.queue.name}*", count=1000))
        if made:
            self.client.delete(*made)

    # -- what happens to a queue ------------------------------------------------------------

    # Which rules may run does not depend on who waits: that depends on the server's clock, and
    # hypothesis could not run an example again.

    def _enter(self, jobs: list[Waiting]) -> None:
        jobs = jobs[: CROWD - len(self.waiting)]
        assert self.queue.enqueue(jobs) == len(jobs)
        self.waiting |= {job.job_id: job for job in jobs}

    def _id(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128)))

    @rule(jobs=st.lists(st.tuples(buckets, ages_ms), min_size=1, max_size=12))
    def some_arrive(self, jobs: list[tuple[int, int]]) -> None:
        self._enter([Waiting(self._id(), b, self.began_ms - age_ms) for b, age_ms in jobs])

    @rule(count=st.integers(20, 90), seed=st.integers(0, 2**32), hours=st.floats(0, 12))
    def a_bulk_arrives(self, count: int, seed: int, hours: float) -> None:
        rng, age_ms = random.Random(seed), int(hours * 3_600_000)
        sizes = [min(BUCKETS - 1, max(0, round(rng.gauss(85, 18)))) for _ in range(count)]
        self._enter([Waiting(self._id(), b, self.began_ms - rng.randint(0, age_ms)) for b in sizes])

    @rule(
        tenant=st.integers(0, 2),
        jobs=st.lists(st.floats(0.1, 600), min_size=1, max_size=12),
        age_ms=st.integers(0, 600_000),
    )
    def a_tenant_submits(self, tenant: int, jobs: list[float], age_ms: int) -> None:
        arriving = []
        for work_s in jobs:
            share, arrival_ms = (0.5, 4.0, 32.0)[tenant], self.began_ms - age_ms
            counted_ms, clock_ms = virtual_arrival(arrival_ms, self.clocks[tenant], work_s, share)
            self.clocks[tenant] = clock_ms
            arriving.append(Waiting(self._id(), bucket_of(work_s), counted_ms))
        self._enter(arriving)

    @rule(text=policies)
    def the_policy_changes(self, text: str) -> None:
        self.policy = parse_policy(text)
        self.queue.set_policy(self.policy)
        self.tally.switches += 1

    @rule(max_wait_ms=st.sampled_from([0, 1, 1000, 600_000, 7_200_000]))
    def the_longest_wait_changes(self, max_wait_ms: int) -> None:
        self.queue.max_wait_ms = max_wait_ms

    @rule(seed=st.integers(0, 2**32), remaining=st.floats(0.01, 1.0))
    def workers_give_back_what_is_left(self, seed: int, remaining: float) -> None:
        for job in self._some_held(seed):
            left = bucket_of(bucket_work_s(job.bucket) * remaining)
            place = Waiting(job.job_id, left, job.arrival_ms)  # its first arrival
            assert self.queue.release([(job.job_id, job.token, place)]) == 1
            self.waiting[job.job_id] = place
            self.tally.released += 1

    @rule(seed=st.integers(0, 2**32))
    def some_end(self, seed: int) -> None:
        ended = self._some_held(seed)
        assert self.queue.complete([(job.job_id, job.token) for job in ended]) == len(ended)

    def _some_held(self, seed: int) -> list[Claimed]:
        rng = random.Random(seed)
        chosen = rng.sample(sorted(self.held), rng.randint(min(1, len(self.held)), len(self.held)))
        return [self.held.pop(job_id) for job_id in chosen]

    @rule(seed=st.integers(0, 2**32))
    def one_is_cancelled(self, seed: int) -> None:
        for job_id in random.Random(seed).sample(sorted(self.waiting), bool(self.waiting)):
            assert self.queue.withdraw([job_id]) == 1
            del self.waiting[job_id]

    # -- claims -----------------------------------------------------------------------------

    @rule(floor=floors, promotion=promotions)
    def one_is_claimed(self, floor: Place | None, promotion: Promoting | None) -> None:
        self._claim(ENDLESS, 1, floor, promotion)

    @rule(most=st.integers(2, 40), floor=floors, promotion=promotions)
    def many_are_claimed(self, most: int, floor: Place | None, promotion: Promoting | None) -> None:
        self._claim(ENDLESS, most, floor, promotion)

    @rule(windows=st.integers(1, 64), floor=floors, promotion=promotions)
    def windows_are_claimed(
        self, windows: int, floor: Place | None, promotion: Promoting | None
    ) -> None:
        self._claim(windows, 64, floor, promotion)

    @rule(seed=st.integers(0, 2**32), bucket=at_the_edge, ms=at_the_edge)
    def a_floor_lies_beside_a_job_that_waits(self, seed: int, bucket: int, ms: int) -> None:
        job_id = random.Random(seed).choice(sorted(self.waiting) or [""])
        job = self.waiting.get(job_id, Waiting("", 60, self.began_ms))
        beside = min(BUCKETS - 1, max(0, job.bucket + bucket))
        self._claim(ENDLESS, 8, (beside, self.began_ms - job.arrival_ms + ms), None)

    @rule(ms=at_the_edge, older_ms=st.none() | at_the_edge)
    def the_oldest_becomes_overdue_at_this_moment(self, ms: int, older_ms: int | None) -> None:
        arrivals_ms = [job.arrival_ms for job in self.waiting.values()]
        oldest_ms = min(arrivals_ms, default=self.began_ms)
        self.queue.max_wait_ms = max(1, self.queue.time_ms() - oldest_ms + ms)
        age_ms = None if older_ms is None else self.began_ms - oldest_ms + older_ms
        self._claim(ENDLESS, 1, None, (1, age_ms))

    def _claim(
        self, windows: int, most: int, floor: Place | None, promoting: Promoting | None
    ) -> None:
        rival = floor and Waiting("", floor[0], self.began_ms - floor[1])
        promotion = None
        if promoting:
            jobs, age_ms = promoting
            before_ms = keys.SCORE_BASE if age_ms is None else self.began_ms - age_ms
            promotion = Promotion(jobs, before_ms)
        below = rival and Floor(rival.bucket, rival.arrival_ms)
        claim = self.queue.claim(windows, below, promotion, most=most)
        assert self.queue.policy_seen == self.policy
        self.tally.floors += rival is not None
        self._compare(claim, windows, most, rival, promotion)
        self.held |= {job.job_id: job for job in claim.jobs}

    def _compare(
        self,
        claim: Claim,
        windows: int,
        most: int,
        rival: Waiting | None,
        promotion: Promotion | None,
    ) -> None:
        overdue_ms, promotions = None, 0
        if promotion and self.queue.max_wait_ms:
            overdue_ms, promotions = claim.now_ms - self.queue.max_wait_ms, promotion.jobs
            overdue_ms = min(overdue_ms, promotion.older_than_ms - 1)
        taken = list(claim.jobs)
        while windows > 0 and most > 0:
            first = self._first(claim.now_ms, rival, None)
            expected = self._first(claim.now_ms, rival, overdue_ms if promotions else None)
            job = taken.pop(0) if taken else None
            if not (job or expected):
                break
            self.tally.picks += 1
            right = job and expected and self._is(job, expected)
            self.tally.wrong += not right
            assert job, f"{expected} should have been taken too"
            assert right, f"{job} was taken, and {expected} is next"
            del self.waiting[job.job_id]
            by_age = expected != first
            promotions, most = promotions - by_age, most - 1
            windows -= 1 if by_age else bucket_windows(job.bucket)
            self.tally.promoted += by_age
        assert not taken

    def _is(self, job: Claimed, expected: Waiting) -> bool:
        return Waiting(job.job_id, job.bucket, job.arrival_ms) == expected

    def _first(self, now_ms: int, rival: Waiting | None, overdue_ms: int | None) -> Waiting | None:
        """Who is next of those that wait: past a rival that outranks them only by age."""
        table = pairs(self.policy)
        found = pick(self.waiting.values(), table, now_ms, overdue_ms)
        if found is None or rival is None:
            return found
        if overdue_ms is not None and found.arrival_ms <= overdue_ms:
            return found
        own, other = (order_key(job, table, now_ms)[:3] for job in (found, rival))
        return found if own < other else None


@pytest.fixture
def tally(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Tally]:
    client, tally = connect(environ["FAIRSCRIBE_REDIS_URL"]), Tally()
    monkeypatch.setattr(Line, "client", client, raising=False)
    monkeypatch.setattr(Line, "tally", tally, raising=False)
    yield tally
    client.close()


def compare(picks: int, tally: Tally, examples: int) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=50,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    while tally.picks < picks:
        run_state_machine_as_test(Line, settings=chosen)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("picks", "examples"),
    [
        pytest.param(PICKS, 15, id="some"),
        pytest.param(PICKS_LONG, 100, id="many", marks=pytest.mark.slow),
    ],
)
def test_every_claimed_job_is_the_one_the_rule_picks(
    tally: Tally, picks: int, examples: int, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        compare(picks, tally, examples)
    finally:
        with capsys.disabled():
            print(f"\n{tally.picks:,} picks, {tally.wrong} wrong: {tally}")
    assert tally.wrong == 0
    assert min(tally.promoted, tally.floors, tally.released, tally.switches) > 0
