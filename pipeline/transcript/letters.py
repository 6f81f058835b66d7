"""Text as it is spoken: how many letters, which words, without signs."""

from __future__ import annotations

import unicodedata

SIGN_LETTERS = 3.0
"""A sign of Chinese, a kana and a Korean syllable take about as long to say as so many letters of
an alphabet: 5 to 9 of them a second are spoken, of letters 12 to 20 (Pellegrino and others,
"A cross-language perspective on speech information rate", Language 87, 2011)."""

SIGNS = (
    ("぀", "ヿ"),  # hiragana, katakana
    ("㐀", "鿿"),  # Chinese characters
    ("가", "힣"),  # Korean syllables
)

DIGIT_LETTERS = 4.0
"""A digit is a word when it is said: "seven"."""


def spoken_letters(text: str) -> float:
    """How long a text is when it is said, in letters of an alphabet.

    >>> spoken_letters("Good day!"), spoken_letters("こんにちは。"), spoken_letters("42 ♪")
    (7.0, 15.0, 8.0)
    """
    return sum((_letters(sign) for sign in text if sign.isalnum()), 0.0)


def _letters(sign: str) -> float:
    if sign.isdigit():
        return DIGIT_LETTERS
    return SIGN_LETTERS if any(first <= sign <= last for first, last in SIGNS) else 1.0


def bare(text: str) -> str:
    """A text without case, signs and doubled blanks, to compare by.

    >>> bare(" Thank you,  MILLER! ")
    'thank you miller'
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    # marks belong to their letter in scripts that write vowels as marks
    kept = (c if c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in folded)
    return " ".join("".join(kept).split())


def bare_words(text: str) -> list[str]:
    """The words of a text as `bare` leaves them."""
    return bare(text).split()
