"""Which channels are heard, and why."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.intake.channels import plan_channels
from tests.sounds import Samples, joined, noise, silence, voice

AGENT = joined([voice(4, seed=1), silence(4)])
CUSTOMER = joined([silence(4), voice(4, seed=2, pitch_hz=210)])
HALF = (AGENT // 2).astype(np.int16)
LEAK = (AGENT // 20).astype(np.int16)
LINE_NOISE = noise(8, level=0.0005)


@pytest.mark.parametrize(
    ("channels", "kept", "labels", "reason"),
    [
        ([AGENT], (0,), ("mono",), "one channel"),
        ([AGENT, CUSTOMER], (0, 1), ("left", "right"), "own sound"),
        ([AGENT, AGENT], (0,), ("mono",), "right repeats left"),
        ([AGENT, HALF], (0,), ("mono",), "right repeats left"),
        ([AGENT, AGENT + noise(8, level=0.001)], (0,), ("mono",), "right repeats left"),
        ([AGENT, -AGENT], (0,), ("mono",), "inverse phase"),
        ([AGENT, silence(8)], (0,), ("left",), "right is silent"),
        ([silence(8), CUSTOMER], (1,), ("right",), "left is silent"),
        ([LINE_NOISE, CUSTOMER], (1,), ("right",), "left is silent"),
        ([silence(8), silence(8)], (0,), ("mono",), "all channels are silent"),
        (
            [AGENT, silence(8), CUSTOMER, AGENT],
            (0, 2),
            ("channel 1", "channel 3"),
            "channel 2 is silent; channel 4 repeats channel 1",
        ),
        ([silence(0), silence(0)], (0,), ("mono",), "silent"),
    ],
)
def test_each_sound_is_heard_once(
    channels: list[Samples], kept: tuple[int, ...], labels: tuple[str, ...], reason: str
) -> None:
    plan = plan_channels(channels)
    assert (plan.kept, plan.labels) == (kept, labels)
    assert reason in plan.reason


def test_a_short_answer_on_a_side_that_else_only_leaks_is_not_lost() -> None:
    """An agent speaks for a minute, and the customer's side carries a trace of it and one yes."""
    agent = joined([voice(60, seed=3), silence(2)])
    customer = (agent // 2).astype(np.int16)
    customer[-24_000:-8_000] += voice(1, seed=4, level=0.05, pitch_hz=210)
    assert np.corrcoef(agent, customer)[0, 1] > 0.99
    assert plan_channels([agent, customer]).kept == (0, 1)


def test_two_people_who_hear_each_other_through_the_line_stay_two() -> None:
    assert plan_channels([AGENT + CUSTOMER // 10, CUSTOMER + LEAK]).kept == (0, 1)
