"""An engine's time is divided among the windows in service, and nothing of it twice."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engine import Heard, Prepared
from pipeline.steps.hear import RETRY_TEMPERATURES, hear
from workers.echo_engine import EchoEngine
from workers.occupied import Share, Shares


class Watch:
    """A clock set by hand."""

    def __init__(self) -> None:
        self.s = 0.0

    def now_s(self) -> float:
        return self.s


def shares_of(spans: list[tuple[float, float]]) -> list[float]:
    """What windows in service over these spans (from, to) are charged."""
    watch, told = Watch(), [Share() for _ in spans]
    shares = Shares(watch.now_s)
    stays = [ExitStack() for _ in spans]
    moments = [(to_s, 0, n) for n, (_, to_s) in enumerate(spans)]
    moments += [(from_s, 1, n) for n, (from_s, _) in enumerate(spans)]
    for watch.s, comes, n in sorted(moments):
        if comes:
            told[n] = stays[n].enter_context(shares.one_more())
        else:
            stays[n].close()
    return [share.busy_s for share in told]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 4)], [4]),  # alone: all of it
        ([(0, 4), (0, 4)], [2, 2]),  # side by side: half each
        ([(0, 4), (2, 8)], [3, 5]),  # 2 + 2/2; 2/2 + 4
        ([(0, 1), (5, 6)], [1, 1]),  # the pause between is nobody's
        ([(0, 6), (2, 4), (2, 4)], [2 + 2 / 3 + 2, 2 / 3, 2 / 3]),
    ],
)
def test_each_window_pays_its_part_of_each_moment(
    spans: list[tuple[float, float]], expected: list[float]
) -> None:
    assert shares_of(spans) == pytest.approx(expected)


spans = st.lists(
    st.tuples(st.integers(0, 500), st.integers(1, 200)).map(lambda s: (s[0], s[0] + s[1])),
    min_size=1,
    max_size=30,
)


@given(spans)
def test_shares_add_up_to_the_time_the_engine_was_busy(spans: list[tuple[float, float]]) -> None:
    busy = {second for from_s, to_s in spans for second in range(int(from_s), int(to_s))}
    told = shares_of(spans)
    assert sum(told) == pytest.approx(len(busy))
    for share, (from_s, to_s) in zip(told, spans, strict=True):
        assert 0 < share <= to_s - from_s + 1e-9


def test_a_window_that_waits_for_a_slot_is_charged_nothing_meanwhile() -> None:
    async def story() -> tuple[list[float], float]:
        engine = EchoEngine(slots=1, fixed_s=0.1, per_second_s=0.0)
        await engine.start()
        window = await engine.prepare(b"\1\0" * 16_000, language="en")
        began_s = asyncio.get_running_loop().time()
        heard = await asyncio.gather(*(engine.transcribe(window) for _ in range(3)))
        return [h.busy_s for h in heard], asyncio.get_running_loop().time() - began_s

    told, elapsed_s = asyncio.run(story())
    assert sum(told) <= elapsed_s
    assert max(told) < 0.2  # the last one has waited as long as that already


class Looping(EchoEngine):
    """Gets stuck until the last temperature is tried."""

    async def transcribe(self, window: Prepared, *, temperature: float = 0.0) -> Heard:
        last = temperature == RETRY_TEMPERATURES[-1]
        finish = "stop" if last else "repetition"
        return Heard((), "en", 10, None, finish, busy_s=2.0 + temperature)


def test_a_window_heard_again_costs_what_all_its_tries_cost() -> None:
    heard = asyncio.run(hear(Looping(), Prepared(b"", 1.0, "en"), 1.0))
    assert heard.finish == "stop"
    assert heard.tokens == 30
    assert heard.busy_s == pytest.approx(2.0 + 2.4 + 2.8)
