"""The queue on a real server: order, leases, fencing, and every script sent twice."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import redis

from pipeline.errors import PartDown
from pipeline.queue import keys
from pipeline.queue.order import Ahead
from pipeline.queue.redis_queue import (
    CLAIM_LIMIT,
    LOST,
    REASSERTED,
    RENEWED,
    Floor,
    RedisQueue,
    connect,
)
from pipeline.queue.scripts import CHUNK
from pipeline.scheduling.policies import Policy, Waiting, order_key, pairs, parse_policy
from pipeline.scheduling.work import bucket_windows, bucket_work_s

POLICIES = ["fcfs", "sjf", "hrrn(1)", "hrrn(1.5)", "hrrn(2.5,300)", "aged(5)"]


@pytest.fixture
def client(environ: dict[str, str]) -> redis.Redis:
    return connect(environ["FAIRSCRIBE_REDIS_URL"])


@pytest.fixture
def queue(client: redis.Redis) -> RedisQueue:
    line = RedisQueue(client, "transcribe", lease_s=15.0)
    line.begin_epoch()
    return line


def crowd(queue: RedisQueue, size: int, seed: int) -> dict[str, Waiting]:
    rng, now_ms = random.Random(seed), queue.time_ms()
    jobs = [
        Waiting(f"job-{n:05d}", rng.randrange(30, 130), now_ms - rng.randrange(0, 3_600_000))
        for n in range(size)
    ]
    assert queue.enqueue(jobs) == size
    return {job.job_id: job for job in jobs}


def oracle(waiting: dict[str, Waiting], policy: Policy, now_ms: int) -> Waiting:
    return min(waiting.values(), key=lambda job: order_key(job, pairs(policy), now_ms))


@pytest.mark.parametrize("text", POLICIES)
def test_every_claim_takes_the_job_a_brute_force_search_would(queue: RedisQueue, text: str) -> None:
    waiting = crowd(queue, 200, seed=hash(text) % 1000)
    queue.set_policy(parse_policy(text))
    while waiting:
        claim = queue.claim(1)
        (job,) = claim.jobs
        assert job.job_id == oracle(waiting, parse_policy(text), claim.now_ms).job_id
        del waiting[job.job_id]
    assert queue.claim(1).jobs == ()


def test_a_claim_for_many_windows_takes_the_same_jobs_in_the_same_order(queue: RedisQueue) -> None:
    waiting = crowd(queue, 100, seed=7)
    policy = parse_policy("hrrn(1.5)")
    queue.set_policy(policy)
    claim = queue.claim(40)
    wanted = 40
    for job in claim.jobs:
        assert wanted > 0
        assert job.job_id == oracle(waiting, policy, claim.now_ms).job_id
        wanted -= bucket_windows(waiting.pop(job.job_id).bucket)
    assert wanted <= 0


def test_a_new_policy_holds_from_the_next_claim(queue: RedisQueue) -> None:
    waiting = crowd(queue, 60, seed=3)
    for n in range(60):
        policy = parse_policy(POLICIES[n % len(POLICIES)])
        queue.set_policy(policy)
        claim = queue.claim(1)
        assert claim.jobs[0].job_id == oracle(waiting, policy, claim.now_ms).job_id
        del waiting[claim.jobs[0].job_id]


def test_ties_go_to_the_smaller_then_the_earlier_then_the_smaller_id(queue: RedisQueue) -> None:
    future_ms = queue.time_ms() + 3_600_000  # nobody has waited: all ranks are 0 under hrrn
    queue.set_policy(parse_policy("hrrn(1)"))
    queue.enqueue(
        [
            Waiting("d", 60, future_ms),
            Waiting("c", 50, future_ms + 1),
            Waiting("b", 50, future_ms),
            Waiting("a", 50, future_ms),
        ]
    )
    assert [queue.claim(1).jobs[0].job_id for _ in range(4)] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("text", POLICIES)
def test_only_jobs_that_outrank_the_floor_are_taken(queue: RedisQueue, text: str) -> None:
    waiting = crowd(queue, 50, seed=11)
    policy = parse_policy(text)
    queue.set_policy(policy)
    ranked = sorted(waiting.values(), key=lambda j: order_key(j, pairs(policy), queue.time_ms()))
    floor = ranked[20]
    taken = queue.claim(10_000, Floor(floor.bucket, floor.arrival_ms)).jobs
    table, now_ms = pairs(policy), queue.time_ms()
    own = order_key(floor, table, now_ms)[:3]
    assert taken
    assert all(order_key(waiting[j.job_id], table, now_ms)[:3] < own for j in taken)
    assert abs(len(taken) - 20) <= 1  # a moment passed between the two readings of the clock


def test_a_claim_sent_twice_gets_the_same_jobs(queue: RedisQueue, client: redis.Redis) -> None:
    crowd(queue, 10, seed=1)
    first = queue.claim(1)
    queue._numbers = iter([int(first.jobs[0].token.rsplit(":", 1)[1]), 99])  # the same token again
    assert queue.claim(1) == first
    assert queue.counts() == (9, 1)
    assert queue.claim(1).jobs != first.jobs


def test_the_position_of_a_job_agrees_with_the_order_of_claims(queue: RedisQueue) -> None:
    waiting = crowd(queue, 120, seed=5)
    policy, now_ms = parse_policy("hrrn(1.5)"), queue.time_ms()
    in_order = queue.order.head(120, policy, now_ms)
    expected = sorted(waiting.values(), key=lambda j: order_key(j, pairs(policy), now_ms))
    assert in_order == expected
    for n in (0, 1, 17, 60, 119):
        assert queue.order.ahead([in_order[n]], policy, now_ms)[0].position == n + 1
    assert queue.order.ahead([Waiting("nobody", 50, now_ms)], policy, now_ms)[0].position is None


def test_the_head_is_exact_however_many_of_one_size_go_first(queue: RedisQueue) -> None:
    now_ms = queue.time_ms()
    same = [Waiting(f"same-{n:04d}", 40, now_ms - 9_000_000 + n) for n in range(300)]
    others = [Waiting(f"job-{n:04d}", 41 + n % 30, now_ms - n) for n in range(300)]
    queue.enqueue([*same, *others])
    for text in POLICIES:
        policy = parse_policy(text)
        order = sorted([*same, *others], key=lambda j: order_key(j, pairs(policy), now_ms))
        for limit in (1, 16, 17, 290, 1000):
            assert queue.order.head(limit, policy, now_ms) == order[:limit]


@pytest.mark.parametrize("text", POLICIES)
def test_position_and_work_ahead_are_those_a_brute_force_search_finds(
    queue: RedisQueue, text: str
) -> None:
    waiting = crowd(queue, 150, seed=hash(text) % 1000)
    policy = parse_policy(text)
    for now_ms in (queue.time_ms(), queue.time_ms() + 600_000):  # now, and when its turn may come
        order = sorted(waiting.values(), key=lambda j: order_key(j, pairs(policy), now_ms))
        together = queue.order.ahead(order, policy, now_ms)
        ahead_s, before = 0.0, Counter[int]()
        for n, (job, ahead) in enumerate(zip(order, together, strict=True)):
            assert ahead == Ahead(n + 1, dict(before))
            assert sum(bucket_work_s(b) * k for b, k in ahead.by_bucket.items()) == pytest.approx(
                ahead_s
            )
            ahead_s, before[job.bucket] = (
                ahead_s + bucket_work_s(job.bucket),
                before[job.bucket] + 1,
            )
        assert queue.order.ahead(order[70:71], policy, now_ms) == together[70:71]


def test_work_ahead_is_told_too_of_a_place_that_does_not_wait_here(queue: RedisQueue) -> None:
    queue.enqueue([Waiting("a", 40, 1000), Waiting("b", 60, 1000), Waiting("c", 50, 2000)])
    guest = Waiting("guest", 50, 1500)
    policy, now_ms = parse_policy("fcfs"), queue.time_ms()
    assert queue.order.ahead([guest], policy, now_ms) == [Ahead(None, {40: 1, 60: 1})]
    assert queue.order.ahead([guest], parse_policy("sjf"), now_ms) == [Ahead(None, {40: 1})]
    assert queue.order.by_bucket() == {40: 1, 50: 1, 60: 1}


def test_enqueue_leaves_waiting_and_leased_jobs_alone(queue: RedisQueue) -> None:
    place = Waiting("a", 40, 1000)
    assert queue.enqueue([place]) == 1
    assert queue.enqueue([Waiting("a", 90, 5)]) == 0
    claimed = queue.claim(1).jobs[0]
    assert (claimed.bucket, claimed.arrival_ms) == (40, 1000)
    assert queue.enqueue([place]) == 0
    assert queue.counts() == (0, 1)


def test_only_the_owner_renews_completes_and_releases(queue: RedisQueue) -> None:
    queue.enqueue([Waiting("a", 40, 1000)])
    (job,) = queue.claim(1).jobs
    stranger = ("a", "somebody:1")
    assert queue.renew([stranger]) == [LOST]
    assert queue.complete([stranger]) == 0
    assert queue.release([(*stranger, Waiting("a", 1, 1))]) == 0
    assert queue.renew([("a", job.token)]) == [RENEWED]
    assert queue.release([("a", job.token, Waiting("a", 55, 1000))]) == 1
    assert queue.release([("a", job.token, Waiting("a", 55, 1000))]) == 0  # sent twice
    (again,) = queue.claim(1).jobs
    assert again.bucket == 55
    assert queue.complete([("a", job.token)]) == 0  # the old claim's token
    assert queue.complete([("a", again.token)]) == 1
    assert queue.counts() == (0, 0)


def test_a_lease_that_redis_forgot_is_taken_up_again_by_its_owner_only_if_nobody_waits(
    queue: RedisQueue, client: redis.Redis
) -> None:
    queue.enqueue([Waiting("a", 40, 1000), Waiting("b", 40, 1001)])
    held = [(job.job_id, job.token) for job in queue.claim(2).jobs]
    client.flushall()
    queue.enqueue([Waiting("b", 40, 1001)])
    assert queue.renew(held) == [REASSERTED, LOST]
    assert queue.renew(held[:1]) == [RENEWED]


def test_a_seeded_lease_does_not_turn_its_live_owner_away(
    queue: RedisQueue, client: redis.Redis
) -> None:
    queue.enqueue([Waiting("a", 40, 1000)])
    held = [(job.job_id, job.token) for job in queue.claim(1).jobs]
    client.flushall()
    assert queue.seed(["a"]) == ["a"]
    assert queue.seed(["a"]) == []
    assert queue.renew(held) == [REASSERTED]
    assert client.hget(keys.owner("transcribe"), "a") == held[0][1]


def test_a_job_given_back_right_after_its_lease_was_forgotten_waits_at_once(
    queue: RedisQueue, client: redis.Redis
) -> None:
    place = Waiting("a", 3, 100)
    queue.enqueue([place, Waiting("b", 3, 200)])
    held = [(job.job_id, job.token) for job in queue.claim(10).jobs]
    client.delete(keys.owner(queue.name), keys.lease(queue.name))
    queue.seed(["a", "b"])
    assert queue.release([(*held[0], place)]) == 1
    assert queue.complete(held[1:]) == 1
    assert queue.counts() == (1, 0)


def test_only_leases_that_ran_out_are_reaped_and_one_reaper_at_a_time(
    queue: RedisQueue, client: redis.Redis
) -> None:
    queue.enqueue([Waiting("a", 40, 1000), Waiting("b", 40, 1001)])
    held = {job.job_id: job.token for job in queue.claim(2).jobs}
    assert queue.reap() == []
    client.zadd(keys.lease("transcribe"), {"a": queue.time_ms() - 1})
    reaped = queue.reap()
    assert [job_id for job_id, _ in reaped] == ["a"]
    assert queue.reap() == []  # taken over: nobody else settles it meanwhile
    assert queue.renew([("a", held["a"])]) == [LOST]
    assert queue.release([(*reaped[0], Waiting("a", 40, 1000))]) == 1
    assert queue.counts() == (1, 1)


def test_the_bound_of_a_bucket_is_put_right_when_its_head_left_otherwise(
    queue: RedisQueue, client: redis.Redis
) -> None:
    heads = keys.heads("transcribe")
    queue.enqueue([Waiting("a", 40, 1000), Waiting("b", 40, 3000), Waiting("c", 50, 2000)])
    queue.withdraw(["a"])
    assert client.zrange(heads, 0, -1, withscores=True) == [("40", 1000.0), ("50", 2000.0)]
    assert [job.job_id for job in queue.claim(1).jobs] == ["c"]  # fcfs, whatever the bound says
    assert client.zrange(heads, 0, -1, withscores=True) == [("40", 3000.0)]


def test_the_audit_brings_back_a_bucket_whose_head_got_lost(
    queue: RedisQueue, client: redis.Redis
) -> None:
    places = [Waiting("a", 40, 1000), Waiting("b", 40, 3000)]
    queue.enqueue(places)
    client.delete(keys.heads("transcribe"))
    assert queue.enqueue(places) == 0  # all there, as far as `ready` goes
    assert [job.job_id for job in queue.claim(9).jobs] == ["a", "b"]


@pytest.mark.parametrize("bucket", ["-1", "300", "99999", "nan", "inf", "x", ""])
def test_a_head_of_no_bucket_does_not_end_all_claims(
    queue: RedisQueue, client: redis.Redis, bucket: str
) -> None:
    heads = keys.heads("transcribe")
    queue.enqueue([Waiting("a", 40, 1000), Waiting("b", 40, 3000)])
    client.zadd(heads, {bucket: 1})
    assert [job.job_id for job in queue.claim(1).jobs] == ["a"]
    assert client.zrange(heads, 0, -1) == ["40"]


def test_a_list_longer_than_a_script_takes_at_once_goes_in_parts(queue: RedisQueue) -> None:
    many = [Waiting(f"job-{n:04d}", 40, 1000 + n) for n in range(2 * CHUNK + 7)]
    ids = [job.job_id for job in many]
    assert queue.enqueue(many) == len(many)
    taken = [job for _ in range(len(many) // CLAIM_LIMIT + 1) for job in queue.claim(10**9).jobs]
    assert [job.job_id for job in taken] == ids
    held = [(job.job_id, job.token) for job in taken]
    assert queue.renew(held) == [RENEWED] * len(many)
    assert queue.release([(*one, place) for one, place in zip(held, many, strict=True)]) == len(
        many
    )
    assert queue.withdraw(ids) == len(many)
    assert queue.seed(ids) == ids
    queue.lease_ms = -1000
    assert set(queue.renew(held)) == {REASSERTED}
    reaped = queue.reap(2 * CHUNK + 5)
    assert len(reaped) == 2 * CHUNK + 5
    assert queue.complete([*reaped, *queue.reap()]) == len(many)
    assert queue.counts() == (0, 0)


def test_withdraw_takes_waiting_jobs_only(queue: RedisQueue) -> None:
    queue.enqueue([Waiting("a", 40, 1000), Waiting("b", 40, 1001)])
    queue.claim(1)
    assert queue.withdraw(["a", "b"]) == 1
    assert queue.counts() == (0, 1)


def test_the_last_one_withdrawn_leaves_no_bound_behind(
    queue: RedisQueue, client: redis.Redis
) -> None:
    queue.enqueue([Waiting("a", 1, 100), Waiting("b", 2, 50)])
    queue.withdraw(["a"])
    assert client.exists(keys.heads(queue.name))  # one still waits
    queue.withdraw(["b"])
    assert not client.exists(keys.heads(queue.name))


def test_a_seeded_lease_without_an_owner_can_be_dropped_again(queue: RedisQueue) -> None:
    queue.enqueue([Waiting("b", 1, 100)])
    (held,) = queue.claim(1).jobs
    queue.seed(["a"])
    assert queue.complete([("a", ""), ("b", "")]) == 1
    assert queue.renew([("b", held.token)]) == [RENEWED]


def test_an_index_that_was_lost_says_so_instead_of_looking_empty(
    queue: RedisQueue, client: redis.Redis
) -> None:
    assert not queue.claim(1).index_lost
    client.flushall()
    assert queue.claim(1).index_lost


def test_no_script_reads_a_key_it_does_not_declare(queue: RedisQueue, client: redis.Redis) -> None:
    crowd(queue, 5, seed=2)
    queue.claim(2)
    own = {keys.ready("transcribe"), keys.lease("transcribe"), keys.owner("transcribe")}
    own |= {keys.epoch("transcribe"), keys.answer("transcribe", queue.worker)}
    own |= {keys.heads("transcribe")}
    assert set(client.keys("*")) == own
    assert 0 < client.pttl(keys.answer("transcribe", queue.worker)) <= 60_000


def test_a_server_that_does_not_answer_is_a_part_that_is_down() -> None:
    line = RedisQueue(connect("redis://127.0.0.1:1/0"), "transcribe")
    with pytest.raises(PartDown, match="Redis does not answer"):
        line.claim(1)
