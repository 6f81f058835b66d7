"""Two windows that heard the same seconds become one text: no word lost, none doubled.

Where a long speech had no pause, two windows overlap (`Window.overlap_s`). Each hears a word at its
own edge cut in two, and may write down anything for it, but the words in the middle of the overlap
are whole in both. So the words of the one's end and the other's beginning are aligned, and at the
pair nearest to the middle the text goes over from the first window to the second.

The alignment is Smith and Waterman's (1981), of words: a pair counts by how alike the words are and
how close in time they were said, so that of "no, no, no" each keeps its partner. As both heard the
same seconds, the second window's first words and the first one's last want partners too. One
window's times may all be late by as much, by seconds where Whisper skipped a window's first words
or left out its last: equal words tell by how much. Where nothing aligns, time alone decides; but
where both heard several words and none alike, each skipped what the other heard, and all stay.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from statistics import median

from pipeline.engine import Utterance
from pipeline.recording import Window
from pipeline.transcript.words import Word, moment_s, words

BESIDE_S = 2.0
"""Words this far outside the overlap are aligned too, for their times are only about right..."""
FURTHEST_S = 3.0
"""...and two words this far apart in time are not the same one."""
A_SECOND = 0.5
"""What a second between two words takes from their score."""
LAGS = 3
"""Of so many seconds by which one window's times may be late, the likeliest are tried..."""
LAG_STEP_S = 0.5
"""...each a step of this from the next..."""
A_LATE_SECOND = 0.25
"""...and what each second of it takes from an alignment's score."""
UNPAIRED = 0.3
"""What a word without partner takes from the score of those around it..."""
UNPAIRED_EDGE = 0.15
"""...and less where the overlap begins for the second window, or ends for the first: what is there
may be made up..."""
MADE_UP = 6
"""...and of so many words at most, for Whisper also makes up whole sentences."""
UNLIKE = -0.5
"""The score of two words that have nothing in common but their place."""
EVIDENCE = 0.6
"""An alignment scoring less is taken for chance: less than one word twice in the same second."""
SEVERAL = 4
"""Words of each window in their overlap, none alike, that are too many for a guess at its edge."""
A_WORD_S = 1.0
"""So far from the middle goes the seam to keep a word that only one window has."""


@dataclass(frozen=True)
class _Said:
    """A word of a window near an overlap."""

    utterance: int
    word: Word
    at_s: float
    """From the start of the overlap, seconds; negative before it."""


def stitch(
    before: Sequence[Utterance],
    window_before: Window,
    after: Sequence[Utterance],
    window_after: Window,
) -> tuple[list[Utterance], list[Utterance]]:
    """What is left of two windows' utterances when each word of their overlap is kept once.

    `window_after` begins with the last `overlap_s` seconds of `window_before`. Times count from the
    start of each utterance's own window, as they came. Utterances keep their order; one that is cut
    ends, or begins, at the seam; one of which nothing is left is dropped.
    """
    overlap_s = window_after.overlap_s
    starts_s = window_before.length_s - overlap_s
    first = [said for said in _spoken(before, window_before, starts_s) if said.at_s >= -BESIDE_S]
    second = _spoken(after, window_after, 0.0)
    heard_too = [said for said in second if said.at_s <= overlap_s + BESIDE_S]
    pairs = _aligned(first, heard_too)
    if pairs:
        last, next_ = _seam(pairs, first, heard_too, overlap_s / 2)
        closing = _closing(after, second[next_ - 1])
    else:
        last, next_ = _by_time(first, heard_too, overlap_s)
        closing = _closing(before, first[last]) if first else ""
    seam_s = _between(first[last : last + 1], second[next_ : next_ + 1], overlap_s)
    return (
        _until(before, first, last, closing, starts_s + seam_s),
        _from(after, second, next_, seam_s),
    )


