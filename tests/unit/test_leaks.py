"""A trace of one side in the other is not written twice, and nobody's own word is lost to that."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.intake.leaks import KEPT_AROUND_S, without_leaks
from pipeline.recording import Span
from tests.sounds import Samples, joined, noise, silence, voice

AGENT = joined([voice(8, seed=1), silence(6), voice(4, seed=3), silence(2)])
CUSTOMER = joined([silence(9), voice(4, seed=2, pitch_hz=210), silence(7)])
AGENT_SPANS = [Span(0.0, 8.2), Span(13.8, 18.2)]
CUSTOMER_SPANS = [Span(8.8, 13.2)]


def line(
    own: Samples, other: Samples, leak_db: float, late_ms: float = 0.0, seed: int = 1
) -> Samples:
    """One side as recorded: its own sound, a late trace of the other's, its line's noise."""
    late = round(late_ms * 16)
    trace = np.concatenate((np.zeros(late), other))[: len(other)] * 10 ** (-leak_db / 20)
    heard = own + trace + noise(len(own) / 16_000, level=0.0005, seed=seed)
    return heard.clip(-32_768, 32_767).astype(np.int16)


@pytest.mark.parametrize("late_ms", [0, 20, 180])
@pytest.mark.parametrize("leak_db", [20, 25, 30])
def test_the_other_sides_trace_is_left_out(leak_db: float, late_ms: float) -> None:
    sides = [line(AGENT, CUSTOMER, leak_db, late_ms, 1), line(CUSTOMER, AGENT, leak_db, late_ms, 2)]
    # Given a detector that finds every word on both sides
    everywhere = [Span(0.0, 8.3), Span(8.8, 13.3), Span(13.8, 18.3)]
    kept, left_out_s = without_leaks([everywhere, everywhere], sides)
    # Then each side keeps its own, but for edges without words
    assert [[round(span.start_s) for span in side] for side in kept] == [[0, 14], [9]]
    assert left_out_s == pytest.approx(17.3, abs=1.0)


def test_a_leak_that_runs_into_an_answer_leaves_the_answer() -> None:
    customer = joined([silence(8.1), voice(1, seed=2, pitch_hz=210), silence(10.9)])
    quiet = line(customer, AGENT, 25, 10)
    kept, _ = without_leaks([[Span(0.0, 8.2)], [Span(0.0, 9.3)]], [AGENT, quiet])
    (answer,) = kept[1]
    assert 8.1 - 0.5 - KEPT_AROUND_S <= answer.start_s <= 8.1
    assert answer.end_s >= 9.1


def test_sides_that_leak_nothing_are_left_alone() -> None:
    spans = [AGENT_SPANS, CUSTOMER_SPANS]
    sides = [line(AGENT, CUSTOMER, 90, seed=1), line(CUSTOMER, AGENT, 90, seed=2)]
    assert without_leaks(spans, sides) == (spans, 0.0)


def test_two_who_talk_at_once_are_both_heard() -> None:
    customer = voice(20, seed=5, pitch_hz=220, level=0.02)
    sides = [line(AGENT, customer, 25, 20, 1), line(customer, AGENT, 30, 20, 2)]
    spans = [AGENT_SPANS, [Span(0.0, 20.0)]]
    kept, left_out_s = without_leaks(spans, sides)
    assert kept[1] == spans[1]
    assert left_out_s == 0


@given(
    at_s=st.floats(0.2, 7.0),
    lasts_s=st.floats(0.25, 0.8),
    over_leak_db=st.floats(0, 15),
    pitch_hz=st.floats(90, 260),
    leak_db=st.floats(20, 32),
    late_ms=st.floats(0, 200),
    gated=st.booleans(),
)
@settings(max_examples=12, deadline=None)
def test_a_short_answer_is_never_lost(
    at_s: float, lasts_s: float, over_leak_db: float, pitch_hz: float, leak_db: float,
    late_ms: float, gated: bool,
) -> None:  # fmt: skip
    """Said no quieter than the leak it is said into, on a line with noise or cut off in pauses."""
    customer = silence(20)
    level = 0.3 * 10 ** ((over_leak_db - leak_db) / 20)
    answer = voice(lasts_s, seed=7, level=level, pitch_hz=pitch_hz)
    start = round(at_s * 16_000)
    customer[start : start + len(answer)] = answer
    quiet = line(customer, AGENT, leak_db, late_ms)
    if gated:
        quiet[: start - 1_600] = quiet[start + len(answer) + 1_600 :] = 0
    spans = [AGENT_SPANS, [Span(max(0.0, at_s - 0.2), at_s + lasts_s + 0.2), Span(13.8, 18.2)]]
    kept, _ = without_leaks(spans, [AGENT, quiet])
    assert any(
        span.start_s <= at_s + 0.01 and span.end_s >= at_s + lasts_s - 0.01 for span in kept[1]
    )
