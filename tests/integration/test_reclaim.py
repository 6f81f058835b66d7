"""The reclaimer rebuilds a lost index, gives expired leases back, and spares live work."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import redis
from sqlalchemy import Connection, update

from pipeline.caller import ANYONE
from pipeline.clock import SetClock
from pipeline.job import SURVEY, TRANSCRIBE, State, Ticket
from pipeline.parts import Parts
from pipeline.queue import keys
from pipeline.queue.redis_queue import RedisQueue, connect
from pipeline.queue.roll import Identity
from pipeline.scheduling.policies import Waiting, parse_policy
from pipeline.scheduling.work import bucket_of, predicted_work_s
from pipeline.steps.reclaim import Reclaimer
from pipeline.store import erasures, index, jobs, policies, tables
from pipeline.store.accesses import Action
from pipeline.store.session import transaction
from tests.lines import save_window, states, surveyed_job
from workers.lease_keeper import LeaseKeeper

LEASE_S = 15.0


@pytest.fixture
def client(parts: Parts) -> redis.Redis:
    return connect(parts.settings.redis_url or "")


@pytest.fixture
def queue(parts: Parts) -> RedisQueue:
    return parts.queues[TRANSCRIBE.name]


@pytest.fixture
def clock() -> SetClock:
    return SetClock(1000.0)


@pytest.fixture
def reclaimer(parts: Parts, queue: RedisQueue, clock: SetClock) -> Reclaimer:
    return reclaimer_of(parts, queue, clock)


def reclaimer_of(parts: Parts, queue: RedisQueue, clock: SetClock) -> Reclaimer:
    return Reclaimer(
        parts.store,
        queue,
        TRANSCRIBE,
        clock,
        lease_s=LEASE_S,
        start_policy=parse_policy("hrrn(1.5)"),
        default_language="en",
    )


def settle_in(reclaimer: Reclaimer, clock: SetClock) -> None:
    """Tick until the first lease's time of grace is over."""
    for _ in range(int(LEASE_S) + 1):
        reclaimer.tick()
        clock.sleep(1.0)
    reclaimer.tick()


def work_on_one(parts: Parts, queue: RedisQueue) -> tuple[Ticket, str]:
    (claimed,) = queue.claim(1).jobs
    with transaction(parts.store) as c:
        (ticket,) = jobs.grant(c, TRANSCRIBE, [claimed.job_id], "gpu@here", "tiny.en")
    return ticket, claimed.token


def expire(client: redis.Redis, queue: RedisQueue, job_id: str) -> None:
    client.zadd(keys.lease(TRANSCRIBE.name), {job_id: queue.time_ms() - 1})


def test_a_lost_index_is_rebuilt_from_postgres(
    parts: Parts, queue: RedisQueue, client: redis.Redis, reclaimer: Reclaimer
) -> None:
    ids = [surveyed_job(parts) for _ in range(5)]
    ticket, _ = work_on_one(parts, queue)
    client.flushall()
    assert queue.counts() == (0, 0)
    reclaimer.tick()
    assert queue.counts() == (4, 1)
    assert queue.roll.is_whole()
    assert {job.job_id for job in queue.claim(100).jobs} == set(ids) - {ticket.job_id}
    assert queue.policy() == parse_policy("hrrn(1.5)")


def test_one_entry_lost_without_a_trace_is_found_by_the_rolling_audit(
    parts: Parts, queue: RedisQueue, client: redis.Redis, reclaimer: Reclaimer
) -> None:
    job_id = surveyed_job(parts)
    reclaimer.tick()
    client.zrem(keys.ready(TRANSCRIBE.name), job_id)
    reclaimer.tick()
    assert queue.counts() == (1, 0)


def test_a_job_committed_but_never_offered_reaches_the_queue(
    parts: Parts, queue: RedisQueue, reclaimer: Reclaimer
) -> None:
    queue.begin_epoch()
    surveyed_job(parts, queue=False)
    reclaimer.tick()
    assert queue.counts() == (1, 0)


