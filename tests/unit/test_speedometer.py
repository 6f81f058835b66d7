"""How fast a worker is: work that ended over the time it kept slots busy."""

from __future__ import annotations

import random

import pytest

from workers.speedometer import (
    GAP_LIMIT_S,
    KEPT_S,
    KEPT_UNITS,
    LEAST_UNITS,
    Speedometer,
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
