"""Long polls: thousands of them are one question to Postgres a moment."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from sqlalchemy import event

from pipeline.api import waiting as door
from pipeline.api.waiting import Waiting, Woken
from pipeline.caller import ANYONE
from pipeline.errors import PartDown
from pipeline.parts import Parts
from pipeline.store import erasures
from pipeline.store.accesses import Action
from pipeline.store.session import transaction
from tests import driven


async def stays() -> None:
    """A client that does not hang up."""
    await asyncio.Event().wait()


async def hangs_up() -> None:
    """One that has hung up."""


def run(story: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(story, 20))


def test_a_thousand_who_wait_for_as_many_jobs_are_one_question_each_tick(parts: Parts) -> None:
    ids = [driven.nobody() for _ in range(999)]
    asked: list[str] = []

    async def story() -> list[Woken]:
        job_id = await asyncio.to_thread(driven.received, parts)
        waiting = Waiting(parts.store)
        event.listen(parts.store, "before_cursor_execute", lambda *a: asked.append(a[2]))
        waits = [waiting.ended(one, 1.0, stays) for one in (job_id, *ids)]
        return await asyncio.gather(*waits)

    woken = run(story())
    assert woken == [Woken.TIME] + [Woken.ENDED] * 999, "a job that is not there is not waited for"
    assert 1 <= len(asked) <= 6, "one second, a look each quarter"


def test_a_job_that_ends_wakes_all_who_wait_for_it_and_nobody_else(parts: Parts) -> None:
    async def story() -> tuple[list[Woken], bool]:
        ends, goes_on = [await asyncio.to_thread(driven.received, parts) for _ in range(2)]
        waiting = Waiting(parts.store)
        three = [asyncio.create_task(waiting.ended(ends, 15, stays)) for _ in range(3)]
        other = asyncio.create_task(waiting.ended(goes_on, 15, stays))
        await asyncio.sleep(0)
        assert waiting.jobs == 2
        await asyncio.to_thread(driven.failed, parts, ends)
        woken = await asyncio.gather(*three)
        still = not other.done()
        other.cancel()
        await asyncio.wait({other})
        assert waiting.jobs == 0, "who is not waiting any more is forgotten"
        return woken, still

    assert run(story()) == ([Woken.ENDED] * 3, True)


def test_a_client_that_hangs_up_is_forgotten(parts: Parts) -> None:
    async def story() -> None:
        waiting = Waiting(parts.store)
        job_id = await asyncio.to_thread(driven.received, parts)
        assert await waiting.ended(job_id, 15, hangs_up) is Woken.GONE
        assert waiting.jobs == 0

    run(story())


def test_an_erased_job_wakes_who_waits_for_it(parts: Parts) -> None:
    async def story() -> Woken:
        waiting = Waiting(parts.store)
        job_id = await asyncio.to_thread(driven.received, parts)
        wait = asyncio.create_task(waiting.ended(job_id, 15, stays))
        await asyncio.sleep(0)
        with transaction(parts.store) as c:
            erasures.erase(c, [job_id], ANYONE, Action.ERASED)
        return await wait

    assert run(story()) is Woken.ENDED


def test_all_wait_on_while_postgres_is_away(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, over, third = [], door.views.over, threading.Event()

    def away_at_first(*asked: Any) -> list[str]:
        looks.append(1)
        if len(looks) == 3:
            third.set()
        if len(looks) < 4:
            raise PartDown("Postgres does not answer: gone")
        return over(*asked)

    monkeypatch.setattr(door.views, "over", away_at_first)

    async def story() -> Woken:
        waiting = Waiting(parts.store)
        job_id = await asyncio.to_thread(driven.received, parts)
        await asyncio.to_thread(driven.failed, parts, job_id)
        begun_s = time.monotonic()
        wait = asyncio.create_task(waiting.ended(job_id, 15, stays))
        await asyncio.to_thread(third.wait, 10)
        assert 0 < waiting.away_s <= time.monotonic() - begun_s
        woken = await wait
        assert waiting.away_s == 0
        return woken

    assert run(story()) is Woken.ENDED
