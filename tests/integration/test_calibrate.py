"""What was foretold is held against what came, and corrects the next forecast."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from pipeline.job import TRANSCRIBE, State
from pipeline.parts import Parts
from pipeline.steps.forecast import look
from pipeline.steps.forecast.calibrate import calibrate
from pipeline.store import forecasts, jobs
from pipeline.store.forecasts import Foretold
from pipeline.store.session import transaction
from tests import driven
from tests.standing import UNIT_S, parts, report, set_policy, waiting

__all__ = ["parts"]


def test_what_was_foretold_is_settled_when_its_job_ends_and_makes_the_next_forecast_right(
    parts: Parts,
) -> None:
    set_policy(parts, "fcfs")
    report(parts, transcribe=2 * UNIT_S, survey=1000.0)
    before = look(parts).calibrated(State.SURVEYED, 1.0)
    for _ in range(20):  # each is foretold in about a second and takes three
        job_id = waiting(parts, 1)[0]
        calibrate(parts)
        parts.queues[TRANSCRIBE.name].withdraw([job_id])
        with transaction(parts.store) as c:
            (ticket,) = jobs.grant(c, TRANSCRIBE, [job_id], "w", "tiny.en")
            c.execute(text("UPDATE forecasts SET made_at = made_at - interval '3 s'"))
        driven.completed(parts, job_id, ticket)
    calibrate(parts)
    after = look(parts).calibrated(State.SURVEYED, 1.0)
    assert after.p50_s > 2 * before.p50_s
    assert after.p50_s <= after.p90_s
    with transaction(parts.store) as c:
        (kind,) = forecasts.calibrated(c)
        assert forecasts.unsettled(c) == {}
    assert (kind.kind, kind.forecasts) == ("surveyed", 20)
    assert 0.0 <= kind.before_p90 <= 1.0
    assert kind.median_ratio > 1.2


def test_nothing_is_noted_of_an_empty_house_nor_of_one_whose_speed_nobody_knows(
    parts: Parts,
) -> None:
    calibrate(parts)
    waiting(parts, 3)
    calibrate(parts)
    with transaction(parts.store) as c:
        assert forecasts.unsettled(c) == {}
    report(parts, transcribe=UNIT_S)
    driven.running(parts, driven.received(parts))
    calibrate(parts)
    with transaction(parts.store) as c:
        assert {kind for kind, _ in forecasts.unsettled(c)} == {"surveyed", "running"}


def test_a_forecast_of_a_job_that_failed_is_no_truth_and_of_the_rest_the_newest_are_kept(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasts, "KEPT", 3)
    failing, done = waiting(parts, 1)[0], driven.received(parts)
    ticket = driven.running(parts, done)
    said = [Foretold(failing, "surveyed", 1.0, 1.0, 1.0)]
    said += [Foretold(done, "running", float(n), 1.0, 1.0) for n in (50, 3, 4, 5, 6)]
    said.append(Foretold(driven.nobody(), "running", 1.0, 1.0, 1.0))  # erased meanwhile
    with transaction(parts.store) as c:
        forecasts.note(c, said)
    driven.failed(parts, failing)
    driven.completed(parts, done, ticket)
    with transaction(parts.store) as c:
        forecasts.settle(c)
        kept = c.execute(text("SELECT raw_s FROM forecasts ORDER BY id")).scalars().all()
    assert kept == [50.0, 4.0, 5.0, 6.0]  # of each horizon the newest three
