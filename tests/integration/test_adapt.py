"""auto on real parts: the backlog moves the order of work, a person's word stops that."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import text, update

from pipeline.errors import PartDown
from pipeline.job import TRANSCRIBE
from pipeline.parts import Parts
from pipeline.queue.redis_queue import RedisQueue, connect
from pipeline.scheduling.adaptive import STAY_S, Mode, Move
from pipeline.scheduling.policies import Policy
from pipeline.scheduling.work import bucket_work_s
from pipeline.steps.adapt import adapt, look
from pipeline.store import policies, tables
from pipeline.store.session import transaction
from pipeline.store.wishes import wishing
from tests import driven
from tests.driven import in_force

FCFS = Policy("fcfs")
SHORT, LONG = 50, 100


def report(parts: Parts, slots: int = 2) -> None:
    """One engine that does a slot second a second, all slots together."""
    parts.queues[TRANSCRIBE.name].board.report_speed("transcribe@here", 1.0, slots)


def waiting(parts: Parts, count: int, bucket: int = SHORT, **wishes: object) -> list[str]:
    ids = [driven.received(parts) for _ in range(count)]
    for job_id in ids:
        driven.surveyed(parts, job_id, bucket)
    if wishes:
        chosen = tables.jobs.c.id.in_([UUID(job_id) for job_id in ids])
        with transaction(parts.store) as c:
            c.execute(update(tables.jobs).where(chosen).values(**wishes))
    return ids


def decided(parts: Parts, policy: Policy, mode: Mode, ago_s: float = 0.0) -> None:
    with transaction(parts.store) as c:
        policies.change_policy(c, policy, "for this test", mode)
        c.execute(
            text("UPDATE policies SET changed_at = changed_at - make_interval(secs => :ago)"),
            {"ago": ago_s},
        )
    for queue in parts.queues.values():
        queue.set_policy(policy)


def beat(parts: Parts, start: Mode = Mode.AUTO) -> Move | None:
    return adapt(parts.store, parts.queues, FCFS, start)


def test_a_backlog_moves_it_up_and_an_empty_queue_back_to_fcfs(parts: Parts) -> None:
    report(parts)
    ids = waiting(parts, 60)
    move = beat(parts)
    assert move is not None
    assert move.policy.name == "hrrn"
    assert in_force(parts) == {str(move.policy)}
    with transaction(parts.store) as c:
        (row,) = policies.changes(c, 9)
    assert (row.policy, row.mode, row.reason) == (move.policy, Mode.AUTO, move.reason)
    assert f"{60 * bucket_work_s(SHORT):.1f} s of work wait" in row.reason

    assert beat(parts) is None  # it holds
    parts.queues[TRANSCRIBE.name].withdraw(ids)
    assert beat(parts) is None  # for its minimum stay
    decided(parts, move.policy, Mode.AUTO, ago_s=STAY_S + 1)
    back = beat(parts)
    assert back is not None
    assert (back.policy, in_force(parts)) == (FCFS, {"fcfs"})


@pytest.mark.parametrize("mode", [Mode.FIXED, Mode.TRIAL])
def test_only_auto_is_moved(parts: Parts, mode: Mode) -> None:
    report(parts)
    waiting(parts, 60)
    decided(parts, FCFS, mode)
    assert (beat(parts), in_force(parts)) == (None, {"fcfs"})


def test_a_fixed_setting_is_not_moved_while_nobody_decided(parts: Parts) -> None:
    report(parts)
    waiting(parts, 60)
    assert beat(parts, Mode.FIXED) is None


def test_nothing_is_moved_while_no_engine_was_measured(parts: Parts) -> None:
    waiting(parts, 60)
    assert beat(parts) is None
    parts.queues[TRANSCRIBE.name].board.report_speed("transcribe@here", None, 2)
    assert beat(parts) is None


def test_one_decides_at_a_time_and_a_persons_word_is_not_overtaken(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    report(parts)
    waiting(parts, 60)
    with transaction(parts.store) as c:
        policies.await_turn(c)
        assert beat(parts) is None  # another decides

    def speak() -> None:
        decided(parts, Policy("sjf"), Mode.FIXED)

    monkeypatch.setattr("pipeline.steps.adapt.look", _after(speak))
    assert beat(parts) is None  # somebody spoke between the look and the move
    assert in_force(parts) == {"sjf"}


def _after(act: Callable[..., object]) -> Callable[..., object]:
    def looked(*words: object) -> object:
        found = look(*words)  # type: ignore[arg-type]
        act()
        return found

    return looked


def test_many_deciders_make_one_move(parts: Parts) -> None:
    report(parts)
    waiting(parts, 60)
    threads = [threading.Thread(target=beat, args=(parts,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with transaction(parts.store) as c:
        assert len(policies.changes(c, 9)) == 1


def test_redis_away_is_the_next_beats(parts: Parts) -> None:
    away = {TRANSCRIBE.name: RedisQueue(connect("redis://127.0.0.1:1"), TRANSCRIBE.name)}
    with pytest.raises(PartDown):
        adapt(parts.store, away, FCFS, Mode.AUTO)
    with transaction(parts.store) as c:
        assert policies.changes(c, 9) == []


# -- who would be late ----------------------------------------------------------------------


def test_jobs_that_would_miss_their_wish_are_shares_of_all_that_wait(parts: Parts) -> None:
    report(parts)
    work = bucket_work_s(SHORT)
    now = datetime.now(UTC)
    waiting(parts, 5)
    waiting(parts, 2, wait_budget_s=100 * work)  # as the 6th and 7th their turn comes in time
    waiting(parts, 2, wait_budget_s=work)
    waiting(parts, 1, LONG, deadline=now)
    waiting(parts, 2, LONG, deadline=now + timedelta(days=1))
    signals = look(parts.store, parts.queues, FCFS)
    assert signals is not None
    assert signals.short_at_risk == pytest.approx(2 / 12)
    assert signals.long_at_risk == pytest.approx(1 / 12)


def test_an_order_that_serves_them_in_time_puts_nobody_at_risk(parts: Parts) -> None:
    report(parts)
    waiting(parts, 3, LONG)
    waiting(parts, 3, wait_budget_s=3.5 * bucket_work_s(SHORT))
    late = [look(parts.store, parts.queues, Policy(name)) for name in ("fcfs", "sjf")]
    assert [signals and signals.short_at_risk for signals in late] == [0.5, 0.0]


def test_a_sample_stands_for_all_that_are_looked_at(parts: Parts) -> None:
    waiting(parts, 30, wait_budget_s=1.0)
    with transaction(parts.store) as c:
        few, looked_at = wishing(c, 20, 5)
        assert (len(few), looked_at) == (5, 20)
        plan = c.execute(
            text(f"EXPLAIN SELECT id FROM jobs WHERE {tables.WISHING} ORDER BY id LIMIT 9")
        ).scalars()
        assert "jobs_wishing" in "".join(plan)


def test_recordings_that_wait_to_be_surveyed_are_a_backlog_too(parts: Parts) -> None:
    report(parts, slots=1000)
    for _ in range(60):
        driven.probed(parts, driven.received(parts))
    assert beat(parts) is None
    parts.queues["survey"].board.report_speed("survey@here", 1.0, 2)
    assert beat(parts) is not None
