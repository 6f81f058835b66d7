"""The breaker's promises, with a clock of the test's own."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pipeline.breaker import AFTER, FORGET_S, PROBE_EVERY_S, STALL_S, Breaker, Call, NotAsked
from tests.lines import eventually


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker("Postgres", clock=clock)


def fail(breaker: Breaker, times: int = AFTER) -> None:
    for _ in range(times):
        breaker.failed(breaker.call())


def test_it_opens_after_failures_in_a_row_and_says_which_part(breaker: Breaker) -> None:
    fail(breaker, AFTER - 1)
    assert not breaker.is_open
    fail(breaker, 1)
    assert breaker.is_open
    with pytest.raises(NotAsked, match="Postgres does not answer"):
        breaker.call()


def test_an_answer_between_failures_keeps_it_closed(breaker: Breaker) -> None:
    for _ in range(20):
        fail(breaker, AFTER - 1)
        breaker.answered(breaker.call())
    assert not breaker.is_open


def test_failures_far_apart_are_not_in_a_row(breaker: Breaker, clock: Clock) -> None:
    for _ in range(20):
        fail(breaker, 1)
        clock.now_s += FORGET_S + 1
    assert not breaker.is_open


def test_one_call_a_second_is_let_through_and_its_answer_closes_it(
    breaker: Breaker, clock: Clock
) -> None:
    fail(breaker)
    let_through = 0
    for _ in range(100):
        clock.now_s += 0.1
        try:
            breaker.failed(breaker.call())
            let_through += 1
        except NotAsked:
            pass
    assert 9 <= let_through <= 10
    clock.now_s += PROBE_EVERY_S
    breaker.answered(breaker.call())
    assert not breaker.is_open
    breaker.answered(breaker.call())


def test_a_probe_that_hangs_does_not_keep_the_next_from_asking(
    breaker: Breaker, clock: Clock
) -> None:
    fail(breaker)
    clock.now_s += PROBE_EVERY_S
    breaker.call()
    clock.now_s += PROBE_EVERY_S
    breaker.answered(breaker.call())
    assert not breaker.is_open


def test_failures_of_calls_from_before_it_closed_do_not_open_it_again(
    breaker: Breaker, clock: Clock
) -> None:
    hanging = [breaker.call() for _ in range(20)]
    fail(breaker)
    clock.now_s += PROBE_EVERY_S
    breaker.answered(breaker.call())
    for call in hanging:
        breaker.failed(call)
    assert not breaker.is_open


def test_when_nobody_is_answered_it_opens_and_lets_go_of_those_who_wait(
    breaker: Breaker, clock: Clock
) -> None:
    hanging = [breaker.call() for _ in range(AFTER)]
    clock.now_s += STALL_S - 0.1
    assert not breaker.is_open
    assert not any(breaker.gives_up(call) for call in hanging)
    clock.now_s += 0.1
    assert all(breaker.gives_up(call) for call in hanging)
    assert breaker.is_open


def test_one_who_waits_alone_is_let_go_of_when_a_question_beside_it_fails(clock: Clock) -> None:
    def fails() -> None:
        raise OSError

    breaker = Breaker("Postgres", fails, clock=clock)
    call = breaker.call()
    clock.now_s += STALL_S
    breaker.gives_up(call)
    eventually(lambda: breaker.is_open)
    assert breaker.gives_up(call)
    clock.now_s += FORGET_S + 1  # nobody wants to know any more: it is asked no longer


def test_one_who_waits_alone_waits_on_when_a_question_beside_it_is_answered(clock: Clock) -> None:
    asked = threading.Event()
    breaker = Breaker("Postgres", asked.set, clock=clock)
    call = breaker.call()
    clock.now_s += STALL_S
    assert not breaker.gives_up(call)
    assert asked.wait(5)
    assert not breaker.gives_up(call)
    assert not breaker.is_open


def test_slow_calls_beside_answered_ones_are_only_slow(breaker: Breaker, clock: Clock) -> None:
    slow = [breaker.call() for _ in range(10)]
    for _ in range(100):
        clock.now_s += 1
        breaker.answered(breaker.call())
        assert not any(breaker.gives_up(call) for call in slow)
    assert not breaker.is_open


def test_a_call_that_asked_nobody_says_nothing_of_the_part(breaker: Breaker) -> None:
    fail(breaker, AFTER - 1)
    breaker.abandoned(breaker.call())
    fail(breaker, 1)
    assert breaker.is_open


def test_where_it_can_be_asked_no_caller_waits_and_its_return_is_found() -> None:
    there = threading.Event()
    asked = []

    def ask() -> None:
        asked.append(time.monotonic())
        if not there.is_set():
            raise OSError("refused")

    breaker = Breaker("Redis", ask)
    fail(breaker)
    while len(asked) < 2:
        with pytest.raises(NotAsked):
            breaker.call()
        time.sleep(0.01)
    assert asked[1] - asked[0] >= PROBE_EVERY_S
    there.set()
    eventually(lambda: not breaker.is_open, PROBE_EVERY_S + 0.5)
    breaker.answered(breaker.call())
    assert len(asked) == 3


class Life(RuleBasedStateMachine):
    """Any calls of any callers, a part that goes and comes back, and time that passes."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.breaker = Breaker("it", clock=self.clock)
        self.waiting: list[Call] = []
        self.failed_in_a_row = 0

    @rule(step_s=st.sampled_from([0.001, 0.3, 1.0, 4.0, 40.0]))
    def time_passes(self, step_s: float) -> None:
        self.clock.now_s += step_s

    @rule()
    def somebody_asks(self) -> None:
        try:
            self.waiting.append(self.breaker.call())
        except NotAsked:
            # never turned away without a reason
            hung = [c for c in self.waiting if self.clock.now_s - c.begun_s >= STALL_S]
            assert self.failed_in_a_row >= AFTER or len(hung) >= AFTER or self.was_open

    was_open = False

    @invariant()
    def remember(self) -> None:
        self.was_open = self.breaker.is_open

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 50))
    def an_answer(self, which: int) -> None:
        self.breaker.answered(self.waiting.pop(which % len(self.waiting)))
        self.failed_in_a_row = 0
        assert not self.breaker.is_open

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 50))
    def a_failure(self, which: int) -> None:
        self.breaker.failed(self.waiting.pop(which % len(self.waiting)))
        self.failed_in_a_row += 1

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 50))
    def nobody_knows(self, which: int) -> None:
        self.breaker.abandoned(self.waiting.pop(which % len(self.waiting)))

    @rule()
    def who_waits_a_second_is_let_through(self) -> None:
        self.clock.now_s += PROBE_EVERY_S * 1.001  # sums of floats
        self.waiting.append(self.breaker.call())


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
