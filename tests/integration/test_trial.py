"""A policy tried on live work: entered block by block, sent back when worse, ended by a person."""

from __future__ import annotations

import itertools
import time
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import text, update

from pipeline.errors import BadRequest, NoSuchTrial, TooFewJobs, TrialRunning
from pipeline.job import TRANSCRIBE, State
from pipeline.parts import Parts
from pipeline.scheduling.adaptive import Mode
from pipeline.scheduling.policies import Policy
from pipeline.scheduling.switchback import A, sides
from pipeline.steps.replay import replay
from pipeline.steps.trial import begin, call_off, tick
from pipeline.store import policies, tables, trials
from pipeline.store.policies import PolicyRow
from pipeline.store.session import transaction
from pipeline.store.trials import Trial
from tests.driven import in_force
from tests.lines import pulling, surveyed_job
from workers.echo_engine import EchoEngine

SJF, FCFS = Policy("sjf"), Policy("fcfs")
BLOCK_S, BLOCKS = 600.0, 8


def begun(parts: Parts, policy: Policy = FCFS, **more: object) -> Trial:
    """Sjf against `policy`."""
    words = {"block_s": BLOCK_S, "blocks": BLOCKS, "seed": 4, **more}
    return begin(parts.store, parts.queues, (SJF, Mode.FIXED), policy, **words)  # type: ignore[arg-type]


def go_to(parts: Parts, block: float, b_over_a: float | None = None) -> Policy | None:
    """Let the start be so many blocks ago, and the errand be done.

    In each block that has ended 30 jobs had come; they took 10 s and some under A, and `b_over_a`
    times that under B.
    """
    since = text("clock_timestamp() - make_interval(secs => :age)").bindparams(age=block * BLOCK_S)
    with transaction(parts.store) as c:
        c.execute(update(tables.trials).values(started_at=since))
        found = trials.running(c)
        if found and b_over_a is not None:
            c.execute(tables.jobs.delete())
            rows = [
                job
                for n, side in enumerate(sides(BLOCKS, found.seed)[: int(block)])
                for job in came(found, n, 10.0 + 0.3 * n if side == A else 10.0 * b_over_a)
            ]
            c.execute(tables.jobs.insert(), rows)
    return tick(parts.store, parts.queues)


def came(trial: Trial, block: int, response_s: float, jobs: int = 30) -> list[dict[str, object]]:
    """Jobs of one block, spread over the part of it that counts, and how long they took."""
    rows: list[dict[str, object]] = []
    for n in range(jobs):
        at = trial.started_at + timedelta(seconds=(block + 0.3 + 0.69 * n / jobs) * BLOCK_S)
        at_ms = int(at.timestamp() * 1000)
        row = {
            "id": UUID(int=at_ms << 80 | (block * jobs + n + 1)),
            "file_name": "call.wav",
            "storage_key": "gone",
            "size_bytes": 1,
            "sha256": "0",
            "state": State.COMPLETED.value,
            "arrival_ms": at_ms,
            "completed_at": at + timedelta(seconds=response_s * (1 + n / jobs)),
        }
        rows.append(row)
    return rows


def history(parts: Parts) -> list[PolicyRow]:
    with transaction(parts.store) as c:
        return policies.changes(c, 99)[::-1]


def state(parts: Parts, trial: Trial) -> Trial:
    with transaction(parts.store) as c:
        found = trials.trial(c, trial.id)
    assert found is not None
    return found


def whole(parts: Parts, trial: Trial, b_over_a: float) -> tuple[Trial, int]:
    """The whole trial, block by block; how it ended and after how many blocks."""
    for block in range(1, BLOCKS + 1):
        go_to(parts, block + 0.01, b_over_a)
        found = state(parts, trial)
        if found.state != trials.RUNNING:
            return found, block
    raise AssertionError("it goes on after its last block")


def test_each_block_has_its_policy_and_the_history_tells_of_every_change(parts: Parts) -> None:
    trial = begun(parts)
    order = [SJF if side == A else FCFS for side in sides(BLOCKS, trial.seed)]
    seen = [history(parts)[-1].policy]
    for block in range(1, BLOCKS):
        go_to(parts, block + 0.5)
        go_to(parts, block + 0.9)  # within a block nothing changes
        seen.append(history(parts)[-1].policy)
        assert in_force(parts) == {str(seen[-1])}
    assert seen == order
    told = history(parts)
    assert {row.mode for row in told} == {Mode.TRIAL}
    assert len(told) == 1 + sum(a != b for a, b in itertools.pairwise(order))
    assert told[0].reason.startswith(f"Trial {trial.id}, block 1 of {BLOCKS}: ")


def test_a_worse_policy_is_sent_back_before_the_end(parts: Parts) -> None:
    trial = begun(parts)
    ended, blocks = whole(parts, trial, b_over_a=3.0)
    assert (ended.state, in_force(parts)) == (trials.RETURNED, {"sjf"})
    assert 6 <= blocks < BLOCKS
    last = history(parts)[-1]
    assert (last.policy, last.mode, last.reason) == (SJF, Mode.FIXED, ended.reason)
    assert "fcfs is worse after 3 pairs of blocks, 90 and 90 jobs: P50 " in last.reason
    assert tick(parts.store, parts.queues) is None
    assert go_to(parts, 99.0) is None  # it has ended


