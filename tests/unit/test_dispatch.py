"""The next slot: what overtakes what, and how many go by age, whatever comes and whenever."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.scheduling.dispatch import SHARE, Credit, pick
from pipeline.scheduling.policies import Waiting, order_key, pairs, parse_policy
from pipeline.scheduling.work import bucket_work_s

POLICIES = ["fcfs", "sjf", "hrrn(1)", "hrrn(1.5)", "hrrn(3)", "aged(0.5)", "aged(10)"]

loads = st.lists(
    st.tuples(st.integers(60, 110), st.integers(0, 60_000)), min_size=2, max_size=25
).map(lambda rows: [Waiting(f"j{n:02d}", b, 10**9 + ms) for n, (b, ms) in enumerate(rows)])


def served(
    load: list[Waiting], text: str, slots: int = 1, max_wait_ms: int | None = None
) -> list[tuple[int, Waiting, list[Waiting], bool]]:
    """Every start: when, who, who else waited, and whether by age. Jobs take their own work."""
    table, credit = pairs(parse_policy(text)), Credit()
    coming = sorted(load, key=lambda job: job.arrival_ms)
    free = [coming[0].arrival_ms] * slots
    waiting: list[Waiting] = []
    starts: list[tuple[int, Waiting, list[Waiting], bool]] = []
    now_ms = 0
    while coming or waiting:
        now_ms = max(now_ms, heapq.heappop(free))
        if not waiting and coming:
            now_ms = max(now_ms, coming[0].arrival_ms)
        while coming and coming[0].arrival_ms <= now_ms:
            waiting.append(coming.pop(0))
        overdue_ms = now_ms - max_wait_ms if max_wait_ms and credit else None
        job = pick(waiting, table, now_ms, overdue_ms)
        assert job is not None
        by_age = job != pick(waiting, table, now_ms)
        credit.spend() if by_age else credit.earn()
        waiting.remove(job)
        starts.append((now_ms, job, list(waiting), by_age))
        heapq.heappush(free, now_ms + int(bucket_work_s(job.bucket) * 1000))
    return starts


def goes_first(text: str, job: Waiting, other: Waiting, now_ms: int) -> bool:
    """Whether `job` may start before `other`, by the policy's own words and no pair (u, v)."""
    policy = parse_policy(text)
    g = policy.parameter or 0.0
    wait, other_wait = now_ms - job.arrival_ms, now_ms - other.arrival_ms
    size, other_size = bucket_work_s(job.bucket), bucket_work_s(other.bucket)
    near = 1 + 1e-9
    if policy.name == "fcfs":
        return job.arrival_ms <= other.arrival_ms
    if policy.name == "sjf":
        return job.bucket <= other.bucket
    if policy.name == "hrrn":
        return wait * other_size**g * near >= other_wait * size**g
    return job.arrival_ms - other.arrival_ms <= g * 1000 * (other_size - size) + 1e-3


@pytest.mark.parametrize("text", POLICIES)
@given(load=loads, slots=st.integers(1, 4))
def test_a_job_is_overtaken_only_while_the_other_has_the_better_claim(
    text: str, load: list[Waiting], slots: int
) -> None:
    for now_ms, job, passed_over, _ in served(load, text, slots):
        assert all(goes_first(text, job, other, now_ms) for other in passed_over)


@given(load=loads, beta=st.floats(0.01, 50))
def test_under_aged_nobody_is_overtaken_by_what_came_beta_times_its_work_later(
    load: list[Waiting], beta: float
) -> None:
    for _, job, passed_over, _ in served(load, f"aged({beta:.3g})"):
        for other in passed_over:
            bound_ms = float(f"{beta:.3g}") * 1000 * bucket_work_s(other.bucket)
            assert job.arrival_ms <= other.arrival_ms + bound_ms


@pytest.mark.parametrize("text", POLICIES)
@given(load=loads, slots=st.integers(1, 4), max_wait_ms=st.integers(1, 60_000))
def test_only_who_waited_too_long_goes_by_age_and_the_oldest_first(
    text: str, load: list[Waiting], slots: int, max_wait_ms: int
) -> None:
    for now_ms, job, passed_over, by_age in served(load, text, slots, max_wait_ms):
        if by_age:
            assert now_ms - job.arrival_ms >= max_wait_ms
            assert all(job.arrival_ms <= other.arrival_ms for other in passed_over)
        else:
            assert all(goes_first(text, job, other, now_ms) for other in passed_over)


@given(st.lists(st.booleans(), max_size=300))
def test_among_any_units_in_a_row_a_tenth_and_one_are_promoted_at_most(late: list[bool]) -> None:
    credit, promoted = Credit(), [0]
    for somebody_is_late in late:
        by_age = somebody_is_late and bool(credit)
        credit.spend() if by_age else credit.earn()
        promoted.append(promoted[-1] + by_age)
    for first in range(len(promoted)):
        for last in range(first, len(promoted)):
            assert promoted[last] - promoted[first] <= SHARE * (last - first) + 1


def test_while_somebody_is_always_late_exactly_every_eleventh_unit_is_promoted() -> None:
    credit, promoted = Credit(), []
    for unit in range(111):
        if credit:
            credit.spend()
            promoted.append(unit)
        else:
            credit.earn()
    assert promoted == list(range(0, 111, 11))


def test_a_late_job_that_is_first_by_rank_besides_costs_nothing() -> None:
    load = [Waiting("j00", 60, 10**9), *(Waiting(f"j{n:02d}", 90, 10**9) for n in range(1, 9))]
    assert not any(by_age for *_, by_age in served(load, "fcfs", max_wait_ms=1))


def test_who_waits_is_asked_in_the_order_of_the_rule() -> None:
    table = pairs(parse_policy("sjf"))
    late = [Waiting("b", 80, 1000), Waiting("a", 80, 1000), Waiting("c", 70, 1000)]
    waiting = [*late, Waiting("d", 60, 1001)]
    order = []
    while waiting:
        job = pick(waiting, table, 5000, overdue_ms=1000)
        assert job is not None
        order.append(job.job_id)
        waiting.remove(job)
    assert order == ["c", "a", "b", "d"]  # of one age the smaller, of one size the smaller id
    assert pick([], table, 5000) is None
    assert order_key(late[0], table, 5000) > order_key(late[2], table, 5000)
