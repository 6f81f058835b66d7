"""All who are in one queue, some at a time: for whoever compares the index with Postgres.

Nothing here changes the queue. Every method raises `PartDown` when Redis does not answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import redis

from pipeline.queue import keys
from pipeline.queue.outage import redis_errors


@dataclass(frozen=True)
class Identity:
    """What tells one life of Redis from another."""

    run_id: str
    replication_id: str


class Roll:
    """What Redis holds of one queue. Safe to use from several threads."""

    def __init__(self, client: redis.Redis, name: str) -> None:
        self._redis = client
        self._ready, self._heads = keys.ready(name), keys.heads(name)
        self._lease, self._owner = keys.lease(name), keys.owner(name)
        self._epoch = keys.epoch(name)

    def identity(self) -> Identity:
        """Changes when Redis was restarted or replaced."""
        with redis_errors():
            server = self._redis.info("server")
            replication = self._redis.info("replication")
        return Identity(str(server["run_id"]), str(replication.get("master_replid", "")))

    def is_whole(self) -> bool:
        """False: the index was lost and no full audit has rebuilt it.

        So too where jobs wait and no bucket has a head: a version that knew no heads left them, and
        no claim would find them.
        """
        with redis_errors():
            pipe = self._redis.pipeline(transaction=True)
            for key in (self._epoch, self._ready, self._heads):
                pipe.exists(key)
            epoch, ready, heads = pipe.execute()
        return bool(epoch) and (bool(heads) or not ready)

    def some_waiting(self, cursor: int, many: int) -> tuple[list[str], int]:
        """About `many` ids that wait, from `cursor` (0: the beginning), and the next cursor."""
        with redis_errors():
            cursor, rows = cast(Any, self._redis.zscan(self._ready, cursor, count=many))
        return [job_id for job_id, _ in rows], int(cursor)

    def some_leased(self, cursor: int, many: int) -> tuple[dict[str, str], int]:
        """The same of those in work: {job id: token of its owner, empty for none}."""
        with redis_errors():
            cursor, rows = cast(Any, self._redis.zscan(self._lease, cursor, count=many))
            job_ids = [job_id for job_id, _ in rows]
            owners = cast(Any, self._redis.hmget(self._owner, job_ids)) if job_ids else []
        return {i: owner or "" for i, owner in zip(job_ids, owners, strict=True)}, int(cursor)
