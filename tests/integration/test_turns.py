"""Whose unit a real puller starts next: newcomers, long jobs, and those that waited too long."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select

import workers.pull_loop
from pipeline.engine import Heard, Prepared
from pipeline.job import STAGES, State
from pipeline.parts import Parts, open_parts
from pipeline.queue.redis_queue import Floor, Promotion, RedisQueue
from pipeline.scheduling.dispatch import SHARE
from pipeline.scheduling.policies import Waiting, parse_policy
from pipeline.settings import Settings
from pipeline.store import tables
from pipeline.store.policies import change_policy
from pipeline.store.session import transaction
from tests.lines import eventually, pulling, states, surveyed_job
from workers.echo_engine import EchoEngine
from workers.turns import last_served


class Noting(EchoEngine):
    """Notes whose windows it began, in order."""

    def __init__(self, parts: Parts, **times: Any) -> None:
        super().__init__(per_second_s=0.0, **times)
        self._parts, self._names = parts, dict[bytes, str]()
        self.began: list[str] = []

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        await super().start()

    def on_loop(self, call: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(call)

    def know(self, job_id: str) -> str:
        """The packed speech of a job says whose it is."""
        self._names[self._parts.storage.read_range(f"packed/{job_id}-1", 0, 16)] = job_id
        return job_id

    async def transcribe(self, window: Prepared, **asked: Any) -> Heard:
        self.began.append(self._names[window.pcm[:16]])
        return await super().transcribe(window, **asked)


def row(parts: Parts, job_id: str) -> Any:
    with transaction(parts.store) as c:
        return c.execute(select(tables.jobs).where(tables.jobs.c.id == uuid.UUID(job_id))).one()


def order_by(parts: Parts, text: str, max_wait_s: float = 0.0) -> None:
    policy = parse_policy(text)
    with transaction(parts.store) as c:  # else the reclaimer puts back what the settings say
        change_policy(c, policy, "test")
    for queue in parts.queues.values():
        queue.set_policy(policy)
        queue.max_wait_ms = int(max_wait_s * 1000)


def test_a_newcomer_that_outranks_starts_before_every_slot_has_turned_over_once(
    parts: Parts,
) -> None:
    order_by(parts, "hrrn(1.5)")
    engine = Noting(parts, slots=4, fixed_s=0.4)
    long = engine.know(surveyed_job(parts, windows=60, waited_s=5.0))
    with pulling(parts, engine) as puller:
        eventually(lambda: len(engine.began) >= 8)  # it has had every slot, and has them still
        for _ in range(3):
            newcomer = engine.know(surveyed_job(parts))
            at = len(engine.began)
            eventually(lambda newcomer=newcomer: newcomer in engine.began)
            assert engine.began[at:].index(newcomer) <= engine.slots
        puller.hurry()
    assert row(parts, long).attempt == 1


def test_while_better_ones_wait_no_slot_goes_to_the_long_job_in_hand(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers.pull_loop, "CLAIM_PATIENCE_S", 10.0)  # on a busy machine too
    order_by(parts, "sjf")
    engine = Noting(parts, slots=4, fixed_s=0.06)
    long = engine.know(surveyed_job(parts, windows=200))
    with pulling(parts, engine) as puller:
        eventually(lambda: len(engine.began) >= 8)
        engine.on_loop(engine.hang)  # all four slots come free at one moment, later
        shorts = {engine.know(surveyed_job(parts)) for _ in range(60)}
        engine.on_loop(engine.resume)
        eventually(lambda: shorts < set(engine.began))
        puller.hurry()
    first = min(engine.began.index(short) for short in shorts)
    last = max(engine.began.index(short) for short in shorts)
    assert long not in engine.began[first : last - engine.slots]


def test_a_long_job_fills_what_is_free_and_no_slot_stays_empty_beside_it(parts: Parts) -> None:
    order_by(parts, "sjf")
    engine = Noting(parts, slots=4, fixed_s=30.0)
    engine.know(surveyed_job(parts, windows=60))
    shorts = {engine.know(surveyed_job(parts)) for _ in range(2)}
    with pulling(parts, engine) as puller:
        eventually(lambda: len(engine.began) == 4)
        assert shorts < set(engine.began)
        puller.hurry()


def test_a_job_in_hand_that_gets_no_slot_is_taken_by_another_worker(parts: Parts) -> None:
    order_by(parts, "sjf")
    engine, other = (Noting(parts, slots=1, fixed_s=0.2) for _ in range(2))

    def new_job(windows: int = 1) -> str:
        return other.know(engine.know(surveyed_job(parts, windows)))

    long = new_job(windows=30)
    with pulling(parts, engine, name="one@here") as puller:
        eventually(lambda: len(engine.began) >= 1)
        for _ in range(25):
            new_job()
        eventually(lambda: row(parts, long).state == State.SURVEYED, 15)
        heard = engine.began.count(long)
        with pulling(parts, other, name="two@here"):
            other._fixed_s = engine._fixed_s = 0.02
            eventually(lambda: row(parts, long).state == State.COMPLETED)
        puller.hurry()
    assert row(parts, long).attempt >= 2
    assert heard + other.began.count(long) + engine.began[heard:].count(long) >= 30
    assert len(engine.began) + len(other.began) <= 30 + 25 + 2  # what was saved is not heard again


def test_an_overdue_job_gets_a_tenth_of_the_units_and_does_not_go_round_in_circles(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = 70
    monkeypatch.setattr(workers.pull_loop, "STARVED_S", 0.3)  # sooner than the next promotion
    monkeypatch.setattr(workers.pull_loop, "CLAIM_PATIENCE_S", 10.0)  # on a busy machine too
    order_by(parts, "sjf", max_wait_s=500)
    engine = Noting(parts, slots=2, fixed_s=0.08)
    late = engine.know(surveyed_job(parts, windows=12, waited_s=1000))
    for _ in range(others):
        engine.know(surveyed_job(parts))
    with pulling(parts, engine):
        eventually(lambda: states(parts) == {State.COMPLETED: others + 1}, 60)
    while_others_wait = engine.began[: others - engine.slots]
    for n in range(len(while_others_wait) + 1):
        assert while_others_wait[:n].count(late) <= SHARE * n + 1
    assert while_others_wait.count(late) >= len(while_others_wait) // 11
    assert row(parts, late).attempt == 1


@pytest.mark.parametrize(
    ("units", "slots", "last", "down_to_it"),
    [
        ([], 1, None, 0),
        ([2, 1], 4, None, 3),  # one slot is left
        ([2, 1], 3, 1, 3),
        ([1, 50], 1, 0, 1),
        ([1, 50], 2, 1, 51),  # the long one gets the second slot
    ],
)
def test_who_gets_the_last_free_slot(
    units: list[int], slots: int, last: int | None, down_to_it: int
) -> None:
    held: list[Any] = [SimpleNamespace(waiting=[0] * count) for count in units]
    assert last_served(held, slots) == (None if last is None else held[last], down_to_it)


def test_without_a_longest_wait_rank_alone_decides(parts: Parts) -> None:
    order_by(parts, "sjf")
    engine = Noting(parts, slots=2, fixed_s=0.02)
    late = engine.know(surveyed_job(parts, windows=3, waited_s=100_000))
    for _ in range(20):
        engine.know(surveyed_job(parts))
    with pulling(parts, engine):
        eventually(lambda: states(parts) == {State.COMPLETED: 21})
    assert late not in engine.began[:18]


def test_the_setting_reaches_both_stages(settings: Settings) -> None:
    parts = open_parts(settings.model_copy(update={"max_wait_s": 90.5}))
    assert [parts.queues[stage.name].max_wait_ms for stage in STAGES] == [90_500, 90_500]
    parts.store.dispose()


@pytest.fixture
def queue(parts: Parts) -> RedisQueue:
    """Two that are overdue, `older` first, and a small one that is not; all of one window."""
    order_by(parts, "sjf", max_wait_s=60)
    line = parts.queues["transcribe"]
    now_ms = line.time_ms()
    rows = [("late", 50, 90_000), ("older", 51, 100_000), ("small", 40, 1000)]
    line.enqueue([Waiting(name, bucket, now_ms - age_ms) for name, bucket, age_ms in rows])
    return line


@pytest.mark.parametrize(
    ("windows", "floor_bucket", "jobs", "taken"),
    [
        (9, None, 0, ["small", "late", "older"]),  # by rank alone
        (9, None, 1, ["older", "small", "late"]),
        (9, None, 2, ["older", "late", "small"]),
        (9, 45, 0, ["small"]),  # only it outranks the floor
        (9, 45, 1, ["older", "small"]),  # a promotion goes past it
        (9, 30, 1, ["older"]),
        (1, None, 1, ["older"]),
        (2, None, 1, ["older", "small"]),
    ],
)
def test_a_claim_takes_overdue_jobs_first_as_far_as_promotions_go(
    queue: RedisQueue, windows: int, floor_bucket: int | None, jobs: int, taken: list[str]
) -> None:
    floor = None if floor_bucket is None else Floor(floor_bucket, queue.time_ms())
    claim = queue.claim(windows, floor, Promotion(jobs))
    assert [job.job_id for job in claim.jobs] == taken


def test_only_who_is_older_than_the_one_in_hand_is_promoted(queue: RedisQueue) -> None:
    floor, now_ms = Floor(30, queue.time_ms()), queue.time_ms()
    assert queue.claim(9, floor, Promotion(1, now_ms - 200_000)).jobs == ()
    (job,) = queue.claim(9, floor, Promotion(3, now_ms - 95_000)).jobs
    assert job.job_id == "older"


def test_a_long_job_that_is_promoted_counts_for_the_one_window_it_gets(queue: RedisQueue) -> None:
    queue.enqueue([Waiting("longest", 150, queue.time_ms() - 500_000)])
    claim = queue.claim(3, None, Promotion())
    assert [job.job_id for job in claim.jobs] == ["longest", "small", "late"]
