"""auto: g follows the backlog without flapping, and every move says why."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.scheduling.adaptive import (
    LADDER,
    LOOK_EACH_S,
    PART,
    STAY_S,
    Move,
    Signals,
    decide,
    pressure,
)
from pipeline.scheduling.policies import Policy

TOP = LADDER[-1]

backlogs = st.floats(0, 1e6)
shares = st.floats(0, 1)


def run(backlog: Iterable[float], in_force: Policy = LADDER[0].policy) -> list[tuple[float, Move]]:
    """(when, move) of a decider asked every five seconds; `backlog` in rounds of one second."""
    since_s, moves = -STAY_S, []
    for n, rounds in enumerate(backlog):
        at_s = n * LOOK_EACH_S
        if move := decide(Signals(rounds, 1.0), in_force, at_s - since_s):
            in_force, since_s = move.policy, at_s
            moves.append((at_s, move))
    return moves


def test_idle_is_fcfs_and_a_large_backlog_the_top_of_the_ladder() -> None:
    top = TOP.policy
    assert run([0.0] * 100) == []
    assert [move.policy for _, move in run([1e4] * 100)] == [top]
    assert run([0.0] * 100, in_force=top)[-1][1].policy == Policy("fcfs")


@settings(deadline=None)
@given(backlogs, st.sampled_from([rung.policy for rung in LADDER] + [Policy("sjf")]))
def test_a_constant_backlog_moves_it_once_at_most(rounds: float, in_force: Policy) -> None:
    assert len(run([rounds] * 200, in_force)) <= 1


@settings(deadline=None)
@given(st.floats(0.01, 1e5), st.floats(60, 3600))
def test_a_backlog_that_swings_by_less_than_the_hysteresis_moves_nothing_after_its_first_swing(
    middle: float, period_s: float
) -> None:
    swing = math.sqrt(1 / PART) * 0.999  # of the highest to the lowest: less than 1 / part
    wave = [middle * swing ** math.sin(math.tau * n * LOOK_EACH_S / period_s) for n in range(3000)]
    settled_s = 1.5 * period_s + STAY_S * len(LADDER)
    assert [move for at_s, move in run(wave) if at_s > settled_s] == []


@settings(deadline=None)
@given(st.lists(backlogs, min_size=2, max_size=300))
def test_a_policy_holds_for_its_minimum_stay_whatever_the_backlog_does(wild: list[float]) -> None:
    times = [at_s for at_s, _ in run(wild)]
    assert all(b - a >= STAY_S for a, b in itertools.pairwise(times))


@settings(deadline=None)
@given(backlogs, st.floats(0.001, 1e4), shares, shares)
def test_a_move_goes_to_a_rung_and_tells_the_numbers_it_was_made_by(
    drain_s: float, round_s: float, short: float, long: float
) -> None:
    for held in LADDER:
        move = decide(Signals(drain_s, round_s, short, long), held.policy, 1e9)
        if move is not None:
            assert move.policy != held.policy
            assert move.policy in [rung.policy for rung in LADDER]
            assert f"{drain_s:.1f} s of work wait" in move.reason
            assert move.reason.endswith(".")


@settings(deadline=None)
@given(backlogs, backlogs)
def test_a_larger_backlog_never_leads_to_a_smaller_g(one: float, other: float) -> None:
    def g(rounds: float) -> float:
        move = decide(Signals(rounds, 1.0), Policy("fcfs"), 1e9)
        return (move.policy.parameter or 0.0) if move else 0.0

    assert (g(min(one, other))) <= g(max(one, other))


@pytest.mark.parametrize(
    ("short", "long", "lower", "higher"),
    [(0.0, 0.5, True, False), (0.5, 0.0, False, True), (0.3, 0.3, False, False)],
)
def test_long_jobs_at_risk_lower_g_and_short_ones_raise_it(
    short: float, long: float, lower: bool, higher: bool
) -> None:
    plain = pressure(Signals(10.0, 1.0))
    leaned = pressure(Signals(10.0, 1.0, short, long))
    assert (leaned < plain, leaned > plain) == (lower, higher)


def test_jobs_at_risk_are_told_in_the_reason() -> None:
    move = decide(Signals(TOP.pressure, 1.0, long_at_risk=0.75), TOP.policy, 1e9)
    assert move is not None
    assert (move.policy.parameter or 0.0) < TOP.g
    assert "75% long" in move.reason


def test_a_policy_that_is_not_on_the_ladder_is_left_at_once() -> None:
    move = decide(Signals(0.0, 1.0), Policy("sjf"), 0.0)
    assert move is not None
    assert move.policy == Policy("fcfs")
