"""What the queue costs the Redis server: time a job and bytes a job, with many jobs waiting.

    fairscribe bench queue --waiting 100000 --json

A Valkey of its own is filled with calls (lognormal, median 3.5 minutes, 5 s to 2 h; ids of 36
characters) and then used as workers use it, in the default order, while as many wait as before.
What is told is the server's own account, `SLOWLOG` of every call: the time a script had the server
for itself, without the network.

    server_us      enqueue, claim, complete: one job a call; claim16: a claim of 16, over 16; of
                   the median call, as on a shared machine the mean would tell of others too
    bytes_per_job  used_memory, full less empty, over the jobs that wait
    max_block_ms   the longest that a call of any script keeps the server from others, each asked
                   for as much as it ever is: CPU time of the server, for the same reason
"""

from __future__ import annotations

import argparse
import json
import math
import random
import signal
import statistics
import sys
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import redis

from pipeline.queue.redis_queue import CLAIM_LIMIT, Claimed, RedisQueue, connect
from pipeline.queue.scripts import CHUNK, Scripts
from pipeline.scheduling.policies import Waiting, parse_policy
from pipeline.scheduling.work import bucket_of, predicted_work_s
from pipeline.settings import DEFAULT_POLICY
from tests.servers import throwaway_home
from workers.state_folder import StateFolder
from workers.valkey import Valkey

CALLS = 2000
"""Calls of each kind whose median is told."""
WORST = 20
"""Times each of the largest calls is made."""
WAITING_LIMIT = 20_000_000
"""Jobs: 8 GB of the server's memory."""
ENDLESS = 10**9
"""Windows enough for any number of jobs."""


def main() -> None:
    asked = argparse.ArgumentParser("fairscribe bench queue")
    asked.add_argument("--waiting", type=int, default=100_000, help="jobs that wait")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--json", action="store_true")
    given = asked.parse_args()
    if not 1 <= given.waiting <= WAITING_LIMIT:
        asked.error(f"--waiting {given.waiting}: 1 to {WAITING_LIMIT} jobs wait")
    for number in (signal.SIGTERM, signal.SIGHUP):  # leave no folder behind then either
        signal.signal(number, lambda *_: sys.exit(1))
    with throwaway_home() as home, StateFolder(home) as folder:
        server = Valkey(folder)
        try:
            report = measured(connect(server.start()), given.waiting, random.Random(given.seed))
        finally:
            server.stop()
    print(json.dumps(report) if given.json else told(report), flush=True)


def measured(client: redis.Redis, waiting: int, rng: random.Random) -> dict[str, Any]:
    """The report, from a server that holds nothing else."""
    queue = RedisQueue(client, "transcribe")
    queue.begin_epoch()
    queue.set_policy(parse_policy(DEFAULT_POLICY))
    queue.claim(1)  # it knows the policy and the script from here on
    crowd = calls(rng, queue.time_ms())
    empty_bytes = _used_bytes(client)
    for _ in range(0, waiting, CHUNK):
        queue.enqueue(next(crowd) for _ in range(min(CHUNK, waiting - queue.waiting())))
    bytes_per_job = (_used_bytes(client) - empty_bytes) / waiting
    singly = _a_job_at_a_time(client, queue, crowd, 1)
    together = _a_job_at_a_time(client, queue, crowd, 16)
    server_us = {
        "enqueue": singly["enqueue"],
        "claim": singly["claim"],
        "claim16": together["claim"] / 16,
        "complete": singly["complete"],
    }
    return {
        "waiting": waiting,
        "server_us": {name: round(float(us), 1) for name, us in server_us.items()},
        "bytes_per_job": round(bytes_per_job, 1),
        "max_block_ms": round(max(_blocks_ms(client, queue, crowd)), 2),
    }


def calls(rng: random.Random, now_ms: int) -> Iterator[Waiting]:
    """Calls that came within the last hour, without end."""
    while True:
        length_s = min(7200.0, max(5.0, rng.lognormvariate(math.log(210), 1.0)))
        bucket = bucket_of(predicted_work_s(length_s, None, "en"))
        job_id = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        yield Waiting(job_id, bucket, now_ms - rng.randrange(3_600_000))


