"""The measures of cuts and of times see what they are there to see."""

from __future__ import annotations

import numpy as np
import pytest

from bench import times
from bench.cuts import judged
from bench.spoken import Placed, Spoken, squeezed, trimmed
from pipeline.recording import Segment
from tests.sounds import silence, voice

SPOKEN = Spoken(
    "two lines",
    np.zeros(0, np.int16),
    (
        Placed("One two three four five", 0.0, 10.0),
        Placed("Six seven eight nine ten.", 12.0, 22.0),
    ),
)
ALL = "one two three four five six seven eight nine ten"


@pytest.mark.parametrize(
    ("heard", "near", "elsewhere"),
    [
        (ALL, (0, 0, 0), (0, 0, 0)),
        (ALL.replace("eight ", ""), (1, 0, 0), (0, 0, 0)),
        (ALL.replace("eight", "eight eight"), (0, 1, 0), (0, 0, 0)),
        (ALL.replace("eight", "late"), (0, 0, 1), (0, 0, 0)),
        (ALL.replace("two ", ""), (0, 0, 0), (1, 0, 0)),
    ],
)
def test_words_lost_and_doubled_near_a_cut_are_told_from_those_elsewhere(
    heard: str, near: tuple[int, int, int], elsewhere: tuple[int, int, int]
) -> None:
    counts = judged(SPOKEN, heard, [17.0])  # "eight" is said there
    found = [(count.lost, count.added, count.changed) for count in counts]
    assert found == [near, elsewhere]


def segment(start_s: float, text: str) -> Segment:
    return Segment(start_s, start_s + 1, 0, None, text, None)


def test_a_segment_is_compared_with_the_moment_of_its_first_word() -> None:
    segments = [segment(0.1, "One two, three four five."), segment(12.5, "Sex seven eight nine.")]
    found = times.judged(SPOKEN, segments)
    assert [error for _, error in found["starts"]] == pytest.approx([0.1, 0.5])
    assert (found["lines"], found["begun"], found["not judged"]) == (2, 2, 0)


def test_a_segment_in_the_middle_of_a_sentence_begins_no_line() -> None:
    found = times.judged(SPOKEN, [segment(14.0, "seven eight"), segment(15.0, "other words")])
    assert (found["begun"], found["not judged"]) == (0, 1)


def test_squeezed_speech_has_no_pause_longer_than_a_stop() -> None:
    sound = np.concatenate([silence(1.0), voice(1.0), silence(0.5), voice(1.0), silence(1.0)])
    assert len(trimmed(sound)) / 16_000 == pytest.approx(2.5, abs=0.05)
    assert len(squeezed(trimmed(sound))) / 16_000 == pytest.approx(2.06, abs=0.1)
