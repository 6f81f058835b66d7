"""Where text may be cut: compared with the whole of UAX #29 as another library knows it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.transcript.columns import clusters, unbroken, width

regex = pytest.importorskip("regex", reason="knows grapheme clusters by the letter")

SCRIPTS = {
    "latin with marks": "e\u0301 Zalgo Z\u0335\u0351\u0347 A\u030a",
    "hangul": "한국어 \u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165",
    "devanagari": "क्षत्रिय नमस्ते विद्यार्थी",
    "tamil, malayalam": "வணக்கம் സ്വാഗതം",
    "thai, lao": "ภาษาไทยน้ำ ພາສາລາວນ້ຳ",
    "khmer": "ភាសាខ្មែរ",
    "emoji": "👩‍👩‍👧‍👦👍🏽🏴󠁧󠁢󠁳󠁣󠁴󠁿🇩🇪🇫🇷1️⃣❤️‍🔥",
    "hebrew and arabic with points": "שָׁלוֹם السَّلَامُ",
    "japanese": "がぎ か\u3099 ｶﾞ ㍿ 「東京」",
}


@st.composite
def any_script(draw: st.DrawFn) -> str:
    """Letters of every script side by side, in an order nobody would write."""
    alphabet = "".join(SCRIPTS.values()) + "မြန်မာဘာသာ\u200d\u200c\ufe0f\u0600 \r\n"
    return "".join(draw(st.lists(st.sampled_from(alphabet) | st.characters(), max_size=60)))


def ends(pieces: Iterator[str] | list[str]) -> set[int]:
    """Where pieces end, as places in the text."""
    found, at = set(), 0
    for piece in pieces:
        at += len(piece)
        found.add(at)
    return found


@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
def test_the_characters_a_reader_sees_are_those_of_the_standard(text: str) -> None:
    assert list(clusters(text)) == regex.findall(r"\X", text)


@given(any_script())
def test_a_cluster_is_never_cut_and_nothing_is_lost(text: str) -> None:
    found = list(clusters(text))
    assert "".join(found) == text
    # \r\n is one cluster to the standard; both are white space, folded before any cut
    standard = regex.findall(r"\X", text.replace("\r\n", "\n\n"))
    assert ends(found) <= ends(standard)


@given(any_script(), st.integers(2, 42))
def test_a_word_is_cut_into_pieces_that_fit_and_only_between_clusters(
    text: str, columns: int
) -> None:
    word = "".join(text.split())
    pieces = list(unbroken(word, columns))
    assert "".join(pieces) == word
    assert all(0 < width(piece) <= columns for piece in pieces)
    assert ends(pieces) <= ends(regex.findall(r"\X", word))


@pytest.mark.parametrize(
    ("word", "pieces"),
    [
        ("Donaudampfschifffahrt", ["Donaudampfschifffahrt"]),
        ("今日は、晴れ。", ["今", "日", "は、", "晴", "れ。"]),
        ("「はい」と言った", ["「は", "い」", "と", "言っ", "た"]),
        ("コーヒー", ["コー", "ヒー"]),
        ("ไทย", ["ไท", "ย"]),
        ("한국", ["한국"]),
        ("AIの話", ["AI", "の", "話"]),
    ],
)
def test_a_line_may_end_where_the_script_lets_it(word: str, pieces: list[str]) -> None:
    assert list(unbroken(word, 42)) == pieces


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("", 0),
        ("abc", 3),
        ("日本語", 6),
        ("ﾊﾝｶｸ", 4),
        ("ＡＢ", 4),
        ("e\u0301", 1),
        ("👍🏽", 2),
        ("❤️", 2),
    ],
)
def test_a_wide_character_takes_two_columns_and_a_mark_none(text: str, columns: int) -> None:
    assert width(text) == columns
