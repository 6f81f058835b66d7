"""When will it be done: the arithmetic, with the sums beside the rows, and what always holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.scheduling.forecast import (
    NOTHING,
    OVERTAKING_LIMIT,
    Amount,
    Capacity,
    Inflow,
    inflow,
    rest_s,
    service_s,
    turn_s,
    with_overtaking,
)
from pipeline.scheduling.policies import Waiting, pairs, parse_policy
from pipeline.scheduling.reasons import why
from pipeline.scheduling.work import bucket_work_s

ONE = Capacity(speed=8.0, slots=4, workers=1)
"""A unit of work 2.0 keeps its slot for 4 * 2 / 8 = 1 s."""
TWO = Capacity(speed=16.0, slots=8, workers=2)
"""Two of it."""
NOW_MS = 1_700_000_000_000

works = st.floats(0.0, 1e6)
counts = st.integers(0, 2000)
amounts = st.builds(Amount, works, counts)
capacities = st.builds(
    lambda speed, slots, workers: Capacity(speed, slots * workers, workers),
    st.floats(0.01, 1e4),
    st.integers(1, 64),
    st.integers(1, 8),
)


@pytest.mark.parametrize(
    ("waiting", "serving", "expected_s"),
    [
        (0.0, NOTHING, 0.0),
        (24.0, NOTHING, 3.0),  # 24 / 8
        (24.0, Amount(6.0, 3), 3.0),  # all in a slot: as many of us start when they end
        (0.0, Amount(20.0, 10), 1.5),  # 6 of 10 units are not in a slot yet: 6 * 2 / 8
    ],
)
def test_a_turn_comes_when_what_goes_before_has_been_let_in(
    waiting: float, serving: Amount, expected_s: float
) -> None:
    assert turn_s(ONE, waiting, serving) == pytest.approx(expected_s)


@pytest.mark.parametrize(
    ("capacity", "own", "free", "expected_s"),
    [
        (ONE, Amount(2.0, 1), 0, 1.0),
        (ONE, Amount(8.0, 4), 4, 1.0),  # one round
        (ONE, Amount(16.0, 8), 4, 2.0),  # two rounds
        (ONE, Amount(8.0, 4), 0, 1.75),  # the last of 4 is let in after 3 * 2 / 8, and lasts 1
        (TWO, Amount(16.0, 8), 8, 2.0),  # in one worker's hands: 4 slots, not 8
    ],
)
def test_service_goes_in_rounds_of_one_workers_slots(
    capacity: Capacity, own: Amount, free: int, expected_s: float
) -> None:
    assert service_s(capacity, own, free) == pytest.approx(expected_s)


def rest(left: Amount, whole: Amount, **how: float) -> float:
    given = {"since_s": 0.0, "waiting_work": 0.0, "busy_slots": 4, **how}
    serving = Amount(2.0 * given.pop("serving", 0), int(how.get("serving", 0)))
    return rest_s(ONE, left, whole=whole, serving=serving, **given)  # type: ignore[arg-type]


def test_a_job_in_hand_ends_when_its_units_have_gone_through_what_outranks_it() -> None:
    one, four, twelve = Amount(2.0, 1), Amount(8.0, 4), Amount(24.0, 12)
    assert rest(one, one, since_s=0.4) == pytest.approx(0.6)  # 1 s of service, 0.4 s ago
    assert rest(one, one, since_s=9.0) == pytest.approx(0.1)  # overdue: soon, never negative
    assert rest(one, four) == pytest.approx(0.5)  # in a slot for who knows how long
    assert rest(twelve, twelve) == pytest.approx(3.0)  # 8 beyond its slots: 8 * 2 / 8, and 1
    assert rest(twelve, twelve, waiting_work=8.0) == pytest.approx(4.0)
    assert rest(twelve, twelve, serving=4) == pytest.approx(4.0)  # 12 of 16 are beyond
    assert rest(NOTHING, four, serving=40) == 0.0  # only its end is left to be written


@given(capacities, works, amounts, amounts, amounts, st.floats(0.0, 1e6), counts)
def test_no_forecast_is_ever_negative(
    capacity: Capacity,
    waiting: float,
    serving: Amount,
    left: Amount,
    whole: Amount,
    since_s: float,
    busy: int,
) -> None:
    assert turn_s(capacity, waiting, serving) >= 0
    assert service_s(capacity, whole, capacity.slots - busy) >= 0
    found = rest_s(
        capacity,
        left,
        whole=whole,
        since_s=since_s,
        serving=serving,
        waiting_work=waiting,
        busy_slots=busy,
    )
    assert found >= 0


# -- newcomers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fcfs", 0.0),  # nobody who comes later goes before
        ("sjf", 10.0),  # all smaller ones: one a second for 10 s, 1.0 of work each
        # S is 1 and 8, W 10 s: at the turn it has waited 20 s, and 20 / 8^1 = 2.5 s of a newcomer's
        # wait are worth as much: who comes in the first 7.5 s overtakes
        ("hrrn(1)", 7.5),
    ],
)
def test_newcomers_overtake_as_the_policy_lets_them(policy: str, expected: float) -> None:
    small, large = 48, 70
    ratio = bucket_work_s(large) / bucket_work_s(small)
    place = Waiting("a", large, NOW_MS - 10_000)
    coming = Inflow({small: 1.0, 120: 5.0})
    found = coming.overtaking(
        place, pairs(parse_policy(policy)), NOW_MS, 10.0, lambda b: b == small
    )
    assert ratio == pytest.approx(8.0, rel=0.02)
    assert found == pytest.approx(expected, rel=0.02)


def test_the_inflow_is_not_taken_from_a_folder_sent_at_once() -> None:
    steady = [{50: 2, 60: 1}] * 4
    assert inflow(steady, 5.0, lambda _: 1.0).per_s == pytest.approx({50: 0.4, 60: 0.2})
    flooded = inflow([*steady, {50: 1000}], 5.0, lambda _: 1.0).per_s
    assert sum(flooded.values()) == pytest.approx(0.6)
    assert inflow([{50: 900}, {}, {}], 5.0, lambda _: 1.0).per_s == {}  # nothing is known before


def test_overtaking_lengthens_a_wait_but_never_without_end() -> None:
    assert with_overtaking(10.0, 2.0, lambda t: 0.0) == 10.0
    assert with_overtaking(10.0, 2.0, lambda t: 0.5 * t) == pytest.approx(10 / 0.75, rel=0.02)
    longest = 10 / (1 - OVERTAKING_LIMIT)
    assert with_overtaking(10.0, 2.0, lambda t: 100 * t) == pytest.approx(longest, rel=0.03)


# -- reasons --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "position", "sentence"),
    [
        ("fcfs", 1, "waited 30 s, the longest"),
        ("sjf", 2, "6 s of work, number 2 from the least"),
        ("hrrn(1)", 1, "waited 30 s for 6 s of work: 30/6 = 5, the highest"),
        ("hrrn(1.5)", 1, "waited 30 s for 6 s of work: 30/6^1.5 = 2.041, the highest"),
        ("aged(2)", 3, "waited 30 s less 2 times 6 s of work = 18, number 3 from the highest"),
    ],
)
def test_a_place_has_a_reason_with_numbers(policy: str, position: int, sentence: str) -> None:
    assert why(parse_policy(policy), 30.0, 6.0, position) == sentence
