"""No slot waits: what comes next is ready before one is free, and saving goes on beside."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from sqlalchemy import select

import workers.saver
from pipeline.engine import Prepared
from pipeline.job import State
from pipeline.parts import Parts
from pipeline.store import tables
from pipeline.store.session import transaction
from tests.lines import eventually, pulling, states, surveyed_job
from workers.echo_engine import EchoEngine
from workers.occupied import Occupied


class Counting(EchoEngine):
    """Counts windows made ready and windows answered."""

    made_ready = answered = 0

    async def prepare(self, pcm: bytes, **asked: Any) -> Prepared:
        self.made_ready += 1
        return await super().prepare(pcm, **asked)

    async def transcribe(self, window: Prepared, **asked: Any) -> Any:
        heard = await super().transcribe(window, **asked)
        self.answered += 1
        return heard


@pytest.mark.parametrize("windows", [1, 20], ids=["short jobs", "a long job"])
def test_while_every_slot_is_taken_the_next_windows_are_made_ready(
    parts: Parts, windows: int
) -> None:
    engine = Counting(slots=4, fixed_s=30.0, per_second_s=0.0)
    for _ in range(20 // windows):
        surveyed_job(parts, windows)
    with pulling(parts, engine) as puller:
        eventually(lambda: engine._serving == 4)
        eventually(lambda: engine.made_ready == 6)
        assert states(parts)[State.RUNNING] == (6 if windows == 1 else 1)
        puller.hurry()
    assert engine.made_ready == 6  # and no more than that
    assert states(parts) == {State.SURVEYED: 20 // windows}


def test_a_save_that_hangs_keeps_no_slot(parts: Parts) -> None:
    engine = Counting(slots=2, fixed_s=0.02, per_second_s=0.0)
    job_id = surveyed_job(parts, windows=12)
    row = select(tables.jobs.c.id).where(tables.jobs.c.id == uuid.UUID(job_id))
    with pulling(parts, engine):
        eventually(lambda: states(parts).get(State.RUNNING) == 1)
        with transaction(parts.store) as c:  # as if Postgres were slow: nothing is saved meanwhile
            c.execute(row.with_for_update())
            eventually(lambda: engine.answered == 12, 2.5)
        eventually(lambda: states(parts) == {State.COMPLETED: 1})
    assert engine.answered == 12


def test_windows_that_end_together_are_saved_in_one_transaction(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    save = workers.saver.save

    def counting(store: Any, windows: Any) -> Any:
        batches.append(len(windows))
        return save(store, windows)

    monkeypatch.setattr(workers.saver, "save", counting)
    surveyed_job(parts, windows=8)
    surveyed_job(parts, windows=8)
    with pulling(parts, EchoEngine(slots=4, fixed_s=0.3, per_second_s=0.0)):
        eventually(lambda: states(parts) == {State.COMPLETED: 2})
    assert len(batches) <= 4  # four times four windows; the last of a job are in its transcript
    assert max(batches) >= 3


def test_taken_slots_add_up_over_time() -> None:
    async def story() -> float:
        occupied = Occupied()

        async def hear(length_s: float) -> None:
            with occupied.one_more():
                await asyncio.sleep(length_s)

        await asyncio.gather(hear(0.2), hear(0.1))
        return occupied.total_s()

    assert asyncio.run(story()) == pytest.approx(0.3, abs=0.08)
