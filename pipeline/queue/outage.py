"""What redis-py raises, as the one error callers wait out."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import redis

from pipeline.errors import PartDown


@contextmanager
def redis_errors() -> Any:
    """Turn what redis-py raises into `PartDown`."""
    try:
        yield
    except (redis.ConnectionError, redis.TimeoutError, redis.exceptions.BusyLoadingError) as down:
        raise PartDown(f"Redis does not answer: {down}") from down
    except redis.ResponseError as refused:
        raise PartDown(f"Redis refused: {refused}") from refused