def test_a_lease_that_ran_out_goes_back_ranked_by_what_remains(
    parts: Parts, queue: RedisQueue, client: redis.Redis, reclaimer: Reclaimer, clock: SetClock
) -> None:
    job_id = surveyed_job(parts, windows=40, window_s=20.0)
    ticket, _ = work_on_one(parts, queue)
    with transaction(parts.store) as c:
        for index in range(30):
            save_window(c, ticket, index, {"busy_s": 0.1})
    settle_in(reclaimer, clock)
    assert queue.counts() == (0, 1)  # the lease still runs
    expire(client, queue, job_id)
    reclaimer.tick()
    assert queue.counts() == (1, 0)
    (claimed,) = queue.claim(1).jobs
    assert claimed.bucket == bucket_of(predicted_work_s(10 * 20.0, 10, "en"))
    assert claimed.arrival_ms == ticket.arrival_ms


def test_a_lease_left_behind_by_an_ended_job_is_dropped(
    parts: Parts, queue: RedisQueue, client: redis.Redis, reclaimer: Reclaimer, clock: SetClock
) -> None:
    job_id = surveyed_job(parts)
    work_on_one(parts, queue)
    with transaction(parts.store) as c:
        jobs.fail(c, job_id, "failed", "for this test")
    settle_in(reclaimer, clock)
    expire(client, queue, job_id)
    reclaimer.tick()
    assert queue.counts() == (0, 0)
    assert states(parts) == {State.FAILED: 1}


