"""What redis-py raises, as the one error callers wait out; a Redis that is down is hardly asked."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import redis
from redis.client import Pipeline

from pipeline.breaker import Breaker
from pipeline.errors import PartDown

NO_ANSWER = (redis.ConnectionError, redis.TimeoutError, redis.exceptions.BusyLoadingError)
"""Nobody answered, or somebody who has not read his data yet."""


@contextmanager
def redis_errors() -> Any:
    """Turn what redis-py raises into `PartDown`."""
    try:
        yield
    except NO_ANSWER as down:
        raise PartDown(f"Redis does not answer: {down}") from down
    except redis.ResponseError as refused:
        raise PartDown(f"Redis refused: {refused}") from refused


class Client(redis.Redis):
    """A client that asks a Redis which does not answer once a second only.

    Everybody is told `PartDown` at once: see `Breaker`. Subscriptions go by themselves.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.breaker = Breaker("Redis", redis.Redis(connection_pool=self.connection_pool).ping)

    def execute_command(self, *arguments: Any, **options: Any) -> Any:
        """As redis-py's; raises `NotAsked` too."""
        with self.breaker.asking(*NO_ANSWER):
            return super().execute_command(*arguments, **options)  # type: ignore[no-untyped-call]

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Pipeline:
        """As redis-py's; sending it raises `NotAsked` too."""
        lined_up = _Pipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        lined_up.breaker = self.breaker
        return lined_up


class _Pipeline(Pipeline):
    breaker: Breaker

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        with self.breaker.asking(*NO_ANSWER):
            return super().execute(raise_on_error)
