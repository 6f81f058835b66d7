"""Two windows that heard the same seconds: every word of them stands once, wherever it was cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.engine import Heard, Utterance
from pipeline.recording import SAMPLE_RATE_HZ, Piece, Plan, Window
from pipeline.transcript.merge import merge
from pipeline.transcript.stitch import stitch
from pipeline.transcript.words import words

STARTS_S, OVERLAP_S = 17.0, 3.0
"""The overlap is from 17 to 20 s of the first window, and from 0 to 3 s of the second."""


def window(index: int, start_s: float, length_s: float, overlap_s: float = 0.0) -> Window:
    pieces = (Piece(0.0, start_s, length_s),)
    return Window(index, 0, 0, round(length_s * SAMPLE_RATE_HZ), pieces, overlap_s)


BEFORE = window(0, 100.0, 20.0)
AFTER = window(1, 117.0, 20.0, OVERLAP_S)


LETTER_S = 0.07


def heard_by_both(truth: str, middle: int) -> tuple[list[Utterance], list[Utterance]]:
    """A text spoken evenly, the letter `middle` in the middle of the overlap, heard by each window.

    A word at an edge is heard by halves.
    """
    half = round(OVERLAP_S / 2 / LETTER_S)
    first, second = truth[: middle + half], truth[max(0, middle - half) :]
    starts_s = STARTS_S + OVERLAP_S / 2 - middle * LETTER_S
    begins_s = max(0.0, OVERLAP_S / 2 - middle * LETTER_S)
    return (
        utterance(first, starts_s, starts_s + len(first) * LETTER_S),
        utterance(second, begins_s, begins_s + len(second) * LETTER_S),
    )


def utterance(text: str, start_s: float, end_s: float) -> list[Utterance]:
    return [Utterance(start_s, end_s, text)] if words(text) else []


def stitched(before: list[Utterance], after: list[Utterance]) -> str:
    left, right = stitch(before, BEFORE, after, AFTER)
    return " ".join(u.text for u in (*left, *right))


def folded(text: str) -> list[str]:
    return [word.folded for word in words(text)]


LONG = (
    "We moved to a new house last week, and the old one is sold. Could you please send the next "
    "letter to the new address? I have been waiting for an answer since the beginning of May."
)
TRUTHS = [
    LONG,
    "I said no, no, no, no, no, no, no, no, no, no, no, no, no, no, no, that is wrong, I think",
    "My number is four four four four four four four four four four four one nine nine, thank you",
    "It is 0 800 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 1 2 3 1 2 3 1 2 3 7 7 7 and no more",
    "Die Straße führt über Köln, Düsseldorf und Münster nach Osnabrück, weiter über Bremen",
    "Я хотел бы изменить адрес в моём договоре, потому что мы переехали на прошлой неделе в Казань",
    "आपका खाता संख्या क्या है और आप किस शहर में रहते हैं कृपया मुझे अपना पूरा नाम और पता बता दीजिए",
    "회의는 월요일 아침 아홉 시에 시작해서 저녁 여섯 시에 끝나고 그 다음 날에는 아무 일도 없습니다",
]


@pytest.mark.parametrize("truth", TRUTHS)
def test_wherever_the_overlap_falls_every_word_stands_once(truth: str) -> None:
    for middle in range(15, len(truth) - 15, 2):
        assert folded(stitched(*heard_by_both(truth, middle))) == folded(truth), middle


def test_text_without_spaces_is_joined_by_its_characters() -> None:
    truth = "今日は東京に行きます。明日は大阪で会議がありますので、来週もう一度お電話ください。"
    half = 6  # characters in 1.5 s
    for middle in range(half, len(truth) - half):
        first = [Utterance(20.0 - (middle + half) * 0.25, 20.0, truth[: middle + half])]
        rest = truth[middle - half :]
        second = [Utterance(0.0, len(rest) * 0.25, rest)]
        assert folded(stitched(first, second)) == folded(truth)


VOCABULARY = ["no", "yes", "four", "the", "account", "thirty", "seven", "please"]


@settings(deadline=None)
@given(st.lists(st.sampled_from(VOCABULARY), min_size=25), st.floats(0.0, 1.0))
def test_any_words_however_often_they_come_again_are_counted_to_one(
    said: list[str], share: float
) -> None:
    """Eight words drawn again and again tell little of where one is: one may be lost or doubled."""
    truth = " ".join(said)
    heard = folded(stitched(*heard_by_both(truth, round(share * len(truth)))))
    assert abs(len(heard) - len(said)) <= 1


@settings(deadline=None)
@given(st.sampled_from(VOCABULARY), st.floats(0.0, 1.0))
def test_one_word_said_all_the_time_is_counted_to_one(word: str, share: float) -> None:
    truth = " ".join([word] * 30)
    said = folded(stitched(*heard_by_both(truth, round(share * len(truth)))))
    assert abs(len(said) - 30) <= 1


@settings(deadline=None)
@given(st.floats(-0.8, 0.8), st.floats(-0.8, 0.8), st.integers(30, len(LONG) - 30))
def test_times_that_are_wrong_by_most_of_a_second_do_no_harm(
    early_s: float, late_s: float, middle: int
) -> None:
    (first,), (second,) = heard_by_both(LONG, middle)
    first = replace(first, start_s=first.start_s + early_s)
    second = replace(second, end_s=second.end_s + late_s)
    assert folded(stitched([first], [second])) == folded(LONG)


@pytest.mark.parametrize(
    ("before", "after", "whole"),
    [
        pytest.param(
            "please write down the numbers that I am going to g",
            "the number that I'm going to give you now",
            "please write down the numbers that I'm going to give you now",
            id="heard differently",
        ),
        pytest.param(
            "The old one is sold. Thank.",
            "one is sold. Thank you.",
            "The old one is sold. Thank you.",
            id="an end made up for half a word",
        ),
        pytest.param(
            "and the door is open", "Uh, the doors open in the morning", None, id="a start made up"
        ),
    ],
)
def test_words_heard_differently_find_each_other(
    before: str, after: str, whole: str | None
) -> None:
    first = utterance(before, 20.0 - len(before) * LETTER_S, 20.0)
    second = utterance(after, 0.6, 0.6 + len(after) * LETTER_S)
    text = stitched(first, second)
    assert whole is None or text == whole
    assert text.count("door") <= 1


def test_punctuation_at_the_seam_is_that_of_the_window_that_heard_on() -> None:
    first = utterance("we moved to a new house.", 18.5, 20.0)
    second = utterance("to a new house, and the old one is sold.", 1.6, 4.8)
    assert stitched(first, second) == "we moved to a new house, and the old one is sold."


@pytest.mark.parametrize(
    ("before", "after", "whole"),
    [
        ([], [(0.0, 6.0, "all of it here")], "all of it here"),
        ([(10.0, 20.0, "all of it here")], [], "all of it here"),
        ([], [], ""),
        (
            [(5.0, 16.0, "nothing after")],
            [(0.4, 6.0, "heard it all")],
            "nothing after heard it all",
        ),
        ([(10.0, 20.0, "heard it all")], [(3.5, 6.0, "only later")], "heard it all only later"),
        ([(10.0, 20.0, " ... ")], [(0.0, 6.0, "?!")], " ...  ?!"),
    ],
)
def test_a_window_that_heard_nothing_in_the_overlap_has_no_say(
    before: list[tuple[float, float, str]], after: list[tuple[float, float, str]], whole: str
) -> None:
    assert stitched([Utterance(*u) for u in before], [Utterance(*u) for u in after]) == whole


def test_words_that_have_nothing_in_common_are_parted_in_the_middle_of_the_overlap() -> None:
    first = utterance("aaa bbb ccc ddd eee fff", 14.0, 20.0)  # a second each; fff in the overlap
    second = utterance("uuu vvv www xxx yyy zzz", 0.0, 6.0)
    assert stitched(first, second) == "aaa bbb ccc ddd eee www xxx yyy zzz"


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 20), st.text(max_size=30)), max_size=6),
    st.lists(st.tuples(st.floats(0, 20), st.text(max_size=30)), max_size=6),
)
def test_whatever_was_heard_the_utterances_stay_in_order_inside_their_windows(
    before: list[tuple[float, str]], after: list[tuple[float, str]]
) -> None:
    def timed(said: list[tuple[float, str]]) -> list[Utterance]:
        times = [0.0, *sorted(t for t, _ in said)]
        return [Utterance(times[n], times[n + 1], text) for n, (_, text) in enumerate(said)]

    first, second = timed(before), timed(after)
    for left, parts in zip((first, second), stitch(first, BEFORE, second, AFTER), strict=True):
        times = [t for u in parts for t in (u.start_s, u.end_s)]
        assert times == sorted(times)
        assert all(0.0 <= t <= 20.0 for t in times)
        assert len(parts) <= len(left)


def plan(*windows: Window) -> Plan:
    return Plan(137.0, 37.0, ("mono",), "", windows)


def heard(*said: Utterance) -> Heard:
    return Heard(said, "en", 10, -0.1, "stop", 0.1)


def test_a_transcript_has_the_words_of_an_overlap_once_and_its_times_in_order() -> None:
    first, second = heard_by_both(LONG, 60)
    segments = merge(plan(BEFORE, AFTER), {0: heard(*first), 1: heard(*second)})
    assert folded(" ".join(s.text for s in segments)) == folded(LONG)
    assert segments[0].end_s == segments[1].start_s
    assert 117.0 <= segments[1].start_s <= 120.0


@pytest.mark.parametrize("index", [0, 1])
def test_a_window_whose_neighbour_is_not_heard_keeps_all_its_words(index: int) -> None:
    both = dict(enumerate(heard(*said) for said in heard_by_both(LONG, 60)))
    (segment,) = merge(plan(BEFORE, AFTER), {index: both[index]})
    assert segment.text == both[index].utterances[0].text


def test_a_window_whose_neighbour_is_not_heard_is_not_stitched_to_the_one_before_that() -> None:
    far = window(2, 134.0, 20.0, OVERLAP_S)
    first, second = heard_by_both(LONG, 60)
    segments = merge(plan(BEFORE, AFTER, far), {0: heard(*first), 2: heard(*second)})
    assert [s.text for s in segments] == [first[0].text, second[0].text]
