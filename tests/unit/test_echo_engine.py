"""The echo engine takes the time it was told to, and dies, refuses and hangs on command."""

from __future__ import annotations

import asyncio

import pytest

from pipeline.errors import WindowRefused
from tests.speech_windows import hear
from workers.echo_engine import EchoEngine

SECOND = b"\1\0" * 16_000


def test_the_echo_tells_length_and_samples() -> None:
    async def story() -> list[str]:
        engine = EchoEngine(fixed_s=0, per_second_s=0)
        await engine.start()
        windows = (SECOND, SECOND, SECOND * 2, b"\2\0" * 16_000)
        return [(await hear(engine, pcm)).text for pcm in windows]

    one, same, longer, other = asyncio.run(story())
    assert one == same
    assert one.startswith("echo 1.00 ")
    assert longer.startswith("echo 2.00 ")
    assert other.startswith("echo 1.00 ")
    assert other != one


@pytest.mark.parametrize(
    ("slowdown", "expected_s", "busy_s"),
    # Two windows of 0.1 + 1 * 0.1 s. Alone 0.2 s; the second beside another takes twice that.
    # Of the time in which both are in service each is charged half.
    [(0.0, [0.2, 0.2], [0.1, 0.1]), (1.0, [0.2, 0.4], [0.1, 0.3])],
)
def test_service_time_is_what_was_asked_for(
    slowdown: float, expected_s: list[float], busy_s: list[float]
) -> None:
    async def timed(engine: EchoEngine) -> tuple[float, float]:
        began_s = asyncio.get_running_loop().time()
        heard = await hear(engine, SECOND)
        return asyncio.get_running_loop().time() - began_s, heard.busy_s

    async def story() -> list[tuple[float, float]]:
        engine = EchoEngine(slots=2, fixed_s=0.1, per_second_s=0.1, slowdown=slowdown)
        await engine.start()
        return await asyncio.gather(*(timed(engine) for _ in range(2)))

    took = asyncio.run(story())
    assert [elapsed_s for elapsed_s, _ in took] == pytest.approx(expected_s, abs=0.08)
    assert [share_s for _, share_s in took] == pytest.approx(busy_s, abs=0.08)


def test_it_refuses_as_many_windows_as_it_was_told() -> None:
    async def story() -> None:
        engine = EchoEngine(fixed_s=0, per_second_s=0)
        await engine.start()
        engine.refuse(2)
        for _ in range(2):
            with pytest.raises(WindowRefused):
                await hear(engine, SECOND)
        assert (await hear(engine, SECOND)).finish == "stop"

    asyncio.run(story())


def test_it_hangs_alive_until_it_is_let_go() -> None:
    async def story() -> None:
        engine = EchoEngine(fixed_s=0, per_second_s=0)
        await engine.start()
        engine.hang()
        window = asyncio.ensure_future(hear(engine, SECOND))
        _, waiting = await asyncio.wait({window}, timeout=0.05)
        assert waiting
        assert engine.alive()
        engine.resume()
        assert (await window).text.startswith("echo")

    asyncio.run(story())
