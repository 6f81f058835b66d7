"""Words heard against words said: how many are wrong, where, and how sure the figure is.

Both are put in Whisper's own normal form first: English in `EnglishTextNormalizer` (numbers in
digits, contractions written out, "um" left out), other languages in `BasicTextNormalizer`.
transformers ships the English one without its table of British spellings; it is empty here, so
"colour" heard for "color" counts as wrong. A rate is wrong words over words said (WER).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jiwer
import numpy as np

from bench.truths import Said

NEAR_S = 3.0
"""A word so close to a cut lies at it."""

DOUBLED_WORDS = 6
"""An added word that is also said so few words away is taken for a doubled one."""

RESAMPLES = 10_000
SEED = 17

KINDS = {"delete": "lost", "insert": "added", "substitute": "other"}


@cache
def normal_form(language: str) -> Callable[[str], str]:
    """Whisper's normaliser for a language (ISO 639-1)."""
    from transformers.models.whisper import english_normalizer as whisper

    if language == "en":
        return whisper.EnglishTextNormalizer({})
    return whisper.BasicTextNormalizer()


def words_of(text: str, language: str) -> list[str]:
    """The words of a text in normal form."""
    return normal_form(language)(text).split()


@dataclass(frozen=True)
class Word:
    """A word that was said."""

    text: str
    at_s: float | None
    """About when its middle was; None: nobody knows."""


def timed(said: Iterable[Said], language: str) -> list[Word]:
    """Words in normal form. Each lies in its part by letters: speech is taken to run evenly.

    >>> [(w.text, w.at_s) for w in timed([Said("ab abcd", None, 10.0, 16.0)], "en")]
    [('ab', 11.0), ('abcd', 14.0)]
    """
    found = []
    for part in said:
        words = words_of(part.text, language)
        letters = sum(map(len, words))
        before = 0
        for word in words:
            middle = (before + len(word) / 2) / letters
            known = part.end_s > part.start_s
            at_s = part.start_s + middle * (part.end_s - part.start_s) if known else None
            found.append(Word(word, at_s))
            before += len(word)
    return found


@dataclass(frozen=True)
class Slip:
    """One word that is wrong."""

    kind: str
    """lost (said, not heard), added (heard, not said) or other (another one heard)."""
    at: int
    """Which word said it is, or stands before; the number of words at the end."""
    said: str
    heard: str
    doubled: bool = False
    """Of an added word: it was said just before or after, and is heard twice."""


def slips(said: Sequence[str], heard: Sequence[str]) -> list[Slip]:
    """Every wrong word of the alignment with fewest of them, in order.

    >>> [(s.kind, s.at, s.said, s.heard) for s in slips("a b c".split(), "a x c d".split())]
    [('other', 1, 'b', 'x'), ('added', 3, '', 'd')]
    """
    if not said:
        return [Slip("added", 0, "", word) for word in heard]
    found: list[Slip] = []
    output = jiwer.process_words(" ".join(said), " ".join(heard))
    for chunk in output.alignments[0]:
        if chunk.type == "equal":
            continue
        kind, at = KINDS[chunk.type], chunk.ref_start_idx
        gone = said[at : chunk.ref_end_idx]
        come = heard[chunk.hyp_start_idx : chunk.hyp_end_idx]
        for n in range(max(len(gone), len(come))):
            one, other = (words[n] if n < len(words) else "" for words in (gone, come))
            place = at if kind == "added" else at + n
            near = said[max(0, place - DOUBLED_WORDS) : place + DOUBLED_WORDS]
            found.append(Slip(kind, place, one, other, kind == "added" and other in near))
    return found


@dataclass(frozen=True)
class Tally:
    """Wrong words of some recording, or of a part of it."""

    words: int = 0
    lost: int = 0
    added: int = 0
    other: int = 0
    doubled: int = 0
    """Of those added."""

    @property
    def wrong(self) -> int:
        """Words wrong."""
        return self.lost + self.added + self.other

    @property
    def rate(self) -> float:
        """Wrong over said: WER; 0 where nothing was said."""
        return self.wrong / self.words if self.words else 0.0

    def __add__(self, more: Tally) -> Tally:
        return Tally(
            self.words + more.words, self.lost + more.lost, self.added + more.added,
            self.other + more.other, self.doubled + more.doubled,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Counts, and wrong words of a hundred."""
        return {
            "words": self.words, "lost": self.lost, "added": self.added, "other": self.other,
            "doubled": self.doubled, "per_100": round(100 * self.rate, 2),
        }  # fmt: skip


def tally(words: int, wrong: Iterable[Slip]) -> Tally:
    """Count them."""
    all_of = list(wrong)
    kinds = [slip.kind for slip in all_of]
    return Tally(
        words, kinds.count("lost"), kinds.count("added"), kinds.count("other"),
        sum(slip.doubled for slip in all_of),
    )  # fmt: skip


def by_place(
    said: Sequence[Word], wrong: Sequence[Slip], cuts_s: Sequence[float]
) -> tuple[Tally, Tally]:
    """Wrong words within `NEAR_S` of a cut, and elsewhere. Words without a time are elsewhere.

    An added word is where the nearer word said stands: the one before it or the one after.
    """
    cuts = np.array(sorted(cuts_s))
    here = [w.at_s is not None and bool((abs(cuts - w.at_s) <= NEAR_S).any()) for w in said]

    def at_cut(slip: Slip) -> bool:
        around = {max(0, slip.at - 1), slip.at} if slip.kind == "added" else {slip.at}
        return any(here[n] for n in around if n < len(here))

    near = [slip for slip in wrong if at_cut(slip)]
    far = [slip for slip in wrong if not at_cut(slip)]
    return tally(sum(here), near), tally(len(said) - sum(here), far)


Interval = tuple[float, float]


def interval(ours: Sequence[Tally], theirs: Sequence[Tally] | None = None) -> Interval:
    """95 % of what a rate would be with other recordings of the kind; with `theirs` ours minus
    theirs.

    Whole recordings are drawn with return (bootstrap, percentiles of `RESAMPLES` draws, always the
    same ones), both rates from the same draw. One recording says nothing of others: its own rate
    comes back, twice.
    """
    words = np.array([t.words for t in ours], float)
    wrong = np.array([t.wrong for t in ours], float)
    if theirs is not None:
        wrong -= np.array([t.wrong for t in theirs], float)
    drawn = np.random.default_rng(SEED).integers(0, len(words), (RESAMPLES, len(words)))
    rates = wrong[drawn].sum(axis=1) / np.maximum(words[drawn].sum(axis=1), 1.0)
    low, high = np.percentile(rates, [2.5, 97.5])
    return round(float(low), 4), round(float(high), 4)


def together(rows: Iterable[tuple[str, Tally]]) -> list[Tally]:
    """Tallies of one key added up, in order of the keys' first coming: a text that was recorded in
    many formats is one thing drawn and not many.
    """
    found: dict[str, Tally] = {}
    for key, one in rows:
        found[key] = found.get(key, Tally()) + one
    return list(found.values())