def _spoken(utterances: Sequence[Utterance], window: Window, zero_s: float) -> list[_Said]:
    return [
        _Said(number, word, moment_s(said, window.pieces, (word.start + word.end) // 2) - zero_s)
        for number, said in enumerate(utterances)
        for word in words(said.text)
    ]


def _aligned(first: Sequence[_Said], second: Sequence[_Said]) -> list[tuple[int, int]]:
    """Pairs of words that are the same one, in order; empty when they may be so by chance."""
    alike = [[_alike(one.word.folded, other.word.folded) for other in second] for one in first]
    tried = [_aligned_at(lag_s, first, second, alike) for lag_s in _lags_s(first, second)]
    score, pairs = max(tried, key=lambda found: found[0])
    return pairs if score >= EVIDENCE else []


def _lags_s(first: Sequence[_Said], second: Sequence[_Said]) -> list[float]:
    """By how much the second window's times may be later: most likely, and if that is not true.

    Told by words that each has once: one that comes again may have its partner elsewhere.
    """
    ones = Counter(said.word.folded for said in first)
    others = Counter(said.word.folded for said in second)
    lags_s = [
        other.at_s - one.at_s
        for one in first
        for other in second
        if one.word.folded == other.word.folded
        and ones[one.word.folded] == others[one.word.folded] == 1
    ]
    near = [lag_s for lag_s in lags_s if abs(lag_s) <= FURTHEST_S]
    votes = Counter(round(lag_s / LAG_STEP_S) for lag_s in lags_s)
    likely = sorted(votes, key=lambda step: (-votes[step], abs(step), step))[:LAGS]
    return [median(near) if len(near) > 1 else 0.0, *(step * LAG_STEP_S for step in likely)]


def _aligned_at(
    lag_s: float,
    first: Sequence[_Said],
    second: Sequence[_Said],
    alike: Sequence[Sequence[float]],
) -> tuple[float, list[tuple[int, int]]]:
    """The best alignment, were the second window's times later by so much: its score, its pairs."""

    def likeness(i: int, j: int) -> float:
        apart_s = abs(second[j].at_s - first[i].at_s - lag_s)
        return -FURTHEST_S if apart_s > FURTHEST_S else alike[i][j] - A_SECOND * apart_s

    scores = [[_edge(j) for j in range(len(second) + 1)] for _ in range(len(first) + 1)]
    steps = [[(0, 0)] * (len(second) + 1) for _ in range(len(first) + 1)]
    best, end = 0.0, (0, 0)
    for i in range(1, len(first) + 1):
        for j in range(1, len(second) + 1):
            scores[i][j], steps[i][j] = max(
                (scores[i][j], (0, 0)),
                (scores[i - 1][j] - UNPAIRED, (1, 0)),
                (scores[i][j - 1] - UNPAIRED, (0, 1)),
                (scores[i - 1][j - 1] + likeness(i - 1, j - 1), (1, 1)),
            )
            score = scores[i][j] + _edge(len(first) - i)
            if score >= best:
                best, end = score, (i, j)
    pairs: list[tuple[int, int]] = []
    i, j = end
    while steps[i][j] != (0, 0):
        if steps[i][j] == (1, 1) and likeness(i - 1, j - 1) > 0:
            pairs.append((i - 1, j - 1))
        i, j = i - steps[i][j][0], j - steps[i][j][1]
    return best - A_LATE_SECOND * abs(lag_s), pairs[::-1]


def _edge(unpaired: int) -> float:
    """What so many words without partner at an inner edge add to a score."""
    return -UNPAIRED_EDGE * min(unpaired, MADE_UP)


def _alike(one: str, other: str) -> float:
    """From 1, the same word, down to `UNLIKE`."""
    if one == other:
        return 1.0
    ratio = SequenceMatcher(None, one, other, autojunk=False).ratio()
    return max(UNLIKE, 2 * ratio - 1.2)


def _seam(
    pairs: Sequence[tuple[int, int]],
    first: Sequence[_Said],
    second: Sequence[_Said],
    middle_s: float,
) -> tuple[int, int]:
    """The last word taken from the first window, and the next one, from the second.

    Of the pairs that are the same word to the letter, the one nearest to the middle, and on that
    side of words which only one window has on which they stay; a number is not cut where another
    pair can be had.
    """

    def cost(pair: tuple[int, int]) -> tuple[bool, bool, float, int]:
        one, other = first[pair[0]], second[pair[1]]
        differs = one.word.folded != other.word.folded
        inside = _goes_on(first, pair[0]) or _goes_on(second, pair[1])
        away_s = abs((one.at_s + other.at_s) / 2 - middle_s)
        return differs, inside, away_s + A_WORD_S * _lost(pairs, pair), pair[0]

    i, j = min(pairs, key=cost)
    return i, j + 1


def _lost(pairs: Sequence[tuple[int, int]], seam: tuple[int, int]) -> int:
    """Words between two pairs that a seam would leave out, less one: "I am" may stand as "I'm"."""
    lost = 0
    for before, after in itertools.pairwise(pairs):
        more = (after[0] - before[0]) - (after[1] - before[1])  # words of the first window
        lost += max(0, (more if before >= seam else -more) - 1)
    return lost


def _goes_on(said: Sequence[_Said], number: int) -> bool:
    """Whether the next digit belongs to the same number."""
    if number + 1 >= len(said):
        return False
    word, after = said[number], said[number + 1]
    return (
        word.utterance == after.utterance
        and word.word.end == after.word.start
        and word.word.folded.isdecimal()
        and after.word.folded.isdecimal()
    )


def _by_time(first: Sequence[_Said], second: Sequence[_Said], overlap_s: float) -> tuple[int, int]:
    """The same without a pair: over in the middle, or where one window has no words any more.

    Whisper may stop some seconds before a window's end, in the middle of a sentence; what it left
    out there the other window has. Times do not tell of it where it goes on to say that it heard
    all: several words of each and no two alike do.
    """
    if not first or not second:
        return len(first) - 1, 0
    ends_s, begins_s = first[-1].at_s, second[0].at_s
    inside = [sum(0.0 <= s.at_s <= overlap_s for s in said) for said in (first, second)]
    if ends_s < begins_s or min(inside) >= SEVERAL:
        return len(first) - 1, 0
    seam_s = min(max(overlap_s / 2, begins_s), ends_s)
    last = max((n for n, said in enumerate(first) if said.at_s <= seam_s), default=-1)
    next_ = min((n for n, said in enumerate(second) if said.at_s > seam_s), default=len(second))
    return last, next_


def _between(last: Sequence[_Said], next_: Sequence[_Said], overlap_s: float) -> float:
    """When one window hands over to the other, seconds from the overlap's start."""
    times = [said.at_s for said in (*last, *next_)]
    return min(max(sum(times) / len(times), 0.0), overlap_s) if times else overlap_s / 2


def _until(
    utterances: Sequence[Utterance],
    said: Sequence[_Said],
    last: int,
    closing: str,
    seam_s: float,
) -> list[Utterance]:
    """The utterances up to a word of theirs, and `closing` after it where one is cut there."""
    if last + 1 >= len(said):
        return list(utterances)
    gone = said[last + 1]
    whole, cut = list(utterances[: gone.utterance]), utterances[gone.utterance]
    if last >= 0 and said[last].utterance == gone.utterance:
        text = cut.text[: said[last].word.end] + closing
    else:
        text = cut.text[: gone.word.start].strip()
    if not words(text):
        return whole
    return [*whole, replace(cut, text=text, end_s=min(max(seam_s, cut.start_s), cut.end_s))]


def _from(
    utterances: Sequence[Utterance], said: Sequence[_Said], next_: int, seam_s: float
) -> list[Utterance]:
    """The utterances from a word of theirs on; one that is cut there begins at the seam."""
    if next_ >= len(said):
        return [] if said else list(utterances)
    number, word = said[next_].utterance, said[next_].word
    if next_ == 0 or said[next_ - 1].utterance != number:
        return list(utterances[number:])
    cut = utterances[number]
    opening = cut.text[said[next_ - 1].word.end : word.start].rpartition(" ")
    text = (opening[2] if opening[1] else "") + cut.text[word.start :]
    begun = replace(cut, text=text, start_s=min(max(seam_s, cut.start_s), cut.end_s))
    return [begun, *utterances[number + 1 :]]


def _closing(utterances: Sequence[Utterance], said: _Said) -> str:
    """The punctuation right behind a word: its full stop, its comma."""
    text, at = utterances[said.utterance].text, said.word.end
    while at < len(text) and unicodedata.category(text[at]) in ("Po", "Pe", "Pf"):
        at += 1
    return text[said.word.end : at]
