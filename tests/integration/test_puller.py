"""A puller on real Postgres and Redis with the echo engine: order, slots, faults, ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from pipeline.engine import Heard, Prepared
from pipeline.errors import EngineDead
from pipeline.job import TRANSCRIBE, State
from pipeline.parts import Parts
from pipeline.queue.redis_queue import Claim, RedisQueue, connect
from pipeline.scheduling.policies import Waiting, order_key, pairs, parse_policy
from pipeline.steps.cancel import cancel
from pipeline.store import index, tables
from pipeline.store.session import transaction
from tests.lines import eventually, pulling, set_to, states, surveyed_job, view
from workers.echo_engine import EchoEngine


def all_completed(parts: Parts, count: int) -> bool:
    return states(parts) == {State.COMPLETED: count}


def transcribed(parts: Parts) -> int:
    with transaction(parts.store) as c:
        return len(c.execute(select(tables.transcripts.c.job_id)).all())


class WatchedQueue(RedisQueue):
    """Compares every claim with a brute-force search over all that wait."""

    watched: dict[str, Waiting]
    wrong: list[str]
    claims: int

    def claim(self, *asked: Any, **more: Any) -> Claim:
        before = self.policy()
        answer = super().claim(*asked, **more)
        policy = self.policy_seen
        assert policy in (before, self.policy())  # a switch holds from the next claim
        table = pairs(policy)
        for job in answer.jobs:
            if job.job_id not in self.watched:
                continue  # a ghost: the audit read it just before it ended; its grant is refused
            key = {j: order_key(w, table, answer.now_ms) for j, w in self.watched.items()}
            best = min(self.watched, key=lambda job_id: key[job_id])
            if best != job.job_id:
                self.wrong.append(f"{policy}: took {job.job_id}, first was {best}")
            del self.watched[job.job_id]
            self.claims += 1
        return answer


# hrrn looks at size and time, the last changes the rule meanwhile; the others in make verify
@pytest.mark.parametrize(
    "texts",
    [
        *(pytest.param([one], marks=pytest.mark.slow) for one in ("fcfs", "sjf", "aged(5)")),
        ["hrrn(1)"],
        ["sjf", "fcfs"],
    ],
)
def test_200_jobs_are_claimed_in_the_order_of_a_brute_force_search(
    parts: Parts, texts: list[str]
) -> None:
    sizes = [(1 + n * 7 % 5, 1.0 + n * 13 % 24) for n in range(200)]
    ids = [
        surveyed_job(parts, windows, window_s, waited_s=n * 37 % 500, queue=False)
        for n, (windows, window_s) in enumerate(sizes)
    ]
    queue = WatchedQueue(connect(parts.settings.redis_url or ""), TRANSCRIBE.name)
    with transaction(parts.store) as c:
        places, _, _ = index.page_of_stage(c, TRANSCRIBE, None, 500)
    queue.watched, queue.wrong, queue.claims = {p.job_id: p for p in places}, [], 0
    queue.set_policy(parse_policy(texts[0]))
    queue.enqueue(places)
    parts.queues[TRANSCRIBE.name] = queue
    with pulling(parts, EchoEngine(slots=4, fixed_s=0.002, per_second_s=0.0)):
        eventually(lambda: queue.claims >= 100, 60)
        queue.set_policy(parse_policy(texts[-1]))
        eventually(lambda: all_completed(parts, 200), 60)
    assert queue.wrong == []
    assert queue.claims == len(ids)


def test_flushall_loses_nothing_and_stops_no_running_work(parts: Parts) -> None:
    redis = connect(parts.settings.redis_url or "")
    set_to(parts, lease_s=3.0, renew_s=1.0)
    ids = [surveyed_job(parts) for _ in range(54)]
    with pulling(parts, EchoEngine(slots=4, fixed_s=3.0, per_second_s=0.0)) as puller:
        # four in the slots and two made ready
        eventually(lambda: states(parts).get(State.RUNNING) == 4 + puller._work.ahead)
        puller._work._engine._fixed_s = 0.05  # type: ignore[attr-defined]
        redis.flushall()
        eventually(lambda: all_completed(parts, 54), 60)
        # the rebuild may have seeded a job that ended meanwhile: its lease runs out and is dropped
        eventually(lambda: parts.queues[TRANSCRIBE.name].counts() == (0, 0), 20)
    assert transcribed(parts) == 54
    assert {view(parts, job_id).attempts for job_id in ids} == {
        1
    }  # nobody was aborted or run twice


def test_a_short_newcomer_gets_the_next_slot_while_a_long_job_is_in_hand(parts: Parts) -> None:
    parts.queues[TRANSCRIBE.name].set_policy(parse_policy("hrrn(1.5)"))
    long = surveyed_job(parts, windows=60)
    with pulling(parts, EchoEngine(slots=2, fixed_s=0.1, per_second_s=0.0)):
        eventually(lambda: view(parts, long).progress > 0)
        shorts = [surveyed_job(parts) for _ in range(5)]
        eventually(lambda: all_completed(parts, 6), 60)
    ends = [view(parts, job_id).completed_at for job_id in shorts]
    assert all(end and end < (view(parts, long).completed_at or end) for end in ends)
    assert view(parts, long).attempts == 1  # it went on beside them


def test_a_job_in_hand_that_gets_no_slot_is_given_back_with_its_first_arrival(
    parts: Parts,
) -> None:
    parts.queues[TRANSCRIBE.name].set_policy(parse_policy("sjf"))
    long = surveyed_job(parts, windows=30)
    arrival = view(parts, long).created_at
    engine = EchoEngine(slots=1, fixed_s=0.3, per_second_s=0.0)
    with pulling(parts, engine):
        eventually(lambda: view(parts, long).progress > 0)
        shorts = [surveyed_job(parts) for _ in range(12)]
        eventually(lambda: view(parts, long).state is State.SURVEYED)
        engine._fixed_s = 0.02  # the rest need not take its time
        eventually(lambda: all(view(parts, s).state is State.COMPLETED for s in shorts), 30)
        eventually(lambda: all_completed(parts, 13), 30)
    assert view(parts, long).attempts >= 2
    assert view(parts, long).created_at == arrival


def test_a_drained_worker_ends_its_windows_and_the_next_one_hears_only_the_rest(
    parts: Parts,
) -> None:
    job_id = surveyed_job(parts, windows=20)
    engine = CountingEngine(slots=2, fixed_s=0.02, per_second_s=0.0)
    with pulling(parts, engine):
        eventually(lambda: engine.answered >= 5)
        engine.on_loop(engine.hang)
        resume = threading.Timer(0.5, lambda: engine.on_loop(engine.resume))
        resume.start()
    assert view(parts, job_id).state is State.SURVEYED
    assert parts.queues[TRANSCRIBE.name].counts() == (1, 0)
    assert 5 <= engine.answered < 20
    with pulling(parts, engine, name="second@here"):
        eventually(lambda: view(parts, job_id).state is State.COMPLETED)
    assert engine.answered == 20  # no window was heard twice


def test_a_cancelled_job_frees_its_slots_and_never_gets_a_transcript(parts: Parts) -> None:
    running = surveyed_job(parts, windows=50)
    with pulling(parts, EchoEngine(slots=1, fixed_s=0.2, per_second_s=0.0)):
        eventually(lambda: view(parts, running).progress > 0)
        waiting = surveyed_job(parts, windows=99)
        assert cancel(parts.store, parts.queues, running)
        assert cancel(parts.store, parts.queues, waiting)
        other = surveyed_job(parts)
        eventually(lambda: view(parts, other).state is State.COMPLETED, 5)
    assert states(parts) == {State.CANCELLED: 2, State.COMPLETED: 1}
    assert transcribed(parts) == 1
    assert parts.queues[TRANSCRIBE.name].counts() == (0, 0)
    assert not cancel(parts.store, parts.queues, other)


class CountingEngine(EchoEngine):
    """Counts windows answered; can be made to die of certain windows."""

    answered = 0
    deadly: bytes | None = None
    starts = 0
    loop: asyncio.AbstractEventLoop

    async def start(self) -> None:
        self.starts += 1
        self.loop = asyncio.get_running_loop()
        await super().start()

    def on_loop(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the puller has left
            self.loop.call_soon_threadsafe(call)

    @property
    def serving(self) -> int:
        return self._serving

    async def transcribe(self, window: Prepared, **kwargs: Any) -> Heard:
        if window.pcm == self.deadly:
            self.kill()
        heard = await super().transcribe(window, **kwargs)
        self.answered += 1
        return heard


def test_a_dead_engine_is_started_again_and_no_innocent_job_is_charged(parts: Parts) -> None:
    ids = [surveyed_job(parts, windows=2) for _ in range(4)]
    engine = CountingEngine(slots=4, fixed_s=1.0, per_second_s=0.0)
    with pulling(parts, engine):
        eventually(lambda: engine.serving == 4)  # of two jobs
        engine.on_loop(engine.kill)
        eventually(lambda: all_completed(parts, 4))
    assert engine.starts == 2
    with transaction(parts.store) as c:
        assert {r.crashes for r in c.execute(select(tables.jobs.c.crashes))} == {0}
    assert {view(parts, job_id).attempts for job_id in ids} == {1}


def test_a_recording_that_kills_the_engine_fails_and_the_others_complete(parts: Parts) -> None:
    engine = CountingEngine(slots=4, fixed_s=0.05, per_second_s=0.0)
    poison = surveyed_job(parts, windows=2)
    engine.deadly = parts.storage.read_range(f"packed/{poison}-1", 0, 64_000)
    innocent = [surveyed_job(parts, windows=2) for _ in range(5)]
    with pulling(parts, engine):
        eventually(lambda: view(parts, poison).state is State.FAILED, 30)
        eventually(lambda: all(view(parts, i).state is State.COMPLETED for i in innocent), 30)
    failed = view(parts, poison)
    assert failed.error_code == "engine_crashed"
    assert "alone" in (failed.error_message or "")
    with transaction(parts.store) as c:
        charged = {str(r.id): r.crashes for r in c.execute(select(tables.jobs))}
    assert charged.pop(poison) == parts.settings.max_crashes
    assert set(charged.values()) == {0}


class NumberlessEngine(CountingEngine):
    """Says of one recording's windows what Postgres does not keep."""

    odd = b""

    async def transcribe(self, window: Prepared, **kwargs: Any) -> Heard:
        heard = await super().transcribe(window, **kwargs)
        return replace(heard, mean_logprob=float("nan")) if window.pcm == self.odd else heard