def _a_job_at_a_time(
    client: redis.Redis, queue: RedisQueue, crowd: Iterator[Waiting], at_once: int
) -> dict[str, float]:
    """Jobs come, `at_once` are claimed together, they end: microseconds a call of each script."""
    scripts = {sha: name for name, sha in Scripts(client).hashes().items()}
    client.config_set("slowlog-max-len", 3 * CALLS)
    client.config_set("slowlog-log-slower-than", 0)
    client.slowlog_reset()
    for _ in range(CALLS // at_once):
        for _ in range(at_once):
            queue.enqueue([next(crowd)])
        for job in queue.claim(ENDLESS, most=at_once).jobs:
            queue.complete([(job.job_id, job.token)])
    client.config_set("slowlog-log-slower-than", -1)
    spent: dict[str, list[int]] = defaultdict(list)
    entries: Any = client.slowlog_get(3 * CALLS)
    for entry in entries:
        words = entry["command"].split()
        if words[0] == b"EVALSHA":
            spent[scripts[words[1].decode()]].append(entry["duration"])
    return {name: statistics.median(calls_us) for name, calls_us in spent.items()}


def _blocks_ms(client: redis.Redis, queue: RedisQueue, crowd: Iterator[Waiting]) -> Iterator[float]:
    """The longest call of each script, ms of the server's CPU."""
    for _ in range(WORST):
        jobs = [next(crowd) for _ in range(CHUNK)]
        ids = [job.job_id for job in jobs]
        yield _cpu_ms(client, lambda jobs=jobs: queue.enqueue(jobs))
        yield _cpu_ms(client, lambda ids=ids: queue.withdraw(ids))
        yield _cpu_ms(client, lambda ids=ids: queue.seed(ids))
        held = [(job_id, "bench") for job_id in ids]
        yield _cpu_ms(client, lambda held=held: queue.renew(held))
        back = [(job.job_id, "bench", job) for job in jobs]
        yield _cpu_ms(client, lambda back=back: queue.release(back))
        queue.withdraw(ids)
        queue.renew(held)  # nobody's and not waiting: taken up
        yield _cpu_ms(client, lambda held=held: queue.complete(held))
        claimed: list[Claimed] = []
        yield _cpu_ms(client, lambda to=claimed: to.extend(queue.claim(ENDLESS).jobs))
        assert len(claimed) <= CLAIM_LIMIT
        queue.enqueue(next(crowd) for _ in claimed)
        queue.complete([(job.job_id, job.token) for job in claimed])
        queue.lease_ms, lease_ms = -1, queue.lease_ms
        queue.renew(held)  # leases that ran out
        queue.lease_ms = lease_ms
        reaped: list[tuple[str, str]] = []
        yield _cpu_ms(client, lambda to=reaped: to.extend(queue.reap(CHUNK)))
        queue.complete(reaped)


def _cpu_ms(client: redis.Redis, call: Callable[[], Any]) -> float:
    """Milliseconds of the server's one thread that a call takes, reading and answering included."""
    before_ms = _spent_ms(client)
    call()
    return _spent_ms(client) - before_ms


def _spent_ms(client: redis.Redis) -> float:
    cpu: Any = client.info("cpu")
    thread = ("used_cpu_user_main_thread", "used_cpu_sys_main_thread")
    whole = ("used_cpu_user", "used_cpu_sys")  # where the system does not tell of threads
    return 1000.0 * sum(float(cpu[key]) for key in (thread if thread[0] in cpu else whole))


def _used_bytes(client: redis.Redis) -> int:
    memory: Any = client.info("memory")
    return int(memory["used_memory"])


def told(report: dict[str, Any]) -> str:
    us = report["server_us"]
    return "\n".join(
        [
            f"{report['waiting']:,} jobs wait",
            *(f"{name:<10} {value:8.1f} us of the server a job" for name, value in us.items()),
            f"singly     {us['enqueue'] + us['claim'] + us['complete']:8.1f} us a job",
            f"by sixteen {us['enqueue'] + us['claim16'] + us['complete']:8.1f} us a job",
            f"memory     {report['bytes_per_job']:8.1f} bytes a job",
            f"longest    {report['max_block_ms']:8.2f} ms",
        ]
    )


if __name__ == "__main__":
    main()
