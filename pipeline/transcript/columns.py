"""How wide text stands on a screen, and where it may be cut: what subtitles have to know.

The unit is the grapheme cluster, what a reader takes for one character: a letter with its marks, a
syllable of Hangul or Devanagari, a family of emoji. Python's library does not know clusters, so
this follows the rules of UAX #29 by what `unicodedata` does know, and where the two differ it holds
together what the standard would part: a line then breaks a little early, never inside a cluster.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_ZERO_WIDTH_JOINER = "\u200d"
_EMOJI_STYLE = "\ufe0f"
_BINDS = re.compile("[\u094d\u09cd\u0acd\u0b4d\u0c4d\u0d4d\u1039\u17d2][\u0300-\u036f\u200d]*$")
"""A virama in the scripts whose consonants it binds to one sign."""

_MARKS = frozenset({"Mn", "Mc", "Me"})
_EXTENDS = re.compile(
    "[\u200c\u200d\uff9e\uff9f\u0e33\u0eb3"  # joiners; voiced halfwidth kana; Thai and Lao am
    "\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]"  # skin tones; tags of flags
)
_PREPENDED = re.compile(
    "[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e"  # signs that stand before their number
    "\U000110bd\U000110cd\U000111c2\U000111c3\U000113d1\U0001193f\U00011941"
    "\U00011a3a\U00011a84-\U00011a89\U00011d46\U00011f02]"
)
_JAMO_FIRST = re.compile("[\u1100-\u115f\ua960-\ua97f]")
_JAMO_LATER = re.compile("[\u1160-\u11ff\ud7b0-\ud7ff]")
_SYLLABLE = re.compile("[\uac00-\ud7a3]")
_FLAG_LETTER = re.compile("[\U0001f1e6-\U0001f1ff]")

_SPACELESS = re.compile("[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19df]")
"""Thai, Lao, Tibetan, Myanmar, Khmer, Tai: words without spaces, letters of single width."""
_NOT_FIRST = frozenset("ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ々ーゝゞヽヾ〜～％%")
"""What must not begin a line though it is no punctuation: small kana, marks of length."""
_NOT_LAST = re.compile("[\u0e40-\u0e44\u0ec0-\u0ec4]")
"""Vowels that are written before the consonant they follow in speech."""


def clusters(text: str) -> Iterator[str]:
    r"""The characters a reader sees, in order; joined they are `text`.

    >>> [len(cluster) for cluster in clusters("e\u0301🇩🇪👩\u200d👧!")]
    [2, 2, 3, 1]
    """
    cluster = ""
    for letter in text:
        if cluster and not _joins(cluster, letter):
            yield cluster
            cluster = ""
        cluster += letter
    if cluster:
        yield cluster


def _joins(cluster: str, letter: str) -> bool:
    """Whether `letter` goes on with `cluster` rather than beginning the next."""
    if unicodedata.category(letter) in _MARKS or _EXTENDS.match(letter):
        return True
    last = cluster[-1]
    if last == _ZERO_WIDTH_JOINER and unicodedata.category(letter)[0] not in "LNZC":
        return True
    if _FLAG_LETTER.match(letter):
        return len(cluster) == 1 and bool(_FLAG_LETTER.match(cluster))
    if _JAMO_FIRST.match(letter) or _SYLLABLE.match(letter):
        return bool(_JAMO_FIRST.match(last) or _PREPENDED.match(last))
    if _JAMO_LATER.match(letter):
        return any(kind.match(last) for kind in (_JAMO_FIRST, _JAMO_LATER, _SYLLABLE, _PREPENDED))
    bound = unicodedata.category(letter) == "Lo" and bool(_BINDS.search(cluster))
    return bound or bool(_PREPENDED.match(last))


def width(text: str) -> int:
    """Columns of `text`: 2 for a wide East Asian character or an emoji, 1 for any other.

    >>> width("abc"), width("日本"), width("👩\u200d👧")
    (3, 4, 2)
    """
    return sum(map(_width_of, clusters(text)))


def _width_of(cluster: str) -> int:
    wide = _EMOJI_STYLE in cluster or any(map(_is_wide, cluster))
    return 2 if wide else 1


def _is_wide(letter: str) -> bool:
    return unicodedata.east_asian_width(letter) in ("W", "F")


def unbroken(word: str, columns: int) -> Iterator[str]:
    """`word` in pieces of at most `columns` (2 or more), cut where its script lets a line end.

    A script with spaces is cut only where a piece would be too wide.

    >>> list(unbroken("Straßenbahn", 42)), list(unbroken("東京。はい", 42))
    (['Straßenbahn'], ['東', '京。', 'は', 'い'])
    >>> list(unbroken("ab-abcdef", 4))
    ['ab-a', 'bcde', 'f']
    """
    piece, filled, before = "", 0, ""
    for cluster in clusters(word):
        wide = _width_of(cluster)
        if piece and (filled + wide > columns or _may_part(before, cluster)):
            yield piece
            piece, filled = "", 0
        piece, filled, before = piece + cluster, filled + wide, cluster
    if piece:
        yield piece


def _may_part(before: str, after: str) -> bool:
    if not (is_loose(before[0]) or is_loose(after[0])):
        return False
    closes = unicodedata.category(after[0]) in ("Pe", "Pf", "Po") or after[0] in _NOT_FIRST
    opens = unicodedata.category(before[0]) in ("Ps", "Pi") or bool(_NOT_LAST.match(before[0]))
    return not closes and not opens


def is_loose(letter: str) -> bool:
    """Whether a letter's script has no spaces between words; Korean is wide and has them."""
    if _SYLLABLE.match(letter) or _JAMO_FIRST.match(letter):
        return False
    return _is_wide(letter) or bool(_SPACELESS.match(letter))
