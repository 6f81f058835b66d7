"""A window that skipped words of an overlap has them from the other, whatever its times say."""

from __future__ import annotations

import pytest

from pipeline.engine import Utterance
from pipeline.recording import SAMPLE_RATE_HZ, Piece, Window
from pipeline.transcript.stitch import stitch
from pipeline.transcript.words import words

OVERLAP_S = 3.0
LONG = (
    "We moved to a new house last week, and the old one is sold. Could you please send the next "
    "letter to the new address? I have been waiting for an answer since the beginning of May."
)


def joined(
    before: tuple[float, float, str], after: tuple[float, float, str], overlap_s: float = OVERLAP_S
) -> str:
    """Two windows of one utterance each (from, to, text); both are as long as it goes."""
    length_s, more_s = before[1], max(after[1], overlap_s)
    first = Window(0, 0, 0, round(length_s * SAMPLE_RATE_HZ), (Piece(0.0, 0.0, length_s),))
    piece = Piece(0.0, length_s - overlap_s, more_s)
    second = Window(1, 0, 0, round(more_s * SAMPLE_RATE_HZ), (piece,), overlap_s)
    left, right = stitch([Utterance(*before)], first, [Utterance(*after)], second)
    return " ".join(said.text for said in (*left, *right))


def folded(text: str) -> list[str]:
    return [word.folded for word in words(text)]


@pytest.mark.parametrize("left", range(2, 11))
def test_first_words_that_the_second_window_skipped_are_the_first_window_s(left: int) -> None:
    """Ten words are in the overlap, two at least are left to be found by."""
    said = LONG.split()
    before = (0.0, 20.0, " ".join(said[:22]))
    after = (0.0, 10.0, " ".join(said[22 - left :]))
    assert folded(joined(before, after)) == folded(LONG)


@pytest.mark.parametrize("left", range(2, 11))
def test_last_words_that_the_first_window_left_out_are_the_second_window_s(left: int) -> None:
    said = LONG.split()
    before = (0.0, 20.0, " ".join(said[: 12 + left]))
    after = (0.0, 10.0, " ".join(said[12:]))
    assert folded(joined(before, after)) == folded(LONG)


@pytest.mark.parametrize("full", [0, 1])
def test_a_clause_that_one_window_skipped_inside_the_overlap_stays(full: int) -> None:
    whole, skipping = "one two three four five six seven eight", "one two three seven eight"
    texts = [whole, skipping] if full == 0 else [skipping, whole]
    assert joined((17.0, 20.0, texts[0]), (0.0, 3.4, texts[1] + " nine")) == whole + " nine"


def test_where_both_heard_several_words_and_none_alike_all_of_them_stay() -> None:
    before, after = "the garden behind the hotel is closed", "I have been waiting for my money"
    assert joined((17.0, 20.0, before), (0.0, 3.0, after)) == f"{before} {after}"


# What tiny.en made of both windows at two cuts, in full (`python -m bench.cuts`). It gives a window
# one utterance as long as all of it: where words were skipped, times of words are wrong by seconds.


def test_the_second_window_skipped_just_the_overlap() -> None:
    before = (
        "May, please write down the number that I'm going to give you now. The garden behind the "
        "hotel is closed during the winter. The doctor can see you on Monday morning or on "
        "Thursday afternoon. Please keep the box because the driver will collect it on Friday. I "
        "can see that the meter was red two times. Good morning, I would like to change the "
        "address on my account. The insurance covers the damage to the car and the garage door. "
        "The price on the large package is 20 pounds a month. The order the black table to write "
        "one was delivered. Could you please send the next"
    )
    after = (
        "The next letter to the new address, the office is open from 9 in the morning until 5 in "
        "the afternoon. The money will be back in your bank account after three days. My daughter "
        "lost her phone at the station yesterday, evening we moved to a new house last week and "
        "the old one is sold. The software needs to be updated before it can be used again. "
        "Breakfast is served on the second floor until 10 in the morning. There is a problem with "
        "the water in our kitchen. I would like to help you."
    )
    text = joined((0.0, 25.825, before), (0.0, 25.125, after), 4.155)
    assert folded(text) == folded(before + after.removeprefix("The next"))


def test_the_second_window_skipped_more_than_the_overlap() -> None:
    """What neither heard is lost ("damage to the car and the garage door"); the rest is not."""
    before = (
        "The floor until 10 in the morning, the doctor can see you on Monday morning, all answers "
        "afternoon. We moved to a new house last week and the old one is sold. We are sorry for "
        "the trouble and we will correct the meal today. The money will be back in your "
        "man-c-count after three days. The software needs to be updated before it can be used "
        "again. Please keep the marks because the driver will collect it on Friday. You please "
        "send the next letter to the new address, the garden behind the hotel is closed during "
        "the winter, the insurance cover"
    )
    after = (
        "I've been waiting for an answer since the beginning of May. You will receive a message "
        "when everything is done. My daughter lost her phone at the station yesterday. It is much "
        "higher than the middle of the month before. My flight was late, so I missed the last bus "
        "to the village. The train to the city leaves every 30 minutes. The office is open from "
        "hiding the morning until 5 in the afternoon. There is a problem with the water in our "
        "kitchen. I would like to speak with someone about my last time."
    )
    text = joined((0.0, 23.945, before), (0.0, 26.985, after), 4.455)
    assert folded(text) == folded(f"{before} {after}")


def test_a_sentence_that_the_second_window_made_up_does_not_hide_what_both_heard() -> None:
    """Thirty words in its first 3 s, of another part of the call; the last two are right."""
    before = (
        "I would like to change the address on my account, I ordered a black table to write one "
        "was delivered."
    )
    made_up = (
        "I'm going to give you how the money will be back in your bank account after three days. "
        "We are sorry for the trouble and we will correct 1 was delivered."
    )
    first = Window(0, 0, 0, round(6.5 * SAMPLE_RATE_HZ), (Piece(0.0, 0.0, 6.5),))
    second = Window(1, 0, 0, round(6.5 * SAMPLE_RATE_HZ), (Piece(0.0, 2.42, 6.5),), 4.08)
    after = [Utterance(0.0, 3.7, made_up), Utterance(3.7, 6.52, "The train to the city leaves.")]
    left, right = stitch([Utterance(0.0, 6.5, before)], first, after, second)
    text = " ".join(said.text for said in (*left, *right))
    assert folded(text) == folded(f"{before} The train to the city leaves.")
