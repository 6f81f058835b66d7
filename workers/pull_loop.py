"""Claims work for free slots and says whose unit runs next: a puller's life on one event loop.

A free slot goes to the best of {jobs in hand, the queue's head}. So a newcomer that outranks what
is in hand gets the next free slot, and a long job fills whatever is left. Now and then it goes to
the one of both that has waited too long (scheduling/dispatch.py). A few units more than there are
slots are in hand and made ready, so that a free slot waits for nothing. A job in hand that is
passed over for a while is given back with its remaining work, so that an idle worker can take it.

When the engine dies, the jobs that had a unit in it are suspects: their units run again one job at
a time, so that the next death names its cause. Only a job that was alone is charged for it. A unit
that gets no answer while others do is given up and runs again alone, in the same way.

An engine that lives may still hear nothing. With no job in hand it is asked now and then for words
that are known, and started again when they are wrong.

Nothing here waits for Redis, Postgres or storage with a slot free and work in hand: an outage of
one of them stops what needs it, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Coroutine
from typing import Any

from pipeline.errors import EngineDead, EngineHung, PartDown
from pipeline.logs import log
from pipeline.queue.redis_queue import Floor, Promotion, RedisQueue
from workers.blame import blamed
from workers.claims import Claims
from workers.hands import RETRY_S, Hands
from workers.held import Held, Work
from workers.pulse import Pulse
from workers.turns import Turns, last_served
from workers.unreadable import LONGEST_PAUSE_S

STARVED_S = 2.0
"""A job in hand that has no slot for this long, while later ones have, is given back."""

IDLE_TICK_S = 0.25
"""The tick grows to this while nobody waits."""

AHEAD_TICK_S = 0.5
"""How often a worker without a free slot asks for work to have ready."""

CLAIM_PATIENCE_S = 0.25
"""How long free slots wait for a claim before the jobs in hand get them all the same."""

DEATH_NOTICE_S = 2.0
"""How long units have to notice that their engine is dead; a stalled one tells them nothing."""

LEAVE_S = 2.0
"""How long what is under way gets to end when the worker stops."""


class PullLoop:
    """One worker's loop. Everything runs on the event loop that calls `run`."""

    def __init__(
        self,
        work: Work,
        queue: RedisQueue,
        claims: Claims,
        hands: Hands,
        wake: asyncio.Event,
        *,
        tick_s: float,
        on_ready: Callable[[], None],
    ) -> None:
        self._work, self._claims, self._hands = work, claims, hands
        self._wake, self._tick_s, self._on_ready = wake, tick_s, on_ready
        self._draining = self._hurried = False
        self._claiming: asyncio.Task[None] | None = None
        self._claim_not_before_s = self._took_s = 0.0
        self._turns = Turns(work, queue)
        self._took = False
        self._idle_s = tick_s
        self._checked_s = time.monotonic()
        self._checking: asyncio.Task[None] | None = None
        self.pulse = Pulse()

    # -- asked from outside -----------------------------------------------------------------

    def drain(self) -> None:
        """Start nothing more; units in flight end, then every job is given back."""
        self._draining = self._hands.leaving = True
        self._wake.set()

    def hurry(self) -> None:
        """Drain without waiting for the units in flight: their jobs are given back now."""
        self._hurried = True
        self.drain()

    def moving(self) -> bool:
        """Whether work makes progress: leases are renewed only while it does. Any thread."""
        return self.pulse.moving() and not self._stalled()

    def _stalled(self) -> bool:
        still_s = time.monotonic() - self._hands.moved_s
        return bool(self._hands.in_flight) and still_s >= self._work.stall_s

    def well(self) -> bool:
        """Whether it works, or would if there were work: not without an engine. Any thread."""
        return self.moving() and not self.pulse.recovering and self._hands.death is None

    # -- the loop ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until drained. Raises when the engine cannot be started."""
        beating = asyncio.create_task(self.pulse.beat())
        try:
            await self._or_drained(self._work.start())
            self._engine_is_new()
            if not self._draining:
                self._on_ready()
            while not self._draining or (self._hands.in_flight and not self._hurried):
                await self._turn()
                await self._pause()
        finally:
            if self._claiming is not None:
                await asyncio.wait({self._claiming}, timeout=LEAVE_S)
            await self._hands.give_all_back(LEAVE_S)
            await self._work.stop()
            beating.cancel()

    async def _turn(self) -> None:
        if self._stalled():
            log().error("engine_stalled", stage=self._work.stage.name, stall_s=self._work.stall_s)
            self._hands.engine_died(EngineHung())
        if self._draining:
            return
        if self._hands.death is not None:
            await self._recover(self._hands.death)
        self._hands.let_go_of_stuck()
        await self._hands.let_go_of_unreadable()
        self._check_engine()
        if self._hands.suspects:
            self._start_units(self._work.slots)
            return
        self._start_units(await self._claim())
        self._look_ahead()
        await self._give_back_starved()

    async def _pause(self) -> None:
        """Until something ends, or the next tick when a slot is free."""
        limit_s = self._idle_s if self._free_slots() else AHEAD_TICK_S
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), limit_s)
        self._wake.clear()

    async def _or_drained(self, starting: Coroutine[Any, Any, None]) -> None:
        """Wait for a start that may take minutes, unless a drain comes first."""
        task = asyncio.ensure_future(starting)
        while not task.done() and not self._draining:
            waking = asyncio.ensure_future(self._wake.wait())
            await asyncio.wait({task, waking}, return_when=asyncio.FIRST_COMPLETED)
            waking.cancel()
            self._wake.clear()
        if task.done():
            task.result()
        else:
            task.cancel()

    # -- claiming ---------------------------------------------------------------------------

    async def _claim(self) -> int:
        """Fill free slots from the queue with jobs that outrank those in hand.

        Returns how many units may start before the queue is asked again. Without that limit a slot
        that becomes free during the claim would go to a job in hand while a better one waits. A
        claim that takes long goes on in the background, one at a time, and holds up nothing.
        """
        # a claim made ahead took who was first then, and no more than were wanted ready: it says
        # nothing of who came since, nor of a second slot
        if self._free_slots() and self._claim_under_way() and not await self._claimed():
            return self._work.slots
        free, floor, sure = self._free_slots(), None, self._work.slots
        if free and not self._claim_under_way() and self._may_claim():
            able = self._turns.by_rank(self._held())
            last, units = last_served(able, free)
            windows = free + self._work.ahead - units
            if last is not None:  # only what outranks the last that gets a slot is of use now
                place = last.place(self._work)
                floor, windows, sure = Floor(place.bucket, place.arrival_ms), free, units
            taking = self._take(windows, floor, self._turns.promotion(able))
            self._begin_claim(taking)
            if not await self._claimed():
                return self._work.slots
            if self._took and floor is not None:
                return free
        return sure

    async def _claimed(self) -> bool:
        """Whether the claim under way ends before patience does."""
        assert self._claiming is not None
        await asyncio.wait({self._claiming}, timeout=CLAIM_PATIENCE_S)
        return self._claiming.done()

    def _look_ahead(self) -> None:
        """Have the units that come next made ready, and jobs taken for more of them."""
        able = self._turns.by_rank(self._held())
        first = self._turns.first(able)
        able.sort(key=lambda held: held is not first)
        waiting = ((held, unit) for held in able for unit in held.waiting)
        ahead = list(itertools.islice(waiting, self._work.ahead))  # a long call has thousands
        for held, unit in ahead:
            self._work.prepare(held.opened, unit)
        short = self._work.ahead - len(ahead)
        full = self._free_slots() <= 0  # else the next turn claims, and waits for it
        if short > 0 and full and not self._claim_under_way() and self._may_claim():
            self._begin_claim(self._take(short, None, None))

    def _begin_claim(self, taking: Coroutine[Any, Any, None]) -> None:
        self._claiming = self._hands.spawn(taking)
        self.pulse.note_claim(self._claiming)

    def _claim_under_way(self) -> bool:
        if self._claiming is not None and self._claiming.done():
            self._claiming = None
        return self._claiming is not None

    def _may_claim(self) -> bool:
        """Not while a claim or a job in hand waits out an outage: more work would only wait too,
        though a job that waits leaves its slot free. One that alone cannot be read keeps nobody;
        with several of them others are tried, and only now and then.
        """
        now_s = time.monotonic()
        held = self._hands.held.values()
        if any(h.not_before_s > now_s and h.unreadable_since_s is None for h in held):
            return False
        pause_s = LONGEST_PAUSE_S if self._hands.unreadable.many(held) else 0.0
        return now_s >= max(self._claim_not_before_s, self._took_s + pause_s)

    async def _take(self, windows: int, floor: Floor | None, promotion: Promotion | None) -> None:
        self._took = False
        if self._hands.unreadable.many(self._hands.held.values()):
            windows = 1  # to see whether another can be read
        self._claim_not_before_s = time.monotonic() + RETRY_S  # unless it succeeds
        try:
            taken = await asyncio.to_thread(self._claims.take, windows, floor, promotion)
        except PartDown as down:
            log().warning("claim_waits", stage=self._work.stage.name, why=down.message)
            return
        self._claim_not_before_s = 0.0
        self._took = bool(taken.jobs)
        self._took_s = time.monotonic() if taken.jobs else self._took_s
        self._turns.asked(taken.now_ms)
        # asking in vain costs the engine time: half a millisecond of a core each
        grown_s = max(self._tick_s, min(IDLE_TICK_S, self._idle_s * 1.5))
        self._idle_s = self._tick_s if taken.jobs else grown_s
        if taken.jobs:
            await self._hands.take(taken.jobs)
            self._wake.set()

    # -- whose unit is next -----------------------------------------------------------------

    def _start_units(self, most: int) -> None:
        suspects = self._hands.suspects
        for _ in range(min(most, self._free_slots())):
            held = self._next_to_run()
            if held is None:
                return
            unit = suspects.take(held) if suspects else held.waiting.popleft()
            self._hands.start_unit(held, unit)

    def _next_to_run(self) -> Held | None:
        suspects, held = self._hands.suspects, self._hands.held
        if suspects:
            busy = next((h.job_id for h in held.values() if h.running), None)
            return suspects.next(held, alone=busy, now_s=time.monotonic())
        return self._turns.next(held.values())

    def _held(self) -> list[Held]:
        return list(self._hands.held.values())

    def _free_slots(self) -> int:
        return self._work.slots - self._hands.in_flight

    async def _give_back_starved(self) -> None:
        now_s = time.monotonic()
        # while claims fail nobody else gets work either: a job given back would only wait
        calm = now_s >= self._claim_not_before_s and not self._hands.suspects
        # given back, the next promotion would claim it again; and while others wait in the queue no
        # worker is idle that misses it
        kept = self._turns.next_promoted(self._held()) if self._turns.others_wait else None
        for held in self._held():
            idle = held.waiting and not held.running and not held.ended
            idle = idle and held.unreadable_since_s is None  # given back it would come again
            if not (calm and idle) or held is kept:
                held.starved_since_s = None
            elif held.starved_since_s and now_s - held.starved_since_s > STARVED_S:
                await self._hands.give_back(held, "no slot free")

    # -- the engine's death -----------------------------------------------------------------

    async def _recover(self, death: EngineDead) -> None:
        """All units in flight are lost with the engine: start it again, look for the culprit."""
        self.pulse.note_recovery(True)
        await self._hands.empty_engine(DEATH_NOTICE_S)
        self._hands.death = None
        culprit = self._hands.held.get(self._hands.suspects.take_culprit(death) or "")
        if culprit is not None:
            await self._hands.charge(culprit, blamed(death))
        suspects, why = len(self._hands.suspects), death.message
        log().error("engine_died", stage=self._work.stage.name, suspects=suspects, why=why)
        await self._or_drained(self._work.recover(death))
        self._engine_is_new()

    def _engine_is_new(self) -> None:
        """It was just started, and heard what it was asked; it may have fewer slots than before."""
        self._hands.speedometer.slots = self._work.slots
        self._hands.moved_s = self._checked_s = time.monotonic()
        self.pulse.note_recovery(False)

    # -- does it hear? ----------------------------------------------------------------------

    def _check_engine(self) -> None:
        """With nothing in hand, ask it now and then for words that are known."""
        if self._hands.held or self._checking is not None:
            self._checked_s = time.monotonic()
        elif 0 < self._work.check_s < time.monotonic() - self._checked_s:
            self._checking = self._hands.spawn(self._check())

    async def _check(self) -> None:
        try:
            await self._work.check()
        except EngineDead as deaf:
            self._hands.engine_died(deaf)
        finally:
            self._checking, self._checked_s = None, time.monotonic()
            self._wake.set()
