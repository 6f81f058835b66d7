"""What finished jobs took is written down with them, and learned from; it reorders nothing."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select, update

from pipeline.engine import Heard, Utterance
from pipeline.errors import LeaseLost
from pipeline.job import TRANSCRIBE, Ticket
from pipeline.parts import Parts
from pipeline.scheduling.learning import Done
from pipeline.scheduling.work import REFERENCE, WorkModel, bucket_of, predicted_work_s
from pipeline.steps.deliver import deliver
from pipeline.steps.erase import erase
from pipeline.steps.learn import KEPT, NEWEST, RECENT_S, learn
from pipeline.steps.transcribe import open_job
from pipeline.store import jobs, tables, work
from pipeline.store.session import transaction
from tests.lines import eventually, pulling, received_job, save_window, surveyed_job
from workers.echo_engine import TOKENS_PER_SECOND, EchoEngine

PROVENANCE = {"model": "echo", "engine": "echo"}
FAST = WorkModel(0.001, 0.02, 0.0005, {"en": 5.0})


def done_of(parts: Parts, model: str = "echo") -> list[Done]:
    with transaction(parts.store) as c:
        return work.newest_done(c, model, 100)


def granted(parts: Parts, job_id: str) -> Ticket:
    with transaction(parts.store) as c:
        (ticket,) = jobs.grant(c, TRANSCRIBE, [job_id], "t@here", "echo")
    return ticket


def window(busy_s: float, tokens: int = 10) -> Heard:
    return Heard((Utterance(0.0, 1.0, "a"),), "en", tokens, None, "stop", busy_s)


def finished(parts: Parts, count: int, model: str = "echo", slower: float = 1.0) -> list[str]:
    """Jobs that are over and took what `FAST` says, times `slower`."""
    ids = []
    for n in range(count):
        job_id = received_job(parts)
        speech_s, windows = 10.0 * (n % 20 + 1), n % 20 // 2 + 1
        busy_s = slower * FAST.predicted_s(speech_s, windows, "en")
        done = Done("en", speech_s, windows, round(5 * speech_s), busy_s, busy_s)
        with transaction(parts.store) as c:
            work.keep_done(c, job_id, model, done)
        ids.append(job_id)
    return ids


def learned(parts: Parts, model: str = "echo") -> WorkModel | None:
    with transaction(parts.store) as c:
        return work.newest_model(c, model)


# -- written down ---------------------------------------------------------------------------


def test_the_line_writes_down_what_a_job_took_of_its_engine(parts: Parts) -> None:
    # Given one call of four windows of 2 s, and an engine with a slot for each that needs 0.1 s
    surveyed_job(parts, windows=4)
    engine = EchoEngine(slots=4, fixed_s=0.1, per_second_s=0.0)
    # When it went through the line
    with pulling(parts, engine):
        eventually(lambda: done_of(parts))
    # Then its work is kept: the engine was busy for 0.1 s, not for four times as long
    (done,) = done_of(parts)
    assert (done.language, done.windows, done.speech_s) == ("en", 4, 8.0)
    assert done.tokens == 4 * 2 * TOKENS_PER_SECOND
    assert 0.1 <= done.busy_s < 0.2
    assert done.predicted_s == pytest.approx(REFERENCE.predicted_s(8.0, 4, "en"))


def test_windows_of_an_earlier_attempt_count_with_the_job(parts: Parts) -> None:
    # Given a job whose first worker heard one window of two, and was lost
    job_id = surveyed_job(parts, windows=2, queue=False)
    first = granted(parts, job_id)
    with transaction(parts.store) as c:
        save_window(c, first, 0, window(3.0, tokens=30).to_json())
        jobs.give_back(c, TRANSCRIBE, first, 40)
    # When the next one hears the other and delivers
    second = granted(parts, job_id)
    job = open_job(parts.store, second, "en")
    assert list(job.heard) == [0]
    job.heard[1] = window(1.0, tokens=12)
    deliver(parts.store, parts.storage, second, job.plan, job.artefact_key, job.heard, PROVENANCE)
    # Then both windows are in what it took
    (done,) = done_of(parts)
    assert (done.busy_s, done.tokens) == (pytest.approx(4.0), 42)


def test_who_lost_the_fence_writes_down_nothing(parts: Parts) -> None:
    job_id = surveyed_job(parts, queue=False)
    old = granted(parts, job_id)
    with transaction(parts.store) as c:
        jobs.give_back(c, TRANSCRIBE, old, 40)
    granted(parts, job_id)
    job = open_job(parts.store, old, "en")
    heard = {0: window(1.0)}
    with pytest.raises(LeaseLost):
        deliver(parts.store, parts.storage, old, job.plan, job.artefact_key, heard, PROVENANCE)
    assert done_of(parts) == []


def test_what_was_foretold_is_by_the_model_in_force(parts: Parts) -> None:
    with transaction(parts.store) as c:
        work.keep_model(c, "echo", FAST)
    job_id = surveyed_job(parts, windows=2, queue=False)
    ticket = granted(parts, job_id)
    job = open_job(parts.store, ticket, "en")
    heard = {n: window(0.5) for n in range(2)}
    deliver(parts.store, parts.storage, ticket, job.plan, job.artefact_key, heard, PROVENANCE)
    assert done_of(parts)[0].predicted_s == pytest.approx(FAST.predicted_s(4.0, 2, "en"))


def test_erasing_a_job_erases_what_it_took(parts: Parts) -> None:
    first, second = finished(parts, 2)
    erase(parts.store, parts.storage, parts.queues, first)
    assert len(done_of(parts)) == 1
    erase(parts.store, parts.storage, parts.queues, second)
    assert done_of(parts) == []


# -- learned --------------------------------------------------------------------------------


def test_an_engine_is_learned_from_its_own_jobs_and_from_no_other_s(parts: Parts) -> None:
    finished(parts, 100)
    finished(parts, 60, model="slow", slower=10)
    assert learn(parts.store) == ["echo", "slow"]
    fast, slow = learned(parts), learned(parts, "slow")
    assert fast is not None
    assert slow is not None
    told = fast.predicted_s(120.0, 6, "en")
    assert told == pytest.approx(FAST.predicted_s(120.0, 6, "en"), rel=0.05)
    assert slow.predicted_s(120.0, 6, "en") == pytest.approx(10 * told, rel=0.05)
    assert (fast.jobs, slow.jobs) == (100, 60)
    assert learned(parts, "unheard of") is None


def test_a_model_is_written_down_only_when_it_changed(parts: Parts) -> None:
    finished(parts, 40)
    assert learn(parts.store) == ["echo"]
    finished(parts, 3)
    assert learn(parts.store) == []  # asked twice, or nothing new: the same
    finished(parts, 200, slower=3)
    assert learn(parts.store) == ["echo"]
    with transaction(parts.store) as c:
        assert c.execute(select(func.count()).select_from(tables.work_models)).scalar_one() == 2


def test_of_two_who_learn_at_once_one_does_nothing(parts: Parts) -> None:
    finished(parts, 10)
    with transaction(parts.store) as c:
        assert work.may_learn(c)
        assert learn(parts.store) == []
    assert learn(parts.store) == ["echo"]


def test_old_work_is_forgotten_and_an_idle_engine_is_left_alone(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.steps.learn.KEPT", 15)
    finished(parts, 20)
    assert learn(parts.store) == ["echo"]
    assert len(done_of(parts)) == 15
    # Nothing has ended for a while
    ago = func.make_interval(0, 0, 0, 0, 0, 0, RECENT_S + 1)
    with transaction(parts.store) as c:
        c.execute(update(tables.work_done).values(ended_at=tables.work_done.c.ended_at - ago))
        c.execute(tables.work_models.delete())
    assert learn(parts.store) == []
    assert NEWEST <= KEPT  # what is kept holds what is learned from


# -- and not used for order -----------------------------------------------------------------


def test_learning_moves_no_job_to_another_bucket(parts: Parts) -> None:
    # Given jobs that wait, in every way they can come to wait
    waiting = [surveyed_job(parts, windows=n) for n in (1, 3, 9)]
    before = places(parts)
    # When the engine turns out a hundred times as fast as the reference
    finished(parts, 50)
    assert learn(parts.store) == ["echo"]
    # Then they stand where they stood, and who comes now stands beside them
    waiting.append(surveyed_job(parts, windows=3))
    after = places(parts)
    assert {job_id: after[job_id] for job_id in before} == before
    assert after[waiting[3]] == before[waiting[1]] == bucket_of(predicted_work_s(6.0, 3, "en"))


def places(parts: Parts) -> dict[str, int]:
    claimed = parts.queues[TRANSCRIBE.name].order
    head = claimed.head(100, parts.settings.start_policy, 10**13)
    return {place.job_id: place.bucket for place in head}
