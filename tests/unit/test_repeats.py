"""What is said over and over is cut, what people say is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engine import Utterance
from pipeline.transcript.repeats import RUN_LIMIT, cut_repeats, longest_run


def cut(*texts: str) -> list[str]:
    return [u.text for u in cut_repeats([Utterance(0.0, 1.0, text) for text in texts])]


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("no " * 40, "no " * 8),
        ("I am going to go. " * 30, "I am going to go. " * 8),
        ("Hello. " + "bye, " * 20 + "that is all", "Hello. " + "bye, " * 8 + "that is all"),
        ("あ" * 50, "あ" * 8),
        ("音が出てくると" * 12 + "。", "音が出てくると" * 8 + "。"),
        ("No no NO no, no. No! no no no no", "No no NO no, no. No! no no"),
    ],
)
def test_a_run_is_cut_to_its_limit(said: str, left: str) -> None:
    assert cut(said) == [left.strip()]


@pytest.mark.parametrize(
    "said",
    [
        "No, no, no, no, no. That is not my account.",
        "zero zero zero zero zero zero four two",
        "Bye bye. Bye. Bye. Bye bye.",
        "Account 0000 0000 0000 0042, amount 1000000.00",
        "ははははは、そうですね。",
        "..........",
        "",
    ],
)
def test_what_people_say_is_left_alone(said: str) -> None:
    assert cut(said) == ([said] if said else [])


def test_a_run_over_several_utterances_is_one_run() -> None:
    assert cut(*["I am going."] * 12, "Then I stop.") == ["I am going."] * 8 + ["Then I stop."]


def test_times_of_what_is_left_stay() -> None:
    utterances = [Utterance(n, n + 1.0, "so it is", -0.5) for n in range(20)]
    assert list(cut_repeats(utterances)) == utterances[:RUN_LIMIT]


WORDS = st.lists(st.sampled_from(["no", "yes,", "I", "Am", "here."]), max_size=60)


@given(st.lists(WORDS, max_size=4))
def test_no_word_runs_longer_than_the_limit_and_nothing_else_is_lost(
    texts: list[list[str]],
) -> None:
    before = [" ".join(words) for words in texts]
    after = cut(*before)
    said, left = " ".join(before).split(), " ".join(after).split()
    if longest_run(" ".join(before)) <= RUN_LIMIT:
        assert left == said
    rest = iter(said)
    assert all(word in rest for word in left), "what is left is in its old order"
    for word in {w.strip(".,").casefold() for w in left}:
        bare = [w.strip(".,").casefold() for w in left]
        assert " ".join([word] * (RUN_LIMIT + 1)) not in " ".join(bare)
