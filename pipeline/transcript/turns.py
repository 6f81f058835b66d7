"""What was heard in a window is divided at its pauses, so that two sides of a call interleave.

Whisper often says one long segment for a whole window, though the window was packed from stretches
of speech (pieces) with pauses, and perhaps the other side's answers, between them. Its own times
are late by up to half a second. Where a piece begins in the recording is known exactly; which words
lie in it is not, for there are no word times. But people pause between sentences, and a sentence
takes about as long as it has letters. So sentences are laid on pieces, in order, by the cheapest
way of doing so: runs of whole sentences on runs of whole pieces, found by dynamic programming as
for justified text (Knuth and Plass 1981) or sentences of two languages (Gale and Church 1993). What
begins a piece then begins when that piece's speech does. A pause in the middle of a sentence
divides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline.engine import Utterance
from pipeline.recording import Window

BREATH_S = 0.2
"""A piece begins so long before its speech and ends so long after it: what the survey keeps."""

SHARE, AT_LEAST_S = 0.25, 0.4
"""Speech is taken to last as its letters say, give or take this share of it and these seconds."""
JOIN = 2.0
"""Price of a pause that divides nothing; a run twice as far off as it is taken to be costs 4."""
CLAUSE = 1.0
"""Price of dividing at a comma, where people pause less often than at a full stop."""
FAR_S = 1.5
"""A pause so far from the time Whisper gave for the words there costs 1, twice as far 4."""
SHORTEST_S = 0.5
"""Of a piece that Whisper's times only touch, less than this is left out."""

MOST_PIECES, MOST_SENTENCES = 8, 12
"""The longest run looked at: it bounds the work, not what is found in speech."""

_SENTENCE_END = re.compile(r"(?:[.!?…][\"'”’»)]*\s+|[。！？।۔؟။።։][」』”’»)]*\s*)(?=\S)")
_CLAUSE_END = re.compile(r"(?:[,;:]\s+|[、，；،]\s*)(?=\S)")
"""Points and commas of scripts with spaces end something only before a space: not in 1,000.5."""


@dataclass(frozen=True)
class _End:
    """A place in a window's text where it may be divided."""

    utterance: int
    at: int
    """Index into the utterance's text."""
    letters: int
    """Of all text before it."""
    price: float
    said_s: float | None
    """When the words before it ended, by Whisper's own times, seconds of the window."""


def turns(utterances: Sequence[Utterance], window: Window) -> list[Utterance]:
    """The utterances in order, divided at those pauses of `window` that fit a sentence's end.

    Times stay in seconds of the window. One that begins with a piece begins when its speech does.
    No word is lost; times never run backwards where those of `utterances` do not.

    >>> from pipeline.recording import Piece
    >>> w = Window(0, 0, 0, 80_000, (Piece(0.0, 5.0, 2.0), Piece(2.3, 30.0, 2.7)))
    >>> said = Utterance(0.0, 5.0, "Hello you. I am in.")
    >>> [(u.start_s, u.end_s, u.text) for u in turns([said], w)]
    [(0.2, 1.8, 'Hello you.'), (2.5, 4.8, 'I am in.')]
    """
    worded = [said for said in utterances if said.text.strip()]
    pieces = _heard_pieces(worded, window)
    if not pieces:
        return worded
    ends = _ends(worded)
    done: list[Utterance] = []
    begun = ends[0]
    for end, first, last in _laid(ends, pieces):
        done += _within(worded, begun, end, pieces[first][0], pieces[last][1])
        begun = end
    return done


def _heard_pieces(utterances: Sequence[Utterance], window: Window) -> list[tuple[float, float]]:
    """From when to when there is speech, as far as words were heard; seconds of the window."""
    if not utterances:
        return []
    from_s, to_s = utterances[0].start_s, utterances[-1].end_s
    found = []
    for number, piece in enumerate(window.pieces):
        cut = number == 0 and window.overlap_s > 0
        start_s = max(from_s, piece.at_s + (0.0 if cut else min(BREATH_S, piece.length_s / 4)))
        end_s = min(to_s, piece.at_s + piece.length_s - min(BREATH_S, piece.length_s / 4))
        if end_s - start_s >= min(SHORTEST_S, piece.length_s / 2):
            found.append((start_s, end_s))
    return found


