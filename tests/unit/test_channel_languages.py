"""Which language is spoken on each channel: who is asked, and what is made of the answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.recording import Piece, Plan, Window
from pipeline.transcript.channel_languages import languages_of, speech_by_channel, windows_to_ask


def plan(*windows: tuple[int, float], channels: int = 2, overlap_s: float = 0.0) -> Plan:
    """(channel, seconds of speech) of each window."""
    made = tuple(
        Window(n, channel, 0, 480_000, (Piece(0.0, 0.0, speech_s),), overlap_s)
        for n, (channel, speech_s) in enumerate(windows)
    )
    return Plan(60.0, 10.0, tuple(f"channel {n + 1}" for n in range(channels)), "", made)


@pytest.mark.parametrize(
    ("windows", "asked"),
    [
        pytest.param([(0, 9.0), (0, 20.0), (1, 8.0)], {0: 1, 1: 2}, id="the fullest of each"),
        pytest.param(
            [(0, 9.0), (0, 9.0)], {0: 0}, id="of equals the first; none on a side unheard"
        ),
        pytest.param([(1, 0.0)], {1: 0}, id="a window that nobody measured"),
        pytest.param([], {}, id="nobody where nobody speaks"),
        pytest.param([(0, 2.9), (1, 20.0)], {1: 1}, id="a few words are no ground for a guess"),
        pytest.param([(0, 2.0), (1, 2.5)], {1: 1}, id="but somebody has to be asked"),
        pytest.param(
            [(0, 1.6), (0, 1.5), (1, 9)], {0: 0, 1: 2}, id="several short ones are enough"
        ),
    ],
)
def test_a_language_is_heard_out_of_the_fullest_window_of_each_channel_that_says_enough(
    windows: list[tuple[int, float]], asked: dict[int, int]
) -> None:
    found = windows_to_ask(plan(*windows))
    assert {channel: window.index for channel, window in found.items()} == asked


def test_speech_that_two_windows_share_counts_once() -> None:
    assert speech_by_channel(plan((0, 30.0), (1, 10.0), overlap_s=2.0)) == [28.0, 8.0]


@pytest.mark.parametrize(
    ("thought", "speech_s", "main", "channels"),
    [
        pytest.param({0: ("de", 0.9)}, [5.0], "de", ["de"], id="one channel"),
        pytest.param(
            {0: ("de", 0.9), 1: ("en", 0.8)}, [50.0, 60.0], "en", ["de", "en"], id="most speech"
        ),
        pytest.param(
            {0: ("de", 0.9), 1: ("en", 0.9), 2: ("en", 0.9)}, [50.0, 30.0, 30.0], "en",
            ["de", "en", "en"], id="over all channels: 50 s against 60",
        ),
        pytest.param({1: ("es", 0.9)}, [2.0, 60.0], "es", ["es", "es"], id="a side not asked"),
        pytest.param(
            {0: ("en", 0.6), 1: ("cy", 0.4)}, [10.0, 90.0], "en", ["en", "en"], id="unsure of one"
        ),
        pytest.param(
            {0: ("en", 0.4), 1: ("cy", 0.3)}, [50.0, 60.0], "en", ["en", "en"],
            id="unsure of both: 20 against 18",
        ),
        pytest.param(
            {1: ("en", 0.9), 0: ("de", 0.9)}, [5.0, 5.0], "de", ["de", "en"], id="equals: the first"
        ),
    ],
)  # fmt: skip
def test_a_channel_has_the_language_heard_on_it_or_where_that_is_unsure_that_of_the_call(
    thought: dict[int, tuple[str, float]], speech_s: list[float], main: str, channels: list[str]
) -> None:
    assert languages_of(thought, speech_s) == (main, channels)


@given(
    st.dictionaries(
        st.integers(0, 5),
        st.tuples(st.sampled_from(["en", "de", "cy"]), st.floats(0, 1)),
        min_size=1,
    ),
    st.lists(st.floats(0, 1e6), min_size=6, max_size=6),
)
def test_every_channel_has_a_language_that_was_heard_whatever_was(
    thought: dict[int, tuple[str, float]], speech_s: list[float]
) -> None:
    main, channels = languages_of(thought, speech_s)
    assert len(channels) == 6
    assert {main, *channels} <= {language for language, _ in thought.values()}
    backwards = dict(sorted(thought.items(), reverse=True))
    assert languages_of(backwards, speech_s) == (main, channels), "the order of asking is nothing"
