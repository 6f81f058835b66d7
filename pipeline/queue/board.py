"""What is written up in Redis for people: how fast each worker is, and the ratios of who waits.

No claim depends on any of it. Everything here grows old and vanishes when its writer is gone.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import redis

from pipeline.queue import keys
from pipeline.queue.outage import redis_errors

SPEED_KEPT_S = 30.0
"""A worker that has not reported for this long counts as gone."""

RATIOS_KEPT_S = 30.0
"""How long ratios are shown after they were computed; beat renews them every few seconds."""


@dataclass(frozen=True)
class WorkerSpeed:
    """How fast one worker is."""

    worker: str
    speed: float | None
    """Work done in a second by all its slots together, in the stage's unit of work; None before
    its first unit has ended."""
    slots: int
    slots_wanted: int
    """More than `slots` after its engine ran out of memory."""
    age_s: float
    """Seconds since it said so."""


@dataclass(frozen=True)
class Ratios:
    """The response ratios of those who go first."""

    highest: float
    median: float
    of: int
    """How many jobs they were computed for."""
    as_of_ms: int
    """Postgres time."""


class Board:
    """The board of one queue. Every method raises `PartDown` when Redis does not answer."""

    def __init__(self, client: redis.Redis, queue: str) -> None:
        self._redis = client
        self._speed, self._speed_known = keys.speed(queue), keys.speed_known(queue)
        self._ratio, self._as_of = keys.ratio(queue), keys.ratio_as_of(queue)

    def report_speed(
        self, worker: str, speed: float | None, slots: int, slots_wanted: int | None = None
    ) -> None:
        """Say how fast `worker` is; replaces what it said before. `slots_wanted`: None: as many."""
        with redis_errors():
            wanted = slots if slots_wanted is None else slots_wanted
            at_ms = self._now_ms()
            entry = {"speed": speed, "slots": slots, "slots_wanted": wanted, "at_ms": at_ms}
            pipe = self._redis.pipeline(transaction=False)
            pipe.hset(self._speed, worker, json.dumps(entry))
            if speed is not None:
                pipe.set(self._speed_known, repr(speed / max(1, slots)))
            pipe.execute()

    def forget_speed(self, worker: str) -> None:
        """The worker has stopped: do not count on it any longer."""
        with redis_errors():
            self._redis.hdel(self._speed, worker)

    def speeds(self) -> list[WorkerSpeed]:
        """All live workers by name; entries of those that are gone are removed."""
        with redis_errors():
            raw, now_ms = self._redis.hgetall(self._speed), self._now_ms()
            live, gone = [], []
            for worker, text in sorted(raw.items()):
                found = _read_speed(str(worker), str(text), now_ms)
                if found is None or found.age_s > SPEED_KEPT_S:
                    gone.append(worker)
                else:
                    live.append(found)
            if gone:
                self._redis.hdel(self._speed, *gone)
        return live

    def slot_speed_known(self) -> float | None:
        """The speed of one slot as any worker last reported it, also one that is gone; None when
        none ever has since Redis was emptied.
        """
        with redis_errors():
            text = self._redis.get(self._speed_known)
        try:
            speed = float(str(text)) if text is not None else 0.0
        except ValueError:
            return None  # of another version, or somebody's hand
        return speed if 0.0 < speed < math.inf else None

    def write_ratios(self, ratios: Mapping[str, float], as_of_ms: int) -> None:
        """Replace all ratios {job id: 1 + W/S} at once."""
        kept_ms = int(RATIOS_KEPT_S * 1000)
        with redis_errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.delete(self._ratio)
            if ratios:
                pipe.zadd(self._ratio, dict(ratios))
                pipe.pexpire(self._ratio, kept_ms)
            pipe.set(self._as_of, as_of_ms, px=kept_ms)
            pipe.execute()

    def ratios(self) -> Ratios | None:
        """What was last written; None when nobody waited, or nobody has written it lately."""
        with redis_errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.get(self._as_of)
            pipe.zrange(self._ratio, 0, -1, withscores=True)
            as_of, rows = pipe.execute()
        if as_of is None or not rows:
            return None
        values = [value for _, value in rows]
        return Ratios(values[-1], statistics.median(values), len(values), int(as_of))

    def _now_ms(self) -> int:
        # Redis' clock, not the writer's: machines differ
        seconds, micros = self._redis.time()
        return seconds * 1000 + micros // 1000


def _read_speed(worker: str, text: str, now_ms: int) -> WorkerSpeed | None:
    """None for what another version, or somebody's hand, wrote."""
    try:
        entry = json.loads(text)
        speed = None if entry["speed"] is None else float(entry["speed"])
        slots = int(entry["slots"])
        wanted = int(entry.get("slots_wanted", slots))
        # one from the future was written before the clock was set back: whoever lives wrote again
        age_s = abs(now_ms - int(entry["at_ms"])) / 1000
        sound = slots >= 1 and (speed is None or 0.0 <= speed < math.inf)
        return WorkerSpeed(worker, speed, slots, wanted, age_s) if sound else None
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
