"""A worker survives its engine: hung windows, poison, full memory, deafness, standing jobs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from pipeline.api.measured import read_metrics
from pipeline.cli.checks.service import _short_of_memory
from pipeline.engine import Heard, Prepared
from pipeline.errors import EngineDead, EngineFull, EnginePoisoned
from pipeline.job import TRANSCRIBE, State, Ticket
from pipeline.parts import Parts
from pipeline.steps.transcribe import OpenJob
from pipeline.store import tables
from pipeline.store.session import transaction
from tests.lines import eventually, pulling, set_to, states, surveyed_job, view
from workers import hands, pulse
from workers.blame import NONSENSE
from workers.echo_engine import EchoEngine
from workers.known_second import PCM
from workers.transcribe import TranscribeWork


class Ailing(EchoEngine):
    """Falls ill over certain windows, as often as it is told."""

    def __init__(self, slots: int = 4, fixed_s: float = 0.05, limit_s: float = 60.0) -> None:
        super().__init__(slots=slots, fixed_s=fixed_s, per_second_s=0.0, window_limit_s=limit_s)
        self.sick: bytes | None = None
        self.times = 10**6
        self.ill: Callable[[], Any] = self.poison
        self.starts = 0
        self.beside: list[int] = []
        """How many windows were in service when it fell ill."""
        self.loop: asyncio.AbstractEventLoop

    async def start(self) -> None:
        self.starts += not self.alive()
        self.loop = asyncio.get_running_loop()
        await super().start()

    async def transcribe(self, window: Prepared, *, temperature: float = 0.0) -> Heard:
        if window.pcm == self.sick and self.times:
            self.times -= 1
            self.beside.append(self._serving)
            if (illness := self.ill()) is not None:
                await illness
        return await super().transcribe(window, temperature=temperature)

    async def answer_never(self) -> None:
        assert self._windows is not None
        await self._windows.run(asyncio.sleep(3600))


def window_of(parts: Parts, job_id: str, index: int = 0) -> bytes:
    """The samples of a window of two seconds; those of one job are all alike."""
    return parts.storage.read_range(f"packed/{job_id}-1", index * 64_000, 64_000)


def crashes(parts: Parts) -> dict[str, int]:
    with transaction(parts.store) as c:
        return {str(row.id): row.crashes for row in c.execute(select(tables.jobs))}


def completed(parts: Parts, count: int) -> bool:
    return states(parts).get(State.COMPLETED, 0) == count


# -- a window without an answer -----------------------------------------------------------------


def test_a_window_without_an_answer_is_given_up_and_all_others_complete(parts: Parts) -> None:
    engine = Ailing(limit_s=0.4)
    hung = surveyed_job(parts)
    engine.sick, engine.ill = window_of(parts, hung), engine.answer_never
    # enough for three limits in the other slots: when the first limit is over it is not alone
    innocent = [surveyed_job(parts, windows=15) for _ in range(5)]
    with pulling(parts, engine):
        eventually(lambda: view(parts, hung).state is State.FAILED, 30)
        eventually(lambda: completed(parts, 5), 30)
    failed = view(parts, hung)
    assert failed.error_code == "window_hung"
    # tried once beside others, which is not charged, and then alone as often as may be
    assert engine.beside[1:] == [0] * parts.settings.max_crashes
    charged = crashes(parts)
    assert charged.pop(hung) == parts.settings.max_crashes
    assert set(charged.values()) == {0}
    assert {view(parts, job_id).attempts for job_id in innocent} == {1}


def test_a_window_that_hung_once_beside_others_costs_its_job_nothing(parts: Parts) -> None:
    engine = Ailing(limit_s=0.4)
    hung = surveyed_job(parts)
    engine.sick, engine.ill, engine.times = window_of(parts, hung), engine.answer_never, 1
    for _ in range(4):
        surveyed_job(parts, windows=15)
    with pulling(parts, engine):
        eventually(lambda: completed(parts, 5), 30)
    assert set(crashes(parts).values()) == {0}
    assert engine.starts == 1  # the engine had done nothing wrong to the others
    assert view(parts, hung).attempts == 1


def test_a_job_of_many_windows_ends_though_two_of_them_hang(parts: Parts) -> None:
    engine = Ailing(slots=8, limit_s=0.3)
    alone = surveyed_job(parts, windows=6)  # nobody else is there
    engine.sick, engine.ill = window_of(parts, alone), engine.answer_never  # all six are alike
    with pulling(parts, engine):
        eventually(lambda: view(parts, alone).state is State.FAILED, 30)
    assert view(parts, alone).error_code == "window_hung"


# -- poison -------------------------------------------------------------------------------------


def test_poison_found_by_a_job_that_is_alone_may_be_anothers_and_is_not_charged(
    parts: Parts,
) -> None:
    engine = Ailing(fixed_s=0.02)
    finder = surveyed_job(parts, windows=3)
    engine.sick, engine.times = window_of(parts, finder), 1
    with pulling(parts, engine):
        eventually(lambda: completed(parts, 1), 20)
    assert engine.starts == 2
    assert crashes(parts) == {finder: 0}


def test_a_recording_that_poisons_new_engines_alone_fails_and_no_other_does(parts: Parts) -> None:
    engine = Ailing()
    poison = surveyed_job(parts, windows=2)
    engine.sick = window_of(parts, poison)
    for _ in range(4):
        surveyed_job(parts, windows=2)
    with pulling(parts, engine):
        eventually(lambda: view(parts, poison).state is State.FAILED, 30)
        eventually(lambda: completed(parts, 4), 30)
    failed = view(parts, poison)
    assert failed.error_code == "engine_crashed"
    assert (failed.error_message or "").startswith(NONSENSE)
    charged = crashes(parts)
    assert charged.pop(poison) == parts.settings.max_crashes
    assert set(charged.values()) == {0}


# -- memory -------------------------------------------------------------------------------------


def test_full_memory_costs_slots_and_no_job(parts: Parts) -> None:
    engine = Ailing(slots=8, fixed_s=0.2)
    for _ in range(6):
        surveyed_job(parts, windows=4)
    with pulling(parts, engine) as puller:
        eventually(lambda: engine._serving == 8)
        engine.loop.call_soon_threadsafe(engine.fill, 2)
        eventually(lambda: completed(parts, 6), 30)
        assert {key: puller.facts()[key] for key in ("slots", "slots_wanted")} == {
            "slots": 2,
            "slots_wanted": 8,
        }
        board = parts.queues[TRANSCRIBE.name].board
        # told to the operator, and to forecasts
        eventually(lambda: [(w.slots, w.slots_wanted) for w in board.speeds()] == [(2, 8)], 5)
        assert _short_of_memory(parts.settings.redis_url or "") == [
            "t@here ran out of memory: it hears 2 windows at once and not 8"
        ]
        measured = read_metrics(parts).body.decode()
        assert 'fairscribe_worker_slots{stage="transcribe",worker="t@here"} 2.0' in measured
        assert 'fairscribe_worker_slots_wanted{stage="transcribe",worker="t@here"} 8.0' in measured
    assert set(crashes(parts).values()) == {0}


def test_an_engine_that_finds_too_little_memory_at_its_start_has_the_slots_that_fit(
    parts: Parts,
) -> None:
    engine = Ailing(slots=8)
    engine.fill(1)
    surveyed_job(parts, windows=3)
    with pulling(parts, engine) as puller:
        eventually(lambda: completed(parts, 1), 20)
        assert puller.facts()["slots"] == 1


def test_a_worker_whose_memory_does_not_hold_one_slot_ends_with_that_reason(parts: Parts) -> None:
    engine = Ailing(slots=8)
    engine.fill(0)
    with pulling(parts, engine) as puller:
        assert puller.ended.wait(5)
        assert isinstance(puller.error, EngineFull)


def test_a_recording_that_fills_the_memory_with_one_slot_alone_ends_too(parts: Parts) -> None:
    engine = Ailing(slots=2)
    greedy, other = surveyed_job(parts), surveyed_job(parts)
    engine.sick, engine.ill = window_of(parts, greedy), lambda: engine.fill(1)
    with pulling(parts, engine):
        eventually(lambda: view(parts, greedy).state is State.FAILED, 20)
        eventually(lambda: view(parts, other).state is State.COMPLETED, 20)
    assert "memory" in (view(parts, greedy).error_message or "")
    assert crashes(parts)[other] == 0


# -- does it hear? ------------------------------------------------------------------------------


class Deaf(Ailing):
    """Answers that nobody said anything, so many times."""

    deaf = 0

    async def transcribe(self, window: Prepared, *, temperature: float = 0.0) -> Heard:
        heard = await super().transcribe(window, temperature=temperature)
        if not self.deaf:
            return heard
        self.deaf -= 1
        return replace(heard, utterances=())


def test_a_worker_is_ready_only_once_it_has_heard_the_known_second(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = tmp_path / "ready"
    monkeypatch.setenv("FAIRSCRIBE_READY_FILE", str(ready))
    set_to(parts, health_check_s=60.0)
    engine = Deaf(fixed_s=0.3)
    engine.deaf = 1
    with pulling(parts, engine):
        eventually(lambda: engine.starts == 2, 10)
        assert not ready.exists()  # the first engine did not hear, the second was not asked yet
        eventually(ready.exists, 10)
    assert engine.deaf == 0


def test_an_engine_deaf_three_times_in_a_row_ends_its_worker_with_the_reason(parts: Parts) -> None:
    set_to(parts, health_check_s=60.0)
    engine = Deaf(fixed_s=0.0)
    engine.deaf = 100
    with pulling(parts, engine) as puller:
        assert puller.ended.wait(10)
        assert isinstance(puller.error, EnginePoisoned)
        assert "How can I help you today?" in str(puller.error)
    assert engine.starts == 3


def test_an_idle_engine_is_asked_now_and_then_and_started_anew_when_it_hears_nothing(
    parts: Parts,
) -> None:
    set_to(parts, health_check_s=0.2)
    engine = Deaf(fixed_s=0.0)
    engine.sick, engine.ill, asked = PCM.read_bytes(), lambda: asked.append(time.monotonic()), []
    with pulling(parts, engine):
        eventually(lambda: len(asked) >= 3, 10)
        engine.deaf = 1
        eventually(lambda: engine.starts == 2, 10)
        job_id = surveyed_job(parts)
        eventually(lambda: completed(parts, 1), 10)
    assert crashes(parts) == {job_id: 0}


def test_nobody_asks_an_engine_that_has_work(parts: Parts) -> None:
    set_to(parts, health_check_s=0.1)
    engine = Ailing(slots=1, fixed_s=0.1)
    engine.sick, engine.ill, asked = PCM.read_bytes(), lambda: asked.append(time.monotonic()), []
    surveyed_job(parts, windows=10)
    with pulling(parts, engine):
        eventually(lambda: engine._serving, 10)
        before = len(asked)
        eventually(lambda: completed(parts, 1), 20)
        assert len(asked) <= before + 1  # one may begin in the moment after the last window


# -- jobs that stand still ----------------------------------------------------------------------


class Standing(TranscribeWork):
    """One job is never opened to the end: its thread hangs."""

    stands: str | None = None
    opened = 0

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.stuck_s, self.go_on = 0.6, threading.Event()

    def open(self, ticket: Ticket) -> OpenJob:
        if ticket.job_id == self.stands:
            self.opened += 1
            self.go_on.wait(30)
        return super().open(ticket)


def test_a_job_that_does_not_move_is_left_to_its_lease_and_fails_when_others_do(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hands, "OPEN_PATIENCE_S", 0.1)
    set_to(parts, lease_s=1.0, renew_s=0.2)
    work = Standing(parts, Ailing(slots=2, fixed_s=0.02))
    work.stands = surveyed_job(parts)
    others = [surveyed_job(parts, windows=40) for _ in range(4)]
    with pulling(parts, work=work):
        # others go on all the while, so it is this job's fault; three times and it ends
        end_s = time.monotonic() + 40
        while view(parts, work.stands).state is not State.FAILED and time.monotonic() < end_s:
            if states(parts).get(State.SURVEYED, 0) < 3:
                others.append(surveyed_job(parts, windows=10))
        work.go_on.set()
        assert view(parts, work.stands).error_code == "stuck"
        eventually(lambda: completed(parts, len(others)), 30)
    assert work.opened == parts.settings.max_crashes
    charged = crashes(parts)
    del charged[work.stands]
    assert set(charged.values()) == {0}


def test_leases_are_not_renewed_by_a_worker_whose_loop_hangs(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "LOOP_SILENT_S", 0.5)
    monkeypatch.setattr(pulse, "BEAT_S", 0.05)
    work = Standing(parts, Ailing())
    with pulling(parts, work=work) as puller:
        eventually(lambda: puller._pulling is not None and puller._pulling.moving(), 5)
        go_on = threading.Event()
        puller._on_loop(go_on.wait, 10)  # nothing is in flight, and nothing will ever end
        eventually(lambda: puller._pulling and not puller._pulling.moving(), 5)
        go_on.set()
        eventually(lambda: puller._pulling and puller._pulling.moving(), 5)


def test_an_engine_that_does_not_come_back_keeps_no_leases(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "RECOVERY_LIMIT_S", 0.3)
    # a worker ends its process then, which is the tests' own here: see test_worker_process.py
    hangs = pulse.Pulse.hangs
    monkeypatch.setattr(pulse.Pulse, "hangs", lambda _: None)

    class Slow(TranscribeWork):
        async def recover(self, death: EngineDead) -> None:
            await asyncio.sleep(1.5)
            await super().recover(death)

    engine = Ailing(fixed_s=0.3)
    surveyed_job(parts, windows=4)
    with pulling(parts, work=Slow(parts, engine)) as puller:
        eventually(lambda: engine._serving, 5)
        assert puller._pulling is not None
        assert puller._pulling.well()
        engine.loop.call_soon_threadsafe(engine.kill)
        eventually(lambda: puller._pulling and not puller._pulling.moving(), 5)
        assert not puller._pulling.well()
        assert hangs(puller._pulling.pulse) == "its engine does not come back"
        eventually(lambda: completed(parts, 1), 20)
        assert puller._pulling.well()