@pytest.mark.parametrize(
    ("b_over_a", "keep", "state_", "policy"),
    [
        (0.3, True, trials.KEPT, "fcfs"),
        (0.3, False, trials.RETURNED, "sjf"),
        (1.0, True, trials.RETURNED, "sjf"),
    ],
)
def test_a_better_one_is_kept_only_if_that_was_asked(
    parts: Parts, b_over_a: float, keep: bool, state_: str, policy: str
) -> None:
    trial = begun(parts, keep_better=keep)
    ended, blocks = whole(parts, trial, b_over_a)
    assert (ended.state, blocks, in_force(parts)) == (state_, BLOCKS, {policy})
    assert history(parts)[-1].mode is Mode.FIXED
    assert ended.result is not None
    assert ended.result["pairs"] == BLOCKS // 2


def test_a_trial_without_jobs_ends_as_it_began(parts: Parts) -> None:
    trial = begun(parts, keep_better=True)
    go_to(parts, BLOCKS + 0.5)
    ended = state(parts, trial)
    assert (ended.state, in_force(parts)) == (trials.RETURNED, {"sjf"})
    assert "too few to compare" in (ended.reason or "")


def test_who_comes_back_after_blocks_missed_enters_the_block_of_now(parts: Parts) -> None:
    trial = begun(parts)
    order = sides(BLOCKS, trial.seed)
    go_to(parts, BLOCKS - 0.5)
    assert history(parts)[-1].policy == (SJF if order[-1] == A else FCFS)


def test_auto_comes_back_with_its_mode(parts: Parts) -> None:
    with transaction(parts.store) as c:
        policies.change_policy(c, SJF, "by hand", Mode.AUTO)
    trial = begun(parts)
    whole(parts, trial, b_over_a=3.0)
    assert (history(parts)[-1].policy, history(parts)[-1].mode) == (SJF, Mode.AUTO)


def test_one_trial_at_a_time_and_none_of_what_is_in_force(parts: Parts) -> None:
    with pytest.raises(BadRequest, match="in force already"):
        begun(parts, SJF)
    begun(parts)
    with pytest.raises(TrialRunning):
        begun(parts, Policy("aged", 2.0))


def test_a_trial_is_called_off_once(parts: Parts) -> None:
    trial = begun(parts)
    go_to(parts, 1.5)
    ended = call_off(parts.store, parts.queues, trial.id)
    assert (ended.state, in_force(parts)) == (trials.STOPPED, {"sjf"})
    told = len(history(parts))
    assert call_off(parts.store, parts.queues, trial.id).ended_at == ended.ended_at
    assert len(history(parts)) == told
    with pytest.raises(NoSuchTrial):
        call_off(parts.store, parts.queues, trial.id + 1)
    begun(parts)  # the next may begin


def test_a_replay_needs_recordings_and_a_speed(parts: Parts) -> None:
    ask = (parts.store, parts.queues, (SJF, FCFS), 6.0, "en")
    with pytest.raises(TooFewJobs, match="speed"):
        replay(*ask)
    parts.queues[TRANSCRIBE.name].board.report_speed("transcribe@here", 8.0, 4)
    with pytest.raises(TooFewJobs, match="0 recordings of the last 6 hours"):
        replay(*ask)


def test_a_replay_tells_what_each_policy_would_have_done(parts: Parts) -> None:
    parts.queues[TRANSCRIBE.name].board.report_speed("transcribe@here", 0.05, 4)
    for n in range(60):
        surveyed_job(parts, windows=1 + 7 * (n % 4 == 0), queue=False, hollow=True)
    found = replay(parts.store, parts.queues, (SJF, FCFS), 6.0, "en")
    sjf, fcfs = found.policies
    assert (found.jobs, found.slots, found.speed) == (60, 4, 0.05)
    assert sjf.p50_s < 0.8 * fcfs.p50_s
    assert sjf.max_s >= 0.99 * fcfs.max_s
    assert history(parts) == []  # nothing was touched


# -- live work ------------------------------------------------------------------------------


def test_on_live_work_a_worse_policy_is_sent_back_by_itself(parts: Parts) -> None:
    for _ in range(40):  # a minute of long calls: behind them fcfs lets the short wait
        surveyed_job(parts, windows=80, hollow=True)
    trial = begun(parts, block_s=2.0, blocks=12)
    begun_s = time.monotonic()
    with pulling(parts, EchoEngine(slots=2, fixed_s=0.04, per_second_s=0.0)):
        while state(parts, trial).state == trials.RUNNING and time.monotonic() < begun_s + 60:
            surveyed_job(parts, hollow=True)
            time.sleep(0.1)  # a fifth of what the slots can do: sjf lets none of these wait
            tick(parts.store, parts.queues)
        took_s = time.monotonic() - begun_s
    ended = state(parts, trial)
    assert ended.state == trials.RETURNED, ended.result
    assert ended.result is not None
    assert f"fcfs is worse after {ended.result['pairs']} pairs" in (ended.reason or "")
    assert took_s < 12 * 2.0  # before its last block
    told = history(parts)
    order = [SJF if side == A else FCFS for side in sides(12, trial.seed)]
    blocks = {int(row.reason.split()[3]): row.policy for row in told[:-1]}
    assert all(order[number - 1] == policy for number, policy in blocks.items())
    assert (told[-1].policy, told[-1].mode, in_force(parts)) == (SJF, Mode.FIXED, {"sjf"})
