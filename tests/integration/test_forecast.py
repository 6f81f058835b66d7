"""Forecasts on real Postgres and Redis: exact places, and times that come true."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import update

from bench.answers import measure
from bench.eta import lengths, put_surveyed
from pipeline.job import TRANSCRIBE
from pipeline.parts import Parts
from pipeline.queue import keys
from pipeline.queue.board import SPEED_KEPT_S
from pipeline.queue.redis_queue import connect
from pipeline.scheduling.calibration import Calibration
from pipeline.scheduling.work import bucket_survey_s
from pipeline.steps.forecast import forecast_batch, forecast_job, look
from pipeline.steps.forecast.told import UNKNOWN, Forecast
from pipeline.store import load, tables
from pipeline.store.session import transaction
from tests import driven
from tests.lines import eventually, pulling
from tests.standing import UNIT_S, parts, report, set_policy, waiting
from workers.echo_engine import EchoEngine

__all__ = ["parts"]


def eta(parts: Parts, job_id: str) -> float:
    """By queue arithmetic alone, its place asked of its line."""
    with transaction(parts.store) as c:
        found = load.standing(c, job_id)
    assert found is not None
    raw_s = look(parts).raw_s(found[0])
    assert raw_s is not None
    return raw_s


@pytest.mark.parametrize("policy", ["sjf", "hrrn(1.5)"])
def test_forecasts_under_load_come_true(parts: Parts, policy: str) -> None:
    set_policy(parts, policy)
    sizes = lengths(60, seed=2, call_s=60.0)
    with pulling(parts, EchoEngine(slots=4, fixed_s=0.06, per_second_s=0.004)):
        put_surveyed(parts, 20.0)  # so that a speed is known
        eventually(lambda: look(parts).measures.capacity(TRANSCRIBE))
        run = measure(
            parts,
            [lambda s=s: put_surveyed(parts, s) for s in sizes],  # type: ignore[misc]
            lambda: 0.04,
            lambda job_id: forecast_job(parts, job_id).times,
            burst=30,
            every_s=0.2,
        )
    errors = run.errors()
    assert len(run.ends_s) == 60
    assert len(errors) >= 20
    assert statistics.median(errors) <= 0.5
    assert all(0.0 <= times.p50_s <= times.p90_s for times, _ in run.told())
    assert run.held() >= 0.7


# -- one job --------------------------------------------------------------------------------


def test_nobody_can_say_while_no_worker_is_known_to_do_anything(parts: Parts) -> None:
    (job_id,) = waiting(parts, 1)
    assert forecast_job(parts, job_id) == Forecast(1, None)
    report(parts, transcribe=None)  # it is there, and has heard nothing yet
    assert forecast_job(parts, job_id) == Forecast(1, None)


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "hrrn(1.5)"])
def test_a_waiting_job_waits_for_what_goes_before_it(parts: Parts, policy: str) -> None:
    set_policy(parts, policy)
    report(parts, transcribe=2 * UNIT_S)  # a window keeps one of 2 slots for 1 s
    ids = waiting(parts, 3)
    third = forecast_job(parts, ids[2])
    assert third.position == 3
    assert eta(parts, ids[2]) == pytest.approx(2 / 2 + 1.0, rel=0.05)
    assert third.times is not None
    assert 0 < third.times.p50_s < third.times.p90_s < 10


def test_more_workers_are_faster_and_one_that_fell_silent_does_not_count(parts: Parts) -> None:
    ids = waiting(parts, 9)
    report(parts, transcribe=2 * UNIT_S)
    alone_s = eta(parts, ids[-1])
    board = parts.queues[TRANSCRIBE.name].board
    board.report_speed("second@there", 2 * UNIT_S, 2)
    assert eta(parts, ids[-1]) < alone_s
    redis = connect(parts.settings.redis_url or "")
    key = keys.speed(TRANSCRIBE.name)
    at_ms = parts.queues[TRANSCRIBE.name].time_ms() - int(SPEED_KEPT_S * 1000) - 1
    redis.hset(key, "second@there", f'{{"speed": 9.0, "slots": 2, "at_ms": {at_ms}}}')
    redis.hset(key, "third@there", "by another version")
    now_ms = parts.queues[TRANSCRIBE.name].time_ms()
    for n, (speed, slots) in enumerate(
        [("9", "Infinity"), ("NaN", "2"), ("Infinity", "2"), ("-9", "2"), ("9", "0")]
    ):
        told = f'{{"speed": {speed}, "slots": {slots}, "at_ms": {now_ms}}}'
        redis.hset(key, f"odd-{n}@there", told)
    later_ms = now_ms + 3_600_000  # as it was before the clock was set back
    redis.hset(key, "early@there", f'{{"speed": 9.0, "slots": 2, "at_ms": {later_ms}}}')
    assert eta(parts, ids[-1]) == pytest.approx(alone_s, rel=0.05)
    assert redis.hkeys(key) == ["transcribe@here"]  # and is forgotten
    board.forget_speed("transcribe@here")
    assert forecast_job(parts, ids[-1]).times is None


def test_a_job_in_work_has_no_place_and_what_is_left_of_its_time(parts: Parts) -> None:
    report(parts, transcribe=2 * UNIT_S)
    ticket = driven.running(parts, driven.received(parts))
    found = forecast_job(parts, ticket.job_id)
    assert found.position is None
    assert found.times is not None
    assert 0 < found.times.p50_s < 3.0


def test_a_job_that_is_not_surveyed_yet_waits_for_whichever_takes_longer(parts: Parts) -> None:
    set_policy(parts, "fcfs")
    waiting(parts, 4)
    job_id = driven.received(parts)
    driven.probed(parts, job_id)
    audio_s = bucket_survey_s(50)
    report(parts, transcribe=2 * UNIT_S, survey=None)
    assert forecast_job(parts, job_id) == Forecast(1, None)
    report(parts, transcribe=2 * UNIT_S, survey=2 * audio_s)  # a file is surveyed in 1 s
    assert eta(parts, job_id) == pytest.approx(4 / 2 + 1.0, rel=0.05)  # the engine is behind
    report(parts, transcribe=2 * UNIT_S, survey=audio_s / 5)  # in 10 s
    assert eta(parts, job_id) == pytest.approx(10.0 + 1.0, rel=0.05)


def test_what_is_not_surveyed_but_outranks_it_is_ahead_of_a_job_too(parts: Parts) -> None:
    set_policy(parts, "fcfs")
    first = driven.received(parts)
    (second,) = waiting(parts, 1)
    report(parts, transcribe=UNIT_S)  # 2 slots, 2 s a window
    alone_s = eta(parts, second)
    driven.probed(parts, first)
    assert forecast_job(parts, second).position == 1  # in the queue of its own stage
    assert eta(parts, second) == pytest.approx(alone_s + 1.0, rel=0.05)


@pytest.mark.parametrize("end", [driven.completed, driven.failed])
def test_a_job_that_has_ended_or_is_not_probed_has_neither(
    parts: Parts, end: Callable[[Parts, str], None]
) -> None:
    report(parts, transcribe=1.0, survey=1.0)
    ended, fresh = driven.received(parts), driven.received(parts)
    end(parts, ended)
    for job_id in (ended, fresh, driven.nobody()):
        assert forecast_job(parts, job_id) == UNKNOWN


# -- a batch, and all -----------------------------------------------------------------------


def batch_s(parts: Parts, batch_id: str) -> float:
    times = forecast_batch(parts, batch_id)
    assert times is not None
    assert times.p50_s <= times.p90_s
    return times.p50_s


def job_s(parts: Parts, job_id: str) -> float:
    times = forecast_job(parts, job_id).times
    assert times is not None
    return times.p50_s


def test_a_batch_is_done_when_its_last_job_is(parts: Parts) -> None:
    set_policy(parts, "fcfs")
    report(parts, transcribe=2 * UNIT_S)
    mine = waiting(parts, 3, "mine")
    others = waiting(parts, 20, "others")
    assert batch_s(parts, "mine") == pytest.approx(job_s(parts, mine[-1]), rel=0.05)
    assert batch_s(parts, "others") == pytest.approx(job_s(parts, others[-1]), rel=0.05)
    set_policy(parts, "sjf")  # the largest is last, whenever it came
    driven.surveyed(parts, driven.received(parts, batch_id="mine"), bucket=90)
    waiting(parts, 1, "mine")
    assert batch_s(parts, "mine") > job_s(parts, waiting(parts, 1)[0])


def test_a_batch_whose_jobs_have_ended_is_done(parts: Parts) -> None:
    report(parts, transcribe=1.0)
    driven.completed(parts, driven.received(parts, batch_id="done"))
    assert batch_s(parts, "done") == batch_s(parts, "nobody's") == 0.0


def test_jobs_of_a_batch_that_are_not_probed_are_as_long_as_said_else_as_the_mean(
    parts: Parts,
) -> None:
    set_policy(parts, "fcfs")
    report(parts, transcribe=UNIT_S, survey=1e6)
    driven.received(parts, batch_id="fresh")
    assert forecast_batch(parts, "fresh") is None  # nothing is known of any
    hint(parts, 60.0)
    hinted_s = batch_s(parts, "fresh")
    hint(parts, 600.0)
    assert batch_s(parts, "fresh") == pytest.approx(10 * hinted_s, rel=0.2)
    hint(parts, None)
    waiting(parts, 1, "fresh")  # of 4 s, as driven.py has it
    one_s = batch_s(parts, "fresh")
    for _ in range(20):
        driven.received(parts, batch_id="fresh")
    assert batch_s(parts, "fresh") > 5 * one_s  # 21 that nobody has probed stand in line


def hint(parts: Parts, seconds: float | None) -> None:
    """Let senders have said how long their recordings are."""
    with transaction(parts.store) as c:
        c.execute(update(tables.jobs).values(duration_hint_s=seconds))


def test_a_batch_with_one_job_in_work_is_done_no_sooner_than_that(parts: Parts) -> None:
    report(parts, transcribe=UNIT_S / 50)
    driven.running(parts, driven.received(parts, batch_id="b"))
    assert batch_s(parts, "b") > 10.0


def test_all_is_done_when_the_slower_stage_has_done_its_work(parts: Parts) -> None:
    def all_done() -> tuple[float, float] | None:
        """(by queue arithmetic, P50)."""
        outlook = look(parts)
        plain = replace(outlook, calibration=Plain({}))
        times, raw = outlook.all_done(), plain.all_done()
        return (raw.p50_s, times.p50_s) if times and raw else None

    assert all_done() == (0.0, 0.0)
    waiting(parts, 10)
    driven.probed(parts, driven.received(parts))
    assert all_done() is None
    for survey, expected_s in ((1000.0, 11.0), (bucket_survey_s(50) / 60, 60.0)):
        report(parts, transcribe=UNIT_S, survey=survey)
        raw_s, p50_s = all_done() or (0.0, 0.0)
        assert raw_s == pytest.approx(expected_s, rel=0.05)
        assert p50_s == pytest.approx(expected_s, rel=0.5)


class Plain(Calibration):
    """Believes the arithmetic."""

    def told(self, kind: str, raw_s: float) -> tuple[float, float]:
        return raw_s, raw_s


# -- after a start --------------------------------------------------------------------------


def test_a_worker_that_has_done_nothing_yet_is_taken_to_be_as_fast_as_the_last(
    parts: Parts,
) -> None:
    board = parts.queues[TRANSCRIBE.name].board
    (job_id,) = waiting(parts, 1)
    board.report_speed("old", 2 * UNIT_S, 2)
    known_s = eta(parts, job_id)
    board.forget_speed("old")
    assert forecast_job(parts, job_id).times is None  # nobody is there
    board.report_speed("new", None, 4)
    assert eta(parts, job_id) == pytest.approx(known_s, rel=0.05)
    connect(parts.settings.redis_url or "").set(keys.speed_known(TRANSCRIBE.name), "by hand")
    assert board.slot_speed_known() is None