def _ends(utterances: Sequence[Utterance]) -> list[_End]:
    """The start of the text, then every place it may be divided at; the last is its end."""
    ends = [_End(0, 0, 0, 0.0, None)]
    letters = 0
    for number, said in enumerate(utterances):
        places = {match.end(): CLAUSE for match in _CLAUSE_END.finditer(said.text)}
        places |= {match.end(): 0.0 for match in _SENTENCE_END.finditer(said.text)}
        ends += [_End(number, at, letters + at, places[at], None) for at in sorted(places)]
        letters += len(said.text)
        ends.append(_End(number, len(said.text), letters, 0.0, said.end_s))
    return ends


def _laid(
    ends: Sequence[_End], pieces: Sequence[tuple[float, float]]
) -> Iterator[tuple[_End, int, int]]:
    """Text up to each end lies on the pieces from the first to the last named."""
    speech_s = [end_s - start_s for start_s, end_s in pieces]
    a_letter_s = sum(speech_s) / max(1, ends[-1].letters)
    best: dict[tuple[int, int], tuple[float, tuple[int, int]]] = {(0, 0): (0.0, (0, 0))}
    for k in range(1, len(pieces) + 1):
        last = k == len(pieces)
        for e in [len(ends) - 1] if last else range(1, len(ends) - 1):
            ways = [
                (
                    best[e0, k0][0]
                    + _price(ends[e0], ends[e], a_letter_s, sum(speech_s[k0:k]), k - k0)
                    + (0.0 if last else _far(ends[e], pieces[k - 1][1], pieces[k][0])),
                    (e0, k0),
                )
                for k0 in range(max(0, 0 if last else k - MOST_PIECES), k)
                for e0 in range(max(0, 0 if last else e - MOST_SENTENCES), e)
                if (e0, k0) in best
            ]
            if ways:
                best[e, k] = min(ways)
    runs = []
    at = (len(ends) - 1, len(pieces))
    while at != (0, 0):
        before = best[at][1]
        runs.append((ends[at[0]], before[1], at[1] - 1))
        at = before
    return reversed(runs)


def _price(begun: _End, end: _End, a_letter_s: float, speech_s: float, pieces: int) -> float:
    """What it costs to lay some text on some pieces."""
    needed_s = (end.letters - begun.letters) * a_letter_s
    off = (needed_s - speech_s) / (SHARE * speech_s + AT_LEAST_S)
    return off * off + JOIN * (pieces - 1) + end.price


def _far(end: _End, pause_s: float, after_s: float) -> float:
    """What it costs that Whisper puts the end elsewhere than in this pause."""
    if end.said_s is None:
        return 0.0
    beside_s = max(pause_s - end.said_s, end.said_s - after_s, 0.0)
    return (beside_s / FAR_S) ** 2


def _within(
    utterances: Sequence[Utterance], begun: _End, end: _End, start_s: float, end_s: float
) -> Iterator[Utterance]:
    """The text between two ends, spoken from `start_s` to `end_s`.

    Where it is of several utterances they stay apart, at their own times inside the run's.
    """
    at_s = start_s
    for number in range(begun.utterance, end.utterance + 1):
        said = utterances[number]
        first = begun.at if number == begun.utterance else 0
        last = end.at if number == end.utterance else len(said.text)
        text = said.text[first:last].strip()
        to_s = end_s if number == end.utterance else min(max(said.end_s, at_s), end_s)
        if text:
            from_s = at_s if first or at_s == start_s else min(max(said.start_s, at_s), to_s)
            yield replace(said, start_s=round(from_s, 3), end_s=round(to_s, 3), text=text)
            at_s = to_s
