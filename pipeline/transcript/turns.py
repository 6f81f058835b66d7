"""An utterance that runs over pauses is divided at them, so that two sides of a call interleave.

Whisper often says one long segment for a whole window, though the window was packed from stretches
of speech with pauses, and perhaps the other side's answers, between them. Where a pause lies is
known exactly (the window's pieces); which words lie before it is not, for there are no word times.
But people pause between sentences: a pause is matched with the sentence end nearest to it, taking
text to run evenly over speech, and only when the two lie close. A pause without such a sentence
end divides nothing.
"""

from __future__ import annotations

import re
from dataclasses import replace

from pipeline.engine import Utterance
from pipeline.recording import Piece, Window
from pipeline.transcript.words import speech_s

NEAR_S = 1.5
"""How far, in seconds of speech, a sentence end may lie from the pause it is taken for."""

_SENTENCE_END = re.compile(r"(?<=[.!?…。！？])\s*(?=\S)")


def split_at_pauses(utterance: Utterance, window: Window) -> list[Utterance]:
    """The utterance in order, divided at those pauses of `window` that fit a sentence end.

    >>> w = Window(0, 0, 0, 80_000, (Piece(0.0, 5.0, 2.0), Piece(2.3, 30.0, 2.7)))
    >>> said = Utterance(0.0, 5.0, "Hello you. I am in.")
    >>> [(u.start_s, u.end_s, u.text) for u in split_at_pauses(said, w)]
    [(0.0, 2.0, 'Hello you.'), (2.3, 5.0, 'I am in.')]
    """
    done: list[Utterance] = []
    rest = utterance
    for before, after in zip(window.pieces, window.pieces[1:], strict=False):
        pause_s = before.at_s + before.length_s
        if not rest.start_s < pause_s <= after.at_s < rest.end_s:
            continue
        cut = _sentence_end_at(rest, pause_s, window.pieces)
        if cut is not None:
            said, left = rest.text[:cut].strip(), rest.text[cut:].strip()
            done.append(replace(rest, end_s=pause_s, text=said))
            rest = replace(rest, start_s=after.at_s, text=left)
    return [*done, rest]


def _sentence_end_at(utterance: Utterance, pause_s: float, pieces: tuple[Piece, ...]) -> int | None:
    """Index in the text where the sentence nearest to the pause ends; None when none is near."""
    all_s = speech_s(pieces, utterance.start_s, utterance.end_s)
    before_s = speech_s(pieces, utterance.start_s, pause_s)
    seconds_a_letter = all_s / max(1, len(utterance.text))
    ends = [match.start() for match in _SENTENCE_END.finditer(utterance.text)]
    near = min(ends, key=lambda end: abs(end * seconds_a_letter - before_s), default=None)
    if near is None or abs(near * seconds_a_letter - before_s) > NEAR_S:
        return None
    return near
