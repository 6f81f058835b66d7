"""The words of an utterance: what to compare them by, and about when each was said.

No word times are known. Words are taken to run evenly over the speech of their utterance, a letter
as long as another, which is right to about half a second: enough to tell one "no" from the next but
one, never to be shown to anybody.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.engine import Utterance
from pipeline.recording import Piece
from pipeline.transcript.columns import clusters, is_loose

_APOSTROPHES = frozenset("'’ʼ")


@dataclass(frozen=True)
class Word:
    """A word in its utterance; in scripts without spaces a character, in numbers a digit."""

    folded: str
    """Without case, accents of style and apostrophes: "Don’t" and "don't" are the same."""
    start: int
    end: int
    """Its letters are `text[start:end]`; punctuation around it is not part of it."""


def words(text: str) -> tuple[Word, ...]:
    """The words of a text in order; punctuation and signs alone are none.

    >>> [word.folded for word in words("Don’t — it's twenty-two, No. 42!")]
    ['dont', 'its', 'twenty', 'two', 'no', '4', '2']
    >>> [word.folded for word in words("はい、東京")]
    ['は', 'い', '東', '京']
    """
    return tuple(
        Word(_folded(text[start:end]), start, end)
        for start, end in _stretches(text)
        if _folded(text[start:end])
    )


def _stretches(text: str) -> Iterator[tuple[int, int]]:
    """From where to where each word goes."""
    start = at = 0
    inside = False
    for cluster in clusters(text):
        letter = cluster[0]
        kind = unicodedata.category(letter)[0]
        alone = kind == "N" or (kind == "L" and is_loose(letter))
        goes_on = kind in "LM" and not alone
        if inside and not goes_on and not (letter in _APOSTROPHES and _letter_at(text, at + 1)):
            yield start, at
            inside = False
        if alone:
            yield at, at + len(cluster)
        elif goes_on and not inside:
            start, inside = at, True
        at += len(cluster)
    if inside:
        yield start, at


def _letter_at(text: str, at: int) -> bool:
    return unicodedata.category(text[at]).startswith("L") if at < len(text) else False


def _folded(word: str) -> str:
    kept = "".join(letter for letter in word if letter not in _APOSTROPHES)
    return unicodedata.normalize("NFKC", kept).casefold()


def moment_s(utterance: Utterance, pieces: tuple[Piece, ...], at: int) -> float:
    """About when the letter `at` of an utterance was said, seconds of its window.

    >>> said = Utterance(0.0, 5.0, "one two four")
    >>> moment_s(said, (Piece(0.0, 7.0, 2.0), Piece(3.0, 20.0, 2.0)), 6)  # half of 4 s of speech
    2.0
    """
    share = at / max(1, len(utterance.text))
    wanted_s = share * speech_s(pieces, utterance.start_s, utterance.end_s)
    for piece in pieces:
        from_s = max(piece.at_s, utterance.start_s)
        length_s = min(piece.at_s + piece.length_s, utterance.end_s) - from_s
        if length_s > 0:
            if wanted_s <= length_s:
                return from_s + wanted_s
            wanted_s -= length_s
    return utterance.end_s


def speech_s(pieces: tuple[Piece, ...], from_s: float, to_s: float) -> float:
    """Seconds of speech between two moments of a window: its gaps do not count."""
    return sum(
        max(0.0, min(to_s, piece.at_s + piece.length_s) - max(from_s, piece.at_s))
        for piece in pieces
    )
