"""Switchback statistics: no wolf is cried, a worse policy is sent back, a better one is seen."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.scheduling.switchback import (
    JOBS_LEAST,
    LEVEL,
    THINNED,
    WASH_OUT,
    A,
    B,
    Block,
    Verdict,
    block_of,
    compare,
    in_words,
    sides,
    student,
    verdict,
)

PAIRS = 6


def tried(draw: random.Random, b_over_a: float, jobs: int = 40, swing: float = 0.3) -> Verdict:
    """A trial as the errand makes it: it looks after each pair and ends when B is worse.

    Jobs are lognormal; each block has a level of its own, and each pair one more: the time of day.
    """
    blocks: list[Block] = []
    order = sides(2 * PAIRS, draw.randrange(2**31))
    for pair in range(PAIRS):
        day = draw.gauss(0, 0.5)
        for side in order[2 * pair : 2 * pair + 2]:
            level = math.exp(2 + day + draw.gauss(0, swing)) * (b_over_a if side == B else 1.0)
            blocks.append(Block(side, [level * math.exp(draw.gauss(0, 1)) for _ in range(jobs)]))
        found = verdict(compare(blocks, PAIRS, seed=pair))
        if found is Verdict.WORSE:
            break
    return found


def test_a_trial_of_no_difference_cries_wolf_no_more_often_than_its_level() -> None:
    draw, trials = random.Random(5), 60
    seen = Counter(tried(draw, 1.0) for _ in range(trials))
    # 95 % of the time a coin of LEVEL falls less often than this
    limit = LEVEL * trials + 1.64 * math.sqrt(trials * LEVEL * (1 - LEVEL))
    assert seen[Verdict.WORSE] <= limit
    assert seen[Verdict.BETTER] <= limit


@pytest.mark.parametrize(("b_over_a", "expected"), [(4.0, Verdict.WORSE), (0.25, Verdict.BETTER)])
def test_a_clear_difference_is_seen(b_over_a: float, expected: Verdict) -> None:
    draw = random.Random(6)
    seen = Counter(tried(draw, b_over_a) for _ in range(20))
    assert seen[expected] >= 18


def even(level: float, jobs: int = 40) -> list[float]:
    return [level * (1 + n / jobs) for n in range(jobs)]


def pairs_of(a: list[float], b: list[float], pairs: int) -> list[Block]:
    return [block for _ in range(pairs) for block in (Block(A, a), Block(B, b))]


def test_nothing_is_decided_before_three_pairs_or_by_few_jobs() -> None:
    assert verdict(compare(pairs_of(even(1), even(9), 2), PAIRS)) is Verdict.OPEN
    assert verdict(compare(pairs_of(even(1), even(9), 3), PAIRS)) is Verdict.WORSE
    few = compare(pairs_of(even(1, jobs=(JOBS_LEAST - 1) // 3), even(9), 3), PAIRS)
    assert (verdict(few), few.quantiles) == (Verdict.OPEN, {})
    assert "too few to compare" in in_words(few)


def test_a_block_without_its_partner_does_not_count() -> None:
    whole = pairs_of(even(1), even(2), 3)
    assert compare([*whole, Block(A, even(1e6))], PAIRS) == compare(whole, PAIRS)


def test_what_is_worse_within_the_margin_is_not_sent_back() -> None:
    assert verdict(compare(pairs_of(even(1), even(1.09), 6), PAIRS)) is Verdict.OPEN
    assert verdict(compare(pairs_of(even(1), even(1.15), 6), PAIRS)) is Verdict.WORSE


def test_what_is_better_for_most_and_worse_at_the_end_is_not_called_better() -> None:
    tail = [*even(0.5, jobs=98), 90.0, 99.0]
    seen = compare(pairs_of(even(1, jobs=100), tail, 6), PAIRS)
    assert seen.quantiles["p50"].high < 1
    assert seen.quantiles["p99"].ratio > 1.1
    assert verdict(seen) is Verdict.OPEN


def test_many_jobs_are_thinned_and_their_quantiles_stay() -> None:
    plain = compare(pairs_of(even(1, jobs=THINNED), even(2, jobs=THINNED), 3), PAIRS)
    many = compare(pairs_of(even(1, jobs=20 * THINNED), even(2, jobs=7 * THINNED), 3), PAIRS)
    assert many.jobs_a == 60 * THINNED
    for name, ratio in plain.quantiles.items():
        assert many.quantiles[name].a_s == pytest.approx(ratio.a_s, rel=0.01)
        assert many.quantiles[name].ratio == pytest.approx(ratio.ratio, rel=0.01)


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(0, 2**63 - 1))
def test_blocks_come_in_pairs_of_both_sides_the_same_for_the_same_seed(
    pairs: int, seed: int
) -> None:
    order = sides(2 * pairs, seed)
    assert all(set(order[n : n + 2]) == {A, B} for n in range(0, 2 * pairs, 2))
    assert order == sides(2 * pairs, seed)


@pytest.mark.parametrize("blocks", [0, 1, 7])
def test_an_odd_number_of_blocks_is_refused(blocks: int) -> None:
    with pytest.raises(ValueError, match="pairs"):
        sides(blocks, 1)


@settings(deadline=None)
@given(st.floats(0, 1e6), st.floats(0.5, 1e4))
def test_a_job_counts_for_the_block_it_arrived_in_unless_that_has_just_begun(
    offset_s: float, block_s: float
) -> None:
    block = block_of(offset_s, block_s)
    if block is not None:
        assert block * block_s <= offset_s
        inside = offset_s - block * block_s
        assert WASH_OUT * block_s * 0.999 <= inside + 1e-6 * offset_s


@pytest.mark.parametrize(
    ("p", "freedom", "t"),
    # of printed tables
    [(0.95, 3, 2.353), (0.975, 4, 2.776), (0.995, 5, 4.032), (0.99, 9, 2.821), (0.999, 20, 3.552)],
)
def test_students_quantiles_are_those_of_the_tables(p: float, freedom: int, t: float) -> None:
    assert student(p, freedom) == pytest.approx(t, abs=6e-4)
