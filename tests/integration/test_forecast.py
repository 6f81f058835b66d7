"""Forecasts on real Postgres and Redis: exact places, and times that come true."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import pytest

from bench.eta import lengths, measure, put_surveyed
from pipeline.job import SURVEY, TRANSCRIBE, State
from pipeline.parts import Parts
from pipeline.queue import keys
from pipeline.queue.board import SPEED_KEPT_S
from pipeline.queue.redis_queue import connect
from pipeline.scheduling.policies import parse_policy
from pipeline.scheduling.work import bucket_survey_s, bucket_work_s
from pipeline.steps.forecast import forecast_batch, forecast_job, look
from pipeline.steps.forecast.outlook import Forecast
from pipeline.steps.ratio import write_ratios
from tests import driven
from tests.lines import eventually, pulling, states
from workers.echo_engine import EchoEngine

UNIT_S = bucket_work_s(50)
"""Work of a job in bucket 50, one window: 1.17."""


def report(parts: Parts, transcribe: float | None = None, survey: float | None = None) -> None:
    """Let workers of 2 slots each be this fast."""
    for stage, speed in ((TRANSCRIBE, transcribe), (SURVEY, survey)):
        parts.queues[stage.name].board.report_speed(f"{stage.name}@here", speed, 2)


def set_policy(parts: Parts, policy: str) -> None:
    for queue in parts.queues.values():
        queue.set_policy(parse_policy(policy))


def waiting(parts: Parts, count: int, batch: str | None = None) -> list[str]:
    """Jobs of one window that wait for an engine."""
    ids = [driven.received(parts, batch_id=batch) for _ in range(count)]
    for job_id in ids:
        driven.surveyed(parts, job_id)
    return ids


def eta(parts: Parts, job_id: str) -> float:
    found = forecast_job(parts, job_id).eta_s
    assert found is not None
    return found


@pytest.mark.parametrize("policy", ["sjf", "hrrn(1.5)"])
def test_forecasts_under_load_come_true(parts: Parts, policy: str) -> None:
    set_policy(parts, policy)
    sizes = lengths(60, seed=2, call_s=60.0)
    with pulling(parts, EchoEngine(slots=4, fixed_s=0.06, per_second_s=0.004)):
        put_surveyed(parts, 20.0)  # so that a speed is known
        eventually(lambda: look(parts).capacity(TRANSCRIBE))
        run = measure(
            parts,
            [lambda s=s: put_surveyed(parts, s) for s in sizes],  # type: ignore[misc]
            lambda: 0.04,
            lambda job_id: forecast_job(parts, job_id),
            burst=30,
            every_s=0.2,
        )
    errors = run.errors()
    assert len(run.ends_s) == 60
    assert len(errors) >= 20
    assert statistics.median(errors) <= 0.5
    assert all((sample.forecast.eta_s or 0.0) >= 0.0 for sample in run.samples)


# -- one job --------------------------------------------------------------------------------


def test_nobody_can_say_while_no_worker_is_known_to_do_anything(parts: Parts) -> None:
    (job_id,) = waiting(parts, 1)
    assert forecast_job(parts, job_id) == Forecast(1, None)
    report(parts, transcribe=None)  # it is there, and has heard nothing yet
    assert forecast_job(parts, job_id) == Forecast(1, None)


@pytest.mark.parametrize(("policy", "before"), [("fcfs", 2), ("sjf", 2), ("hrrn(1.5)", 2)])
def test_a_waiting_job_waits_for_what_goes_before_it(
    parts: Parts, policy: str, before: int
) -> None:
    set_policy(parts, policy)
    report(parts, transcribe=2 * UNIT_S)  # a window keeps one of 2 slots for 1 s
    ids = waiting(parts, 3)
    third = forecast_job(parts, ids[2])
    assert third.position == before + 1
    assert third.eta_s == pytest.approx(before / 2 + 1.0, rel=0.05)


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
    assert eta(parts, ids[-1]) == pytest.approx(alone_s, rel=0.05)
    assert redis.hkeys(key) == ["transcribe@here"]  # and is forgotten
    board.forget_speed("transcribe@here")
    assert forecast_job(parts, ids[-1]).eta_s is None


def test_a_job_in_work_has_no_place_and_what_is_left_of_its_time(parts: Parts) -> None:
    report(parts, transcribe=2 * UNIT_S)
    ticket = driven.running(parts, driven.received(parts))
    found = forecast_job(parts, ticket.job_id)
    assert found.position is None
    assert found.eta_s is not None
    assert 0 < found.eta_s < 3.0


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
        assert forecast_job(parts, job_id) == Forecast(None, None)


# -- a batch, and all -----------------------------------------------------------------------


def test_a_batch_is_done_when_its_last_job_is(parts: Parts) -> None:
    set_policy(parts, "fcfs")
    report(parts, transcribe=2 * UNIT_S)
    mine = waiting(parts, 3, "mine")
    others = waiting(parts, 20, "others")
    assert forecast_batch(parts, "mine") == pytest.approx(eta(parts, mine[-1]), rel=0.05)
    assert forecast_batch(parts, "others") == pytest.approx(eta(parts, others[-1]), rel=0.05)
    set_policy(parts, "sjf")  # the largest is last, whenever it came
    driven.surveyed(parts, driven.received(parts, batch_id="mine"), bucket=90)
    waiting(parts, 1, "mine")
    assert (forecast_batch(parts, "mine") or 0.0) > eta(parts, waiting(parts, 1)[0])


def test_a_batch_whose_jobs_have_ended_is_done_and_one_not_probed_cannot_be_foretold(
    parts: Parts,
) -> None:
    report(parts, transcribe=1.0)
    driven.completed(parts, driven.received(parts, batch_id="done"))
    assert forecast_batch(parts, "done") == 0.0
    waiting(parts, 2, "fresh")
    driven.received(parts, batch_id="fresh")
    assert forecast_batch(parts, "fresh") is None
    assert forecast_batch(parts, "nobody's") == 0.0


def test_a_batch_with_one_job_in_work_is_done_no_sooner_than_that(parts: Parts) -> None:
    report(parts, transcribe=UNIT_S / 50)
    driven.running(parts, driven.received(parts, batch_id="b"))
    assert (forecast_batch(parts, "b") or 0.0) > 10.0


def test_all_is_done_when_the_slower_stage_has_done_its_work(parts: Parts) -> None:
    assert look(parts).all_done_s() == 0.0
    waiting(parts, 10)
    driven.probed(parts, driven.received(parts))
    assert look(parts).all_done_s() is None
    report(parts, transcribe=UNIT_S, survey=1000.0)
    assert look(parts).all_done_s() == pytest.approx(11.0, rel=0.05)
    report(parts, transcribe=UNIT_S, survey=bucket_survey_s(50) / 60)
    assert look(parts).all_done_s() == pytest.approx(60.0, rel=0.05)


# -- what is written up ---------------------------------------------------------------------


def test_a_puller_says_how_fast_it_is_and_takes_it_back_when_it_leaves(parts: Parts) -> None:
    board = parts.queues[TRANSCRIBE.name].board
    with pulling(parts, EchoEngine(slots=2, fixed_s=0.1, per_second_s=0.0), name="t@x") as puller:
        eventually(lambda: [w.worker for w in board.speeds()] == ["t@x"])
        for _ in range(6):
            put_surveyed(parts, 20.0)
        (worker,) = eventually(lambda: [w for w in board.speeds() if w.speed])
        assert worker.slots == 2
        assert puller.facts()["speed"] > 0
        eventually(lambda: states(parts) == {State.COMPLETED: 6})
    assert board.speeds() == []


def test_ratios_are_written_up_in_one_go_and_vanish_when_beat_stops(parts: Parts) -> None:
    queue, redis = parts.queues[TRANSCRIBE.name], connect(parts.settings.redis_url or "")
    ids = waiting(parts, 3)
    write_ratios(parts.store, parts.queues, parts.settings.start_policy)
    found = queue.board.ratios()
    assert found is not None
    assert found.of == 3
    assert found.highest >= found.median >= 1.0
    assert set(redis.zrange(keys.ratio(queue.name), 0, -1)) == set(ids)
    assert parts.queues[SURVEY.name].board.ratios() is None  # nobody waits there
    for key in (keys.ratio(queue.name), keys.ratio_as_of(queue.name)):
        assert 0 < redis.pttl(key) <= 30_000
    queue.withdraw(ids)
    write_ratios(parts.store, parts.queues, parts.settings.start_policy)
    assert queue.board.ratios() is None
