"""A line in few numbers, against the line itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.scheduling.policies import Waiting, order_key, pairs, parse_policy
from pipeline.scheduling.sketch import Sketch, arrived_before, marked

NOW_MS = 1_700_000_000_000
POLICIES = ["fcfs", "sjf", "hrrn(1)", "hrrn(2.5)", "aged(20)"]


def sketched(crowd: list[Waiting], marks: int) -> Sketch:
    found = {}
    for bucket in {job.bucket for job in crowd}:
        arrivals = sorted(job.arrival_ms for job in crowd if job.bucket == bucket)
        found[bucket] = [(n, arrivals[n]) for n in marked(len(arrivals), marks)]
    return Sketch(found)


places = st.builds(
    lambda bucket, ago_ms: (bucket, NOW_MS - ago_ms),
    st.integers(30, 60),
    st.integers(-5_000, 600_000),
)
crowds = st.lists(places, min_size=1, max_size=60, unique=True)


@given(crowds, places, st.sampled_from(POLICIES), st.integers(0, 100_000))
def test_a_sketch_with_a_mark_for_every_job_counts_exactly(
    crowd: list[tuple[int, int]], place: tuple[int, int], policy: str, later_ms: int
) -> None:
    table, now_ms = pairs(parse_policy(policy)), NOW_MS + later_ms
    waiting = [Waiting(f"{n:03d}", *where) for n, where in enumerate(crowd)]
    asked = Waiting("", *place)
    own = order_key(asked, table, now_ms)
    exact = sum(order_key(job, table, now_ms) < own for job in waiting)
    found = sum(sketched(waiting, 100).ahead(asked, table, now_ms).values())
    # what is solved in floating point may be one off where ranks are all but equal
    ties = sum(
        abs(order_key(job, table, now_ms)[0] - own[0]) <= 1e-9 * abs(own[0])
        and job.bucket != asked.bucket
        for job in waiting
    )
    assert abs(found - exact) <= ties


@given(crowds, places, st.sampled_from(POLICIES), st.integers(2, 6))
def test_a_sketch_of_few_marks_is_wrong_by_a_part_of_each_bucket_at_most(
    crowd: list[tuple[int, int]], place: tuple[int, int], policy: str, marks: int
) -> None:
    table = pairs(parse_policy(policy))
    waiting = [Waiting(f"{n:03d}", *where) for n, where in enumerate(crowd)]
    asked = Waiting("", *place)
    full, few = (sketched(waiting, m).ahead(asked, table, NOW_MS) for m in (100, marks))
    for bucket, count in sketched(waiting, 100).by_bucket().items():
        wrong = abs(full.get(bucket, 0.0) - few.get(bucket, 0.0))
        assert wrong <= count / (marks - 1) + 1
    assert all(0 < before <= sketched(waiting, 100).by_bucket()[b] for b, before in few.items())


def test_arrivals_between_two_marks_are_taken_to_be_evenly_spread() -> None:
    marks = [(0, 1000), (100, 2000)]
    assert [arrived_before(marks, at) for at in (999, 1000, 2000, 2001)] == [0, 0, 100, 101]
    assert 50 <= arrived_before(marks, 1500) <= 51


def test_a_line_that_others_join_holds_both() -> None:
    joined = Sketch({50: [(0, 1000), (9, 2000)]}).joined_by(
        {50: [(0, 1500), (4, 3000)], 60: [(0, 1)]}
    )
    assert joined.by_bucket() == {50: 15, 60: 1}
    assert arrived_before(joined.marks[50], 1000) == 0
    assert 10 <= arrived_before(joined.marks[50], 2001) <= 13
    assert arrived_before(joined.marks[50], 3001) == 15
