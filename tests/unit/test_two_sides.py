"""A real two-sided recording: each side's words in one breath, as Whisper says them, take turns."""

from __future__ import annotations

import itertools
import re

import pytest

from bench.make_recordings import CALL, GOODBYE
from bench.sets import RECORDINGS, surveyed
from pipeline.engine import Heard, Utterance
from pipeline.recording import Plan
from pipeline.transcript.merge import merge


@pytest.fixture(scope="module")
def call() -> Plan:
    plan, _ = surveyed(RECORDINGS / "two_sided_call.wav")
    assert plan.channels == ("left", "right")
    return plan


def heard(plan: Plan) -> dict[int, Heard]:
    """All that a side says in its window, as one utterance."""
    assert [w.channel for w in plan.windows] == [0, 1]
    return {
        w.index: Heard(
            (Utterance(0.0, w.length_s, " ".join(CALL[w.channel :: 2])),),
            language="en",
            tokens=50,
            mean_logprob=-0.2,
            finish="stop",
            busy_s=0.5,
        )
        for w in plan.windows
    }


def test_the_sides_of_a_call_stand_in_the_order_they_spoke(call: Plan) -> None:
    segments = merge(call, heard(call), ["agent", "customer"])
    said = " ".join(segment.text for segment in segments)
    assert said == " ".join(CALL)
    names = [segment.speaker for segment in segments]
    turns = [name for n, name in enumerate(names) if n == 0 or names[n - 1] != name]
    assert turns == ["agent", "customer"] * 3 + ["agent"]


def test_nobody_begins_before_the_other_side_has_ended(call: Plan) -> None:
    segments = merge(call, heard(call))
    for before, after in itertools.pairwise(segments):
        assert before.end_s <= after.start_s
    last = next(s for s in reversed(segments) if s.text in GOODBYE)
    assert last.end_s <= call.duration_s
    assert len(re.findall(r"\w+", " ".join(CALL))) == sum(
        len(re.findall(r"\w+", s.text)) for s in segments
    )
