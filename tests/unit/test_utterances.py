"""Timestamp tokens become the times of utterances; no odd output loses a word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engine import Utterance
from workers.utterances import read_utterances

END = 100
FIRST = 200


def at(seconds: float) -> int:
    """The timestamp token for a moment."""
    return FIRST + round(seconds / 0.02)


def read(tokens: list[int], length_s: float = 30.0) -> list[tuple[float, float, str]]:
    utterances = read_utterances(
        tokens,
        end_of_text=END,
        first_timestamp=FIRST,
        length_s=length_s,
        decode=lambda ids: "".join(f" w{i}" for i in ids),
    )
    return [(u.start_s, u.end_s, u.text) for u in utterances]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([], []),
        ([END], []),
        ([at(1), END], []),
        ([1, 2, at(2.5), END], [(0.0, 2.5, "w1 w2")]),
        ([1, at(2), at(3), 2, at(4), END], [(0.0, 2.0, "w1"), (3.0, 4.0, "w2")]),
        ([1, at(2), 2, at(4), END], [(0.0, 2.0, "w1"), (2.0, 4.0, "w2")]),
        ([1, at(2), at(2), 2], [(0.0, 2.0, "w1"), (2.0, 30.0, "w2")]),
        ([at(1), 1, END], [(1.0, 30.0, "w1")]),
    ],
    ids=[
        "nothing",
        "only the end",
        "only a time",
        "one utterance",
        "two with a pause between",
        "a single time between two",
        "cut off in the second",
        "a start, no end",
    ],
)
def test_words_between_times_are_an_utterance(
    tokens: list[int], expected: list[tuple[float, float, str]]
) -> None:
    assert read(tokens) == expected


def test_times_beyond_the_window_are_moved_to_its_end() -> None:
    assert read([1, at(29), at(29.5), 2, at(30)], 10.0) == [
        (0.0, 10.0, "w1"),
        (10.0, 10.0, "w2"),
    ]


def test_times_that_run_backwards_stand_still() -> None:
    assert read([1, at(5), at(3), 2, at(4), at(8), 3]) == [
        (0.0, 5.0, "w1"),
        (5.0, 5.0, "w2"),
        (8.0, 30.0, "w3"),
    ]


def test_tokens_that_are_neither_text_nor_time_say_nothing() -> None:
    assert read([END + 1, 1, END + 5, 2, at(1)]) == [(0.0, 1.0, "w1 w2")]


def test_an_utterance_of_blanks_is_none() -> None:
    assert (
        read_utterances(
            [1, at(1)], end_of_text=END, first_timestamp=FIRST, length_s=30.0, decode=lambda _: "  "
        )
        == ()
    )


@given(
    st.lists(st.integers(0, FIRST + 1500), max_size=60),
    st.floats(0.02, 30.0, allow_nan=False),
)
def test_whatever_the_decoder_says_times_are_ordered_and_all_words_are_kept(
    tokens: list[int], length_s: float
) -> None:
    found = read(tokens, length_s)
    times = [t for start, end, _ in found for t in (start, end)]
    assert times == sorted(times)
    assert all(0 <= t <= length_s for t in times)
    said = " ".join(text for _, _, text in found)
    assert said == " ".join(f"w{t}" for t in tokens if t < END)


def test_an_utterance_is_plain_values() -> None:
    assert read_utterances(
        [1, at(1)], end_of_text=END, first_timestamp=FIRST, length_s=2.0, decode=lambda _: " hi "
    ) == (Utterance(0.0, 1.0, "hi"),)
