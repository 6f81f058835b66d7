"""Who is next: the pairs of each policy, their limits, and what they promise."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.scheduling.policies import (
    Policy,
    Waiting,
    arrivals_ahead_ms,
    order_key,
    pairs,
    parse_policy,
    rank,
)
from pipeline.scheduling.work import BUCKETS, GROWTH, bucket_of, bucket_work_s, predicted_work_s

NOW_MS = 1_700_000_000_000
POLICIES = [
    "fcfs",
    "sjf",
    "hrrn(1)",
    "hrrn(1.5)",
    "hrrn(2.5,300)",
    "hrrn(4)",
    "aged(0)",
    "aged(10)",
    "aged(1000)",
]

jobs = st.builds(
    Waiting,
    job_id=st.uuids().map(str),
    bucket=st.integers(0, BUCKETS - 1),
    arrival_ms=st.integers(NOW_MS - 10_000_000, NOW_MS + 1000),
)


@pytest.mark.parametrize(
    ("policy", "bucket", "waited_ms", "expected"),
    [
        ("fcfs", 50, 7_000, 7_000.0),  # the wait itself
        ("sjf", 50, 7_000, -50.0),  # minus the bucket, whatever the wait
        ("hrrn(1)", 0, 7_000, 700_000.0),  # 7000 / 0.01
        ("hrrn(2)", 0, 7_000, 70_000_000.0),  # 7000 / 0.01^2
        ("hrrn(0)", 99, 7_000, 7_000.0),  # S^0 = 1: fcfs
        ("aged(2)", 0, 7_000, 6_980.0),  # 7000 - 2 * 0.01 s in ms
    ],
)
def test_the_rank_of_a_waiting_job(
    policy: str, bucket: int, waited_ms: int, expected: float
) -> None:
    job = Waiting("a", bucket, NOW_MS - waited_ms)
    assert rank(job, pairs(parse_policy(policy)), NOW_MS) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "leans"), [("hrrn(2.5)", (2.5, 2.5)), ("hrrn(2.5,300)", (2.5, 1.0))]
)
def test_hrrn_leans_to_short_jobs_by_g_and_beyond_its_knee_by_one(
    text: str, leans: tuple[float, float]
) -> None:
    table = pairs(parse_policy(text))
    short, long = bucket_of(10.0), bucket_of(1000.0)
    steps = [math.log(table[at][0] / table[at + 1][0]) / math.log(GROWTH) for at in (short, long)]
    assert steps == pytest.approx(leans)
    ranks = [u for u, _ in table]
    assert ranks == sorted(ranks, reverse=True)  # and no step where the two meet


@pytest.mark.parametrize("policy", POLICIES)
@given(older=jobs, gap_ms=st.integers(0, 10_000_000))
def test_inside_a_bucket_the_older_never_goes_after_the_younger(
    policy: str, older: Waiting, gap_ms: int
) -> None:
    table = pairs(parse_policy(policy))
    younger = Waiting("zz", older.bucket, older.arrival_ms + gap_ms)
    assert order_key(older, table, NOW_MS) < order_key(younger, table, NOW_MS)


@given(small=jobs, large=jobs)
def test_under_hrrn_a_long_wait_beats_any_size(small: Waiting, large: Waiting) -> None:
    table = pairs(parse_policy("hrrn(1)"))
    ratio = table[small.bucket][0] / table[large.bucket][0]
    waited_ms = max(0, NOW_MS - small.arrival_ms)
    patient = Waiting("p", large.bucket, NOW_MS - int(waited_ms * ratio * 1.001) - 2)
    if patient.bucket > small.bucket and waited_ms > 0:
        assert rank(patient, table, NOW_MS) > rank(small, table, NOW_MS)


@given(first=jobs, second=jobs, beta=st.sampled_from([0.0, 1.0, 10.0]))
def test_under_aged_nothing_is_overtaken_by_what_came_later_than_its_bound(
    first: Waiting, second: Waiting, beta: float
) -> None:
    table = pairs(Policy("aged", beta))
    head_start_ms = beta * 1000 * (bucket_work_s(first.bucket) - bucket_work_s(second.bucket))
    later = second.arrival_ms - first.arrival_ms > head_start_ms + 1
    if later and second.arrival_ms <= NOW_MS:
        assert order_key(first, table, NOW_MS) < order_key(second, table, NOW_MS)


@pytest.mark.parametrize("policy", POLICIES)
@given(job=jobs, other=jobs)
def test_the_moment_that_bounds_a_bucket_agrees_with_the_order_itself(
    policy: str, job: Waiting, other: Waiting
) -> None:
    table = pairs(parse_policy(policy))
    ahead = other.arrival_ms < arrivals_ahead_ms(job, other.bucket, table, NOW_MS)
    if other.bucket != job.bucket:
        assert ahead == (order_key(other, table, NOW_MS) < order_key(job, table, NOW_MS))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lifo",
        "fcfs(1)",
        "hrrn(x)",
        "hrrn(-1)",
        "hrrn(11)",
        "aged(1e9)",
        "hrrn(nan)",
        "hrrn)",
        "hrrn(1,300)",
        "aged(2,300)",
        "hrrn(2,)",
        "hrrn(2,0)",
    ],
)
def test_a_policy_nobody_knows_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"policy|parameter|number"):
        parse_policy(text)


@pytest.mark.parametrize("text", POLICIES)
def test_a_policy_reads_back_as_it_is_written(text: str) -> None:
    policy = parse_policy(text)
    assert parse_policy(str(policy)) == policy


@given(st.floats(0.011, 1e6))
def test_a_bucket_is_within_five_percent_of_the_work_it_stands_for(work_s: float) -> None:
    assert 1 / GROWTH**0.51 < bucket_work_s(bucket_of(work_s)) / work_s < GROWTH**0.51


def test_more_speech_is_more_work_and_an_unknown_language_counts_as_one() -> None:
    lengths = [1, 5, 30, 60, 600, 36_000]
    work = [predicted_work_s(s, None, "xx") for s in lengths]
    assert work == sorted(work)
    assert bucket_of(10**30) == BUCKETS - 1
