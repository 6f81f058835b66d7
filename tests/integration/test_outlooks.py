"""One look at both lines serves all who ask for a while."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.errors import PartDown
from pipeline.job import TRANSCRIBE
from pipeline.parts import Parts
from pipeline.scheduling.policies import Waiting, pairs, parse_policy
from pipeline.steps.forecast import forecast_job, look
from pipeline.steps.forecast.outlooks import HANDS_KEPT_S
from pipeline.store import load
from tests import driven
from tests.lines import eventually
from tests.standing import UNIT_S, parts, report, set_policy, waiting

__all__ = ["parts"]


def test_all_who_ask_within_a_second_are_told_from_one_look(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    was = load.arrivals
    monkeypatch.setattr(load, "arrivals", lambda *how: looks.append(1) or was(*how))  # type: ignore[func-returns-value]
    parts.outlooks.kept_s = 60.0
    report(parts, transcribe=UNIT_S)
    ids = waiting(parts, 4)
    with ThreadPoolExecutor(8) as many:
        told = list(many.map(lambda n: forecast_job(parts, ids[n % 4]), range(40)))
    assert len(looks) == 1
    assert all(one.times for one in told)
    assert sorted({one.position for one in told if one.position}) == [1, 2, 3, 4]
    waiting(parts, 1, "later")  # not in the look, but positions are asked of the line itself
    late = driven.received(parts)
    driven.surveyed(parts, late)
    assert forecast_job(parts, late).position == 6
    small = driven.received(parts)
    driven.surveyed(parts, small, bucket=40)
    set_policy(parts, "sjf")  # in force at once
    assert forecast_job(parts, small).position == 1
    assert len(looks) == 1


def test_who_is_in_hand_is_seen_sooner_than_all_else(parts: Parts) -> None:
    parts.outlooks.kept_s = 60.0
    report(parts, transcribe=UNIT_S)
    assert look(parts).in_hand == []
    job_id = driven.running(parts, driven.received(parts)).job_id
    held = eventually(lambda: look(parts).in_hand, HANDS_KEPT_S + 5)
    assert [one.place.job_id for one in held] == [job_id]


def test_an_outage_is_told_and_nobody_waits_for_the_lock_of_who_failed(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(_: object) -> None:
        raise PartDown("Postgres does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(load, "in_hand", down)
        for _ in range(2):
            with pytest.raises(PartDown):
                look(parts)
    assert look(parts).in_hand == []


def test_the_sketch_of_a_line_agrees_with_the_line(parts: Parts) -> None:
    queue, rng = parts.queues[TRANSCRIBE.name], random.Random(3)
    now_ms = queue.time_ms()
    crowd = [
        Waiting(f"job-{n:05d}", rng.randrange(40, 60), now_ms - rng.randrange(600_000))
        for n in range(400)
    ]
    queue.enqueue(crowd)
    sketch = queue.order.sketch()
    assert sketch.by_bucket() == queue.order.by_bucket()
    for policy in (parse_policy(p) for p in ("fcfs", "sjf", "hrrn(2.5)", "aged(20)")):
        for place in crowd[:20]:
            (exact,) = queue.order.ahead([place], policy, now_ms)
            (likely,) = queue.order.ahead([place], policy, now_ms, likely=range(45, 50))
            assert likely == exact
            (known,) = queue.order.ahead([place], policy, now_ms, likely=sketch.marks)
            assert known == exact
            near = sum(sketch.ahead(place, pairs(policy), now_ms).values())
            assert near == pytest.approx((exact.position or 0) - 1, abs=20)
