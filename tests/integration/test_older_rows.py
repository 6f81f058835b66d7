"""Jobs that an older release began are ended by this one: what it wrote is read as it was meant."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import text

from pipeline.engine import Heard, Prepared
from pipeline.job import State
from pipeline.parts import Parts
from pipeline.recording import Plan
from pipeline.store import partials, schema, views
from pipeline.store.session import transaction
from tests.lines import eventually, plan_of_windows, pulling, surveyed_job
from workers.echo_engine import EchoEngine
from workers.transcribe import TranscribeWork

BEFORE_0004 = ("overlap_s", "silence_filled_s")
"""What plans did not say then."""

HEARD = {
    "utterances": [{"start_s": 0.0, "end_s": 1.0, "text": "Kept as it was heard."}],
    "language": "en",
    "tokens": 5,
    "mean_logprob": -0.1,
    "finish": "stop",
    "busy_s": 0.1,
}
"""A window as 0003 kept it."""


def as_written_then(plan: Plan) -> dict[str, object]:
    raw = json.loads(json.dumps(plan.to_json()))
    for value in (raw, *raw["windows"]):
        for name in BEFORE_0004:
            value.pop(name, None)
    return dict(raw)


def test_a_job_half_heard_before_0004_goes_down_and_up_with_its_tables_and_hears_the_rest(
    parts: Parts,
) -> None:
    # Given a call of four windows, surveyed and half heard by code that knew nothing of 0004
    store = parts.store
    job_id = surveyed_job(parts, windows=4)
    engine = Counting(slots=1, fixed_s=0.0, per_second_s=0.0)
    model = TranscribeWork(parts, engine).model
    plan = as_written_then(plan_of_windows(4))
    with transaction(store) as c:
        at = {"plan": json.dumps(plan), "hash": "0" * 16, "job": job_id, "model": model}
        c.execute(text("UPDATE plans SET plan = :plan, plan_hash = :hash WHERE job_id = :job"), at)
        c.execute(
            text("UPDATE jobs SET plan_hash = :hash, model = :model, attempt = 2 WHERE id = :job"),
            at,
        )
        for index in (0, 2):
            c.execute(
                text(
                    "INSERT INTO windows (job_id, plan_hash, model, index, attempt, heard, busy_s)"
                    " VALUES (:job, :hash, :model, :index, 2, :heard, 0.1)"
                ),
                {**at, "index": index, "heard": json.dumps(HEARD)},
            )
    # When the schema goes back and forth under it
    schema.downgrade(store, "0003")
    try:
        with store.connect() as c:
            kept = c.execute(text("SELECT count(*) FROM windows")).scalar_one()
        assert kept == 2
    finally:
        schema.upgrade(store)
    # Then the rest is heard, once, and what was heard stands
    with pulling(parts, engine):
        eventually(lambda: state(parts, job_id) is State.COMPLETED)
    with transaction(store) as c:
        body = views.transcript_body(c, job_id)
        found = partials.plan_of(c, job_id)
    assert body is not None
    texts = [said["text"] for said in body["segments"]]
    assert texts.count("Kept as it was heard.") == 2
    assert engine.answered == 2
    assert found is not None
    assert found[0].silence_filled_s == 0.0
    assert [window.overlap_s for window in found[0].windows] == [0.0] * 4


class Counting(EchoEngine):
    answered = 0

    async def transcribe(self, window: Prepared, **asked: Any) -> Heard:
        self.answered += 1
        return await super().transcribe(window, **asked)


def state(parts: Parts, job_id: str) -> State | None:
    with transaction(parts.store) as c:
        view = views.view(c, job_id)
    return view.state if view else None