@pytest.mark.parametrize("pause", ["first tick", "own pause", "redis pause", "new redis"])
def test_nothing_is_reaped_for_one_lease_after_a_pause(
    parts: Parts,
    queue: RedisQueue,
    client: redis.Redis,
    reclaimer: Reclaimer,
    clock: SetClock,
    pause: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job_id = surveyed_job(parts)
    work_on_one(parts, queue)
    if pause != "first tick":
        settle_in(reclaimer, clock)
    expire(client, queue, job_id)
    if pause == "own pause":
        clock.sleep(4.0)
    if pause == "redis pause":
        later_ms = queue.time_ms() + 20_000
        monkeypatch.setattr(queue, "time_ms", lambda: later_ms)
    if pause == "new redis":
        monkeypatch.setattr(queue.roll, "identity", lambda: Identity("another", "life"))
    reclaimer.tick()
    assert states(parts) == {State.RUNNING: 1}  # its worker may only not have been able to renew
    for _ in range(int(LEASE_S)):
        clock.sleep(1.0)
        reclaimer.tick()
    assert states(parts) == {State.SURVEYED: 1}


def test_a_worker_that_ended_a_job_meanwhile_does_not_revive_its_lease(
    parts: Parts, queue: RedisQueue, client: redis.Redis
) -> None:
    job_id = surveyed_job(parts)
    ticket, token = work_on_one(parts, queue)
    lost: list[str] = []
    keeper = LeaseKeeper(
        queue, parts.store, TRANSCRIBE, renew_s=5, moving=lambda: True, on_lost=lost.append
    )
    keeper.hold(job_id, token, ticket.attempt)
    client.flushall()
    keeper.renew_once()
    assert (queue.counts(), lost) == ((0, 1), [])  # live work takes its lease up again
    client.flushall()
    with transaction(parts.store) as c:
        jobs.fail(c, job_id, "failed", "for this test")
    keeper.renew_once()
    assert (queue.counts(), lost) == ((0, 0), [job_id])


def test_what_an_audit_put_in_the_queue_just_before_its_grant_stays_in_its_hands(
    parts: Parts, queue: RedisQueue, client: redis.Redis
) -> None:
    ours, settled, claimed = (surveyed_job(parts) for _ in range(3))
    held = {}
    for _ in range(3):
        ticket, token = work_on_one(parts, queue)
        held[ticket.job_id] = ticket, token
    lost: list[str] = []
    keeper = LeaseKeeper(
        queue, parts.store, TRANSCRIBE, renew_s=5, moving=lambda: True, on_lost=lost.append
    )
    for ticket, token in held.values():
        keeper.hold(ticket.job_id, token, ticket.attempt)
    client.flushall()
    queue.enqueue([Waiting(claimed, 40, 1)])
    (other,) = queue.claim(1).jobs  # its grant would be refused, but that is for it to learn
    with transaction(parts.store) as c:
        jobs.give_back(c, TRANSCRIBE, held[settled][0], 40)  # as a reaper would
    queue.enqueue([Waiting(ours, 40, 2), Waiting(settled, 40, 3)])
    keeper.renew_once()
    assert sorted(lost) == sorted([settled, claimed])
    owners = client.hgetall(keys.owner(TRANSCRIBE.name))
    assert owners == {ours: held[ours][1], claimed: other.token}
    assert queue.counts() == (1, 2)


def test_a_keeper_lets_go_of_what_was_taken_away_and_not_of_what_it_ended_itself(
    parts: Parts, queue: RedisQueue
) -> None:
    job_ids = [surveyed_job(parts) for _ in range(3)]
    lost: list[str] = []
    keeper = LeaseKeeper(
        queue, parts.store, TRANSCRIBE, renew_s=5, moving=lambda: True, on_lost=lost.append
    )
    held = [work_on_one(parts, queue) for _ in job_ids]
    for ticket, token in held:
        keeper.hold(ticket.job_id, token, ticket.attempt)
    ended, stopped, erased = (ticket.job_id for ticket, _ in held)
    keeper.watch_once()
    assert lost == []
    with transaction(parts.store) as c:
        jobs.fail(c, ended, "failed", "for this test", held[0][0].attempt)
        jobs.cancel(c, stopped)
        erasures.erase(c, [erased], ANYONE, Action.ERASED)
    keeper.watch_once()
    assert sorted(lost) == sorted([stopped, erased])
    assert queue.counts() == (0, 1)  # the lease of what it ended is its ending's to drop


def test_leases_of_work_that_does_not_move_run_out(parts: Parts, queue: RedisQueue) -> None:
    surveyed_job(parts)
    ticket, token = work_on_one(parts, queue)
    keeper = LeaseKeeper(
        queue, parts.store, TRANSCRIBE, renew_s=5, moving=lambda: False, on_lost=lambda _: None
    )
    keeper.hold(ticket.job_id, token, ticket.attempt)
    before = queue._redis.zscore(keys.lease(TRANSCRIBE.name), ticket.job_id)
    keeper.renew_once()
    assert queue._redis.zscore(keys.lease(TRANSCRIBE.name), ticket.job_id) == before


def test_a_policy_changed_while_redis_was_away_comes_into_force(
    parts: Parts, queue: RedisQueue, reclaimer: Reclaimer
) -> None:
    queue.set_policy(parse_policy("fcfs"))
    with transaction(parts.store) as c:
        policies.change_policy(c, parse_policy("sjf"), "for this test")
    reclaimer.tick()
    assert queue.policy() == parse_policy("sjf")


def test_arrivals_and_waits_are_measured_by_one_clock(
    parts: Parts, queue: RedisQueue, reclaimer: Reclaimer
) -> None:
    queue.clock_offset_ms = 10**9
    reclaimer.tick()
    assert abs(queue.clock_offset_ms) < 1000  # both servers run on this machine


def test_the_survey_queue_is_kept_true_in_the_same_way(parts: Parts, clock: SetClock) -> None:
    queue = parts.queues[SURVEY.name]
    job_id = surveyed_job(parts)
    with transaction(parts.store) as c:
        c.execute(update(tables.jobs).values(state=State.PROBED.value))
    settings = {"lease_s": LEASE_S, "start_policy": parse_policy("fcfs"), "default_language": "en"}
    Reclaimer(parts.store, queue, SURVEY, clock, **settings).tick()  # type: ignore[arg-type]
    assert [job.job_id for job in queue.claim(1).jobs] == [job_id]


def test_a_ghost_that_waits_and_a_lease_of_an_ended_job_are_found_by_the_rolling_audit(
    parts: Parts, queue: RedisQueue, client: redis.Redis, reclaimer: Reclaimer
) -> None:
    stays, ended, erased = (surveyed_job(parts) for _ in range(3))
    reclaimer.tick()
    with transaction(parts.store) as c:
        jobs.cancel(c, ended)  # as if Redis had been away: nobody told it
        erasures.erase(c, [erased], ANYONE, Action.ERASED)
    owner, lease = keys.owner(TRANSCRIBE.name), keys.lease(TRANSCRIBE.name)
    client.zadd(lease, {"01977f6e-8a3b-7c52-9d10-5b1f6c2a4e77": queue.time_ms() + 10**6})
    client.hset(owner, "01977f6e-8a3b-7c52-9d10-5b1f6c2a4e77", "somebody:1")
    reclaimer.tick()
    assert client.zrange(keys.ready(TRANSCRIBE.name), 0, -1) == [stays]
    assert not client.exists(owner, lease)


def test_the_audit_leaves_a_claim_alone_that_is_about_to_be_granted(
    parts: Parts, queue: RedisQueue, reclaimer: Reclaimer
) -> None:
    surveyed_job(parts)
    (claimed,) = queue.claim(1).jobs
    reclaimer.tick()
    reclaimer.tick()
    assert queue.renew([(claimed.job_id, claimed.token)]) == [1]


def test_a_job_that_came_back_while_the_audit_took_it_for_a_ghost_waits_again(
    parts: Parts,
    queue: RedisQueue,
    reclaimer: Reclaimer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job_id = surveyed_job(parts)
    reclaimer.tick()
    standing = index.standing

    def between(c: Connection, job_ids: Sequence[str]) -> dict[str, State]:
        ticket, token = work_on_one(parts, queue)
        seen = standing(c, job_ids)  # it is in work at this moment
        with transaction(parts.store) as other:
            place = jobs.give_back(other, TRANSCRIBE, ticket, ticket.bucket)
            assert place is not None
            index.indexed(other, TRANSCRIBE, [job_id])  # the outbox has had it, too
        queue.release([(job_id, token, place)])
        return seen

    monkeypatch.setattr(index, "standing", between)
    reclaimer._audit_back()
    assert queue.counts() == (1, 0)


def test_a_job_that_ends_while_its_lost_lease_is_seeded_leaves_none_behind(
    parts: Parts, queue: RedisQueue, reclaimer: Reclaimer, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = surveyed_job(parts)
    work_on_one(parts, queue)
    connect(parts.settings.redis_url or "").flushall()
    seed = queue.seed

    def ends_first(job_ids: Sequence[str]) -> list[str]:
        with transaction(parts.store) as c:
            jobs.fail(c, job_id, "not_audio", "Nothing to hear.")
        return seed(job_ids)

    monkeypatch.setattr(queue, "seed", ends_first)
    reclaimer.tick()
    assert queue.counts() == (0, 0)


def test_a_clock_set_back_does_not_keep_a_dead_workers_lease(
    parts: Parts, queue: RedisQueue, client: redis.Redis, reclaimer: Reclaimer, clock: SetClock
) -> None:
    job_id = surveyed_job(parts)
    work_on_one(parts, queue)
    reclaimer.tick()
    hour_ms = 3_600_000
    client.zadd(keys.lease(TRANSCRIBE.name), {job_id: queue.time_ms() + hour_ms})
    assert reclaimer._last_redis_ms is not None
    reclaimer._last_redis_ms += hour_ms  # Redis TIME was an hour later at the last tick
    reclaimer.tick()
    end_ms = client.zscore(keys.lease(TRANSCRIBE.name), job_id) or 0
    assert end_ms <= queue.time_ms() + LEASE_S * 1000


def test_jobs_left_by_a_version_without_heads_are_claimed_after_one_look(
    parts: Parts, queue: RedisQueue, client: redis.Redis, reclaimer: Reclaimer
) -> None:
    ids = {surveyed_job(parts) for _ in range(3)}
    reclaimer.tick()
    reclaimer.tick()  # the outbox, too, has nothing left to tell
    client.delete(keys.heads(TRANSCRIBE.name))
    assert not queue.claim(100).jobs
    reclaimer._cursor = max(ids)  # the rolling audit has just passed them
    reclaimer.tick()
    assert {job.job_id for job in queue.claim(100).jobs} == ids
