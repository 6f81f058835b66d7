"""Whose turn it is among the jobs in a worker's hands: the rule of scheduling/dispatch.py.

The queue's claims follow the same rule, so that what is claimed is what runs next. Time is
Postgres', as the last claim told it, because arrivals are.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from pipeline.queue.redis_queue import Promotion, RedisQueue
from pipeline.scheduling.dispatch import Credit, age_key, pick
from pipeline.scheduling.policies import Waiting, order_key, pairs
from workers.held import Held, Work


class Turns:
    """The order of one worker's jobs in hand. Everything runs on its event loop."""

    def __init__(self, work: Work, queue: RedisQueue) -> None:
        self._work, self._queue = work, queue
        self._told_ms, self._told_at_s = 0, 0.0
        self._credit = Credit()
        self.others_wait = False
        """Whether somebody waited in the queue when it was last asked."""

    def asked(self, now_ms: int | None) -> None:
        """The queue answered a claim at `now_ms`, Postgres time; None: nobody waited."""
        self.others_wait = now_ms is not None
        if now_ms is not None:
            self._told_ms, self._told_at_s = now_ms, time.monotonic()

    def by_rank(self, held: Iterable[Held]) -> list[Held]:
        """Those that have a unit to start now, the highest rank first."""
        now_s, now_ms, table = time.monotonic(), self._now_ms(), pairs(self._queue.policy_seen)
        able = [h for h in held if h.waiting and not h.ended and h.not_before_s <= now_s]
        return sorted(able, key=lambda h: order_key(h.place(self._work), table, now_ms))

    def first(self, ranked: list[Held]) -> Held | None:
        """Whose unit starts next of those in `by_rank`."""
        overdue_ms = self._overdue_ms() if self._credit else None
        places = self._places(ranked)
        found = pick(places, pairs(self._queue.policy_seen), self._now_ms(), overdue_ms)
        return places[found] if found else None

    def next(self, held: Iterable[Held]) -> Held | None:
        """The same, and it does start: a promotion is paid for."""
        ranked = self.by_rank(held)
        first = self.first(ranked)
        if first is None:
            return None
        if first is ranked[0]:
            self._credit.earn()
        else:
            self._credit.spend()
        return first

    def promotion(self, held: Iterable[Held]) -> Promotion | None:
        """For a claim: with credit, one job that is overdue for longer than any in hand."""
        if not self._credit:
            return None
        rival = self.next_promoted(held)
        return Promotion(1, rival.ticket.arrival_ms) if rival else Promotion()

    def next_promoted(self, held: Iterable[Held]) -> Held | None:
        """To whom in hand the next promotion goes; None when nobody is overdue."""
        overdue_ms = self._overdue_ms()
        if overdue_ms is None:
            return None
        places = self._places(self.by_rank(held))
        late = [place for place in places if place.arrival_ms <= overdue_ms]
        return places[min(late, key=age_key)] if late else None

    def _places(self, held: list[Held]) -> dict[Waiting, Held]:
        return {h.place(self._work): h for h in held}

    def _now_ms(self) -> int:
        return self._told_ms + int((time.monotonic() - self._told_at_s) * 1000)

    def _overdue_ms(self) -> int | None:
        """Who arrived at this moment or before has waited too long; None: nobody can."""
        longest_ms = self._queue.max_wait_ms
        return self._now_ms() - longest_ms if longest_ms else None


def last_served(ranked: list[Held], slots: int) -> tuple[Held | None, int]:
    """Of `Turns.by_rank` the job whose unit gets the last of `slots` (>= 1) free slots, and how
    many units wait down to its last one. None when they leave a slot free.
    """
    units = 0
    for held in ranked:
        units += len(held.waiting)
        if units >= slots:
            return held, units
    return None, units
