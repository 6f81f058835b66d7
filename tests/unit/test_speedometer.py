"""How fast a worker is: work that ended over the time it kept slots busy."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.speedometer import (
    GAP_LIMIT_S,
    KEPT_S,
    KEPT_UNITS,
    LEAST_UNITS,
    Speedometer,
    cost_beside,
)


def test_nothing_is_said_before_the_first_unit_has_ended() -> None:
    assert Speedometer(slots=8).speed(now_s=0.0) is None


def test_it_finds_the_speed_of_slots_that_were_busy_all_the_time_whatever_the_units() -> None:
    # 4 slots side by side, each does 2.5 units of work a second: together 10
    rng, meter, clock_s = random.Random(1), Speedometer(slots=4), [0.0] * 4
    for _ in range(150):
        slot = clock_s.index(min(clock_s))
        work = rng.uniform(1.0, 20.0)
        clock_s[slot] += work / 2.5
        meter.note(work, work / 2.5, now_s=clock_s[slot])
    assert meter.speed(now_s=max(clock_s)) == pytest.approx(10.0)


def test_a_change_of_pace_shows_after_as_many_units_as_are_kept() -> None:
    meter = Speedometer(slots=1)
    for n in range(3 * KEPT_UNITS):
        meter.note(1.0, 1.0 if n < KEPT_UNITS else 4.0, now_s=0.0)
    assert meter.speed(now_s=0.0) == pytest.approx(0.25)


def test_old_units_are_forgotten_but_for_the_newest() -> None:
    meter = Speedometer(slots=1)
    for n in range(100):
        meter.note(1.0, 1.0 if n < 100 - LEAST_UNITS else 2.0, now_s=0.0)
    assert meter.speed(now_s=KEPT_S) == pytest.approx(100 / (100 + LEAST_UNITS))
    assert meter.speed(now_s=KEPT_S + 1) == pytest.approx(0.5)  # an idle night later as well


@pytest.mark.parametrize(("work", "residence_s"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)])
def test_what_says_nothing_about_speed_is_left_out(work: float, residence_s: float) -> None:
    meter = Speedometer(slots=1)
    meter.note(work, residence_s, now_s=0.0)
    assert meter.speed(now_s=0.0) is None


def test_the_time_a_claim_takes_counts_only_while_all_slots_are_wanted() -> None:
    meter = Speedometer(slots=2)
    assert [meter.start(now_s=0.0), meter.start(now_s=0.0)] == [0.0, 0.0]
    meter.end(now_s=1.0)
    assert meter.start(now_s=1.1) == 1.0  # full again: the slot was on its way to its next unit
    meter.end(now_s=2.0)
    meter.end(now_s=2.0)
    assert meter.start(now_s=2.1) == 2.1  # the other stands idle: there was no more work
    assert meter.start(now_s=2.0 + GAP_LIMIT_S + 0.01) == 2.0 + GAP_LIMIT_S + 0.01  # idle as well


def test_small_units_first_say_what_large_ones_will_take() -> None:
    # a unit takes 0.05 s and 0.01 s for each unit of work: 5 of work beside its own
    rng, meter = random.Random(1), Speedometer(slots=2, learns_beside=True)
    for work in sorted(rng.lognormvariate(2.5, 0.6) for _ in range(60)):
        meter.note(work, (0.05 + 0.01 * work) * rng.lognormvariate(0.0, 0.1), now_s=0.0)
    speed, beside = meter.measured(now_s=0.0) or (0.0, 0.0)
    assert 2 * (300 + beside) / speed == pytest.approx(3.05, rel=0.1)
    plain = Speedometer(slots=2)
    for at, work, residence_s in meter._units:
        plain.note(work, residence_s, now_s=at)
    assert 2 * 300 / (plain.speed(now_s=0.0) or 0.0) > 3.6  # as the small ones alone tell it


def test_units_all_alike_are_taken_to_cost_nothing_beside() -> None:
    rng = random.Random(2)
    alike = [(5.0, rng.lognormvariate(0.0, 0.5)) for _ in range(100)]
    assert cost_beside(alike) == pytest.approx(0.0)
    assert cost_beside([(5.0, 1.0)]) == 0.0


@given(st.lists(st.tuples(st.floats(0.01, 1e4), st.floats(0.001, 1e4)), min_size=1, max_size=50))
def test_what_a_unit_costs_beside_is_never_below_nothing_nor_above_half_a_mean_unit(
    units: list[tuple[float, float]],
) -> None:
    mean = sum(work for work, _ in units) / len(units)
    assert 0.0 <= cost_beside(units) <= mean / 2 * (1 + 1e-9)