def test_an_answer_that_postgres_refuses_costs_its_own_job_and_not_the_worker(
    parts: Parts,
) -> None:
    engine = NumberlessEngine(slots=2, fixed_s=0.1, per_second_s=0.0)
    refused, _ = (surveyed_job(parts, windows=20) for _ in range(2))
    engine.odd = parts.storage.read_range(f"packed/{refused}-1", 0, 64_000)
    with pulling(parts, engine) as puller:
        eventually(lambda: engine.answered >= 6)
        puller.drain()
        assert puller.ended.wait(10)
        assert puller.error is None
    assert states(parts) == {State.SURVEYED: 2}  # given back, not left to a lease
    assert parts.queues[TRANSCRIBE.name].counts() == (2, 0)
    with pulling(parts, engine):
        # the transcript holds none of what was refused; else its job would end with that
        eventually(lambda: all_completed(parts, 2))


def test_an_engine_that_hangs_is_started_again(parts: Parts) -> None:
    set_to(parts, engine_stall_s=0.6)
    engine = CountingEngine(slots=2, fixed_s=0.05, per_second_s=0.0)
    surveyed_job(parts, windows=8)
    with pulling(parts, engine):
        eventually(lambda: engine.answered >= 2)
        engine.on_loop(engine.hang)
        eventually(lambda: all_completed(parts, 1), 15)
    assert engine.starts >= 2


