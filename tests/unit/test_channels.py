"""Which channels are heard, and why."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.intake.alike import likeness, twin_of
from pipeline.intake.channels import plan_channels
from tests.sounds import Samples, joined, noise, silence, tone, voice

AGENT = joined([voice(4, seed=1), silence(4)])
CUSTOMER = joined([silence(4), voice(4, seed=2, pitch_hz=210)])
HALF = (AGENT // 2).astype(np.int16)
LEAK = (AGENT // 20).astype(np.int16)
LINE_NOISE = noise(8, level=0.0005)
HUM = tone(8, 50, level=0.02) + tone(8, 150, level=0.01)
COMFORT = noise(8, level=0.004, seed=9)
BOTH = (AGENT // 2 + CUSTOMER // 2).astype(np.int16)


def late(pcm: Samples, ms: float, gain: float = 1.0) -> Samples:
    """The same later, by whole samples, and quieter."""
    count = round(ms * 16)
    shifted = np.concatenate((silence(count / 16_000), pcm))[: len(pcm)]
    return (shifted * gain).astype(np.int16)


def mulaw(pcm: Samples) -> Samples:
    """Through the 8 bits of a telephone exchange (the continuous law of G.711, rounded)."""
    value = pcm / 32_768
    code = np.round(np.sign(value) * np.log1p(255 * abs(value)) / np.log(256) * 127) / 127
    return (np.sign(code) * (256 ** abs(code) - 1) / 255 * 32_767).astype(np.int16)


@pytest.mark.parametrize(
    ("channels", "kept", "labels", "reason"),
    [
        ([AGENT], (0,), ("mono",), "one channel"),
        ([AGENT, CUSTOMER], (0, 1), ("left", "right"), "own sound"),
        ([AGENT, AGENT], (0,), ("mono",), "right repeats left"),
        ([AGENT, HALF], (0,), ("mono",), "right repeats left"),
        ([AGENT, AGENT + noise(8, level=0.001)], (0,), ("mono",), "right repeats left"),
        ([AGENT, -AGENT], (0,), ("mono",), "inverse phase"),
        ([AGENT, mulaw(AGENT)], (0,), ("mono",), "right repeats left"),
        ([AGENT, mulaw(late(AGENT, 40, 0.5))], (0,), ("mono",), "right repeats left 40 ms later"),
        ([late(AGENT, 20), -AGENT], (0,), ("mono",), "inverse phase 20 ms earlier"),
        ([AGENT, AGENT + 900], (0,), ("mono",), "right repeats left"),
        ([AGENT, silence(8)], (0,), ("left",), "right is silent"),
        ([AGENT, silence(8) + 1_200], (0,), ("left",), "right is silent"),
        ([HUM, CUSTOMER], (1,), ("right",), "left carries nothing but a constant noise"),
        ([AGENT, COMFORT], (0,), ("left",), "right carries nothing but a constant noise"),
        ([HUM, COMFORT], (0,), ("mono",), "no channel carries more than noise"),
        ([AGENT, CUSTOMER, BOTH], (0, 1), ("channel 1", "channel 2"), "3 is the mix of the others"),
        (
            [AGENT, CUSTOMER, voice(8, seed=6, pitch_hz=160), COMFORT, silence(8), AGENT],
            (0, 1, 2),
            ("channel 1", "channel 2", "channel 3"),
            "channel 5 is silent; channel 6 repeats channel 1",
        ),
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


def test_a_yes_on_a_humming_line_is_kept() -> None:
    hum = tone(8, 50, level=0.02)
    hum[64_000:70_000] += voice(0.375, seed=4, level=0.06)
    assert plan_channels([AGENT, hum]).kept == (0, 1)


@given(
    ms=st.floats(-200, 200),
    gain=st.floats(0.05, 1.0),
    inverse=st.booleans(),
    hiss=st.floats(0, 0.02),
)
@settings(max_examples=12, deadline=None)
def test_one_sound_is_recognised_at_any_delay_gain_and_phase(
    ms: float, gain: float, inverse: bool, hiss: float
) -> None:
    """Hiss is a share of the sound's own level."""
    one, other = late(AGENT, max(-ms, 0)), late(AGENT, max(ms, 0), -gain if inverse else gain)
    found = twin_of(one, other + noise(8, level=hiss * gain * 0.1))
    assert found is not None
    assert found.inverse == inverse
    assert abs(found.late_s * 1_000 - ms) < 0.2


@given(
    seed=st.integers(10, 99), pitch_hz=st.floats(80, 260), leak_db=st.floats(10, 60),
    ms=st.floats(0, 200),
)  # fmt: skip
@settings(max_examples=12, deadline=None)
def test_two_voices_are_never_taken_for_one(
    seed: int, pitch_hz: float, leak_db: float, ms: float
) -> None:
    """Also where each leaks into the other."""
    gain = 10 ** (-leak_db / 20)
    customer = joined([silence(3), voice(5, seed=seed, pitch_hz=pitch_hz)])
    sides = [AGENT + late(customer, ms, gain), customer + late(AGENT, ms, gain)]
    assert plan_channels(sides).kept == (0, 1)


@pytest.mark.parametrize("start", [0, 4_000, 15_000, 30_000])
@pytest.mark.parametrize("length", [2_001, 16_000])
@pytest.mark.parametrize("reach", [7, 4_000])
def test_likeness_is_the_correlation_at_each_delay(start: int, length: int, reach: int) -> None:
    one, other = noise(2, seed=1), noise(2, seed=2)
    stop = min(len(one), start + length)
    heard = one[start:stop].astype(float)
    around = np.concatenate((np.zeros(reach), other, np.zeros(reach)))[start : stop + 2 * reach]
    wanted = np.correlate(around, heard, "valid") / np.sqrt((heard**2).sum() * (around**2).sum())
    assert likeness(one, other, start, stop, reach) == pytest.approx(wanted, abs=1e-9)