class DeafEngine(EchoEngine):
    """Cannot be started."""

    async def start(self) -> None:
        raise EngineDead("no device")


def test_a_puller_whose_engine_does_not_start_ends_with_its_reason(parts: Parts) -> None:
    with pulling(parts, DeafEngine()) as puller:
        assert puller.ended.wait(5)
        assert isinstance(puller.error, EngineDead)


def test_a_job_whose_packed_speech_is_gone_fails_with_a_typed_reason(parts: Parts) -> None:
    gone, sound = surveyed_job(parts), surveyed_job(parts)
    parts.storage.delete(f"packed/{gone}-1")
    with pulling(parts):
        eventually(lambda: states(parts) == {State.FAILED: 1, State.COMPLETED: 1})
    assert view(parts, gone).error_code == "recording_missing"
    assert view(parts, sound).state is State.COMPLETED


def test_a_late_worker_writes_nothing_after_a_newer_attempt_was_granted(parts: Parts) -> None:
    job_id = surveyed_job(parts, windows=3)
    with pulling(parts, EchoEngine(slots=1, fixed_s=0.3, per_second_s=0.0)):
        eventually(lambda: view(parts, job_id).state is State.RUNNING)
        with transaction(parts.store) as c:  # as if its lease had run out and another had it
            c.execute(
                update(tables.jobs)
                .where(tables.jobs.c.id == uuid.UUID(job_id))
                .values(attempt=tables.jobs.c.attempt + 1)
            )
        saved = view(parts, job_id).progress
        time.sleep(1.2)
        assert view(parts, job_id).state is State.RUNNING
        assert view(parts, job_id).progress == saved
    assert transcribed(parts) == 0


def test_postgres_knows_who_works_and_a_second_worker_never_gets_the_same_job(
    parts: Parts,
) -> None:
    ids = [surveyed_job(parts, windows=2) for _ in range(40)]
    engines = [CountingEngine(slots=3, fixed_s=0.02, per_second_s=0.0) for _ in range(2)]
    with (
        pulling(parts, engines[0], name="one@here"),
        pulling(parts, engines[1], name="two@here"),
    ):
        eventually(lambda: all_completed(parts, 40), 30)
    assert sum(engine.answered for engine in engines) == 80
    assert {view(parts, job_id).attempts for job_id in ids} == {1}
    assert min(engine.answered for engine in engines) > 0
    assert threading.active_count() < 60


def test_the_sign_of_life_comes_from_the_loop_so_that_one_that_hangs_shows_none(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = tmp_path / "ready"
    monkeypatch.setenv("FAIRSCRIBE_READY_FILE", str(ready))

    def old() -> bool:
        return ready.stat().st_mtime < 1.0

    with pulling(parts) as puller:
        eventually(ready.exists, 5, "it said that it is ready")
        os.utime(ready, (0, 0))
        eventually(lambda: not old(), 5, "it shows that it serves")
        hung, go_on = threading.Event(), threading.Event()

        def hang() -> None:
            hung.set()
            go_on.wait(10)

        puller._on_loop(hang)
        assert hung.wait(5)
        os.utime(ready, (0, 0))
        puller._show_progress()
        assert old()
        go_on.set()
        eventually(lambda: not old(), 5, "it serves again")
