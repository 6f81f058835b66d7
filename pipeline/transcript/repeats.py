"""Words said over and over: how often, and cut to as often as people say them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pipeline.engine import Utterance
from pipeline.transcript.letters import bare

RUN_LIMIT = 8
"""Times in a row a word or phrase is believed. "No" five times and an account number with six zeros
are said by people; what a stuck decoder says it says to the end of its room."""

LONGEST_PHRASE = 40
"""Words of the longest phrase looked for."""

_SIGNS = re.compile(rf"([^\W_].{{0,19}}?)\1{{{RUN_LIMIT},}}", re.DOTALL)
"""The same without blanks between, for scripts that write none and for "hahaha"."""


def longest_run(text: str) -> int:
    """How often the most repeated word or phrase of a text stands in a row.

    >>> longest_run("no, no, no, I said no"), longest_run("ああああああああああ")
    (3, 10)
    """
    words = [bare(word) for word in text.split()]
    in_words = max((count for *_, count in _runs(words, 2)), default=1 if words else 0)
    in_signs = [len(m.group(0)) // len(m.group(1)) for m in _SIGNS.finditer(text)]
    return max([in_words, *in_signs])


def cut_repeats(utterances: Sequence[Utterance]) -> tuple[Utterance, ...]:
    """The utterances with every run cut to `RUN_LIMIT` times, also one that spans several.

    Utterances left without words are left out.
    """
    shorter = [replace(u, text=_SIGNS.sub(_cut_signs, u.text)) for u in utterances]
    words = [(n, word) for n, u in enumerate(shorter) for word in u.text.split()]
    dropped: set[int] = set()
    for first, size, count in _runs([bare(word) for _, word in words], RUN_LIMIT + 1):
        dropped.update(range(first + size * RUN_LIMIT, first + size * count))
    kept = [pair for at, pair in enumerate(words) if at not in dropped]
    texts = [" ".join(word for of, word in kept if of == n) for n in range(len(shorter))]
    return tuple(replace(u, text=t) for u, t in zip(shorter, texts, strict=True) if t)


def _cut_signs(run: re.Match[str]) -> str:
    return run.group(1) * RUN_LIMIT


def _runs(words: Sequence[str], at_least: int) -> list[tuple[int, int, int]]:
    """Runs of a phrase that stands at least so often in a row: first word, words a phrase, times.

    Runs do not overlap; where several phrases begin a run the one with more words in all wins, of
    these the shortest phrase.
    """
    found: list[tuple[int, int, int]] = []
    at = 0
    while at < len(words):
        best = (0, 0)
        for size in range(1, min(LONGEST_PHRASE, (len(words) - at) // at_least) + 1):
            count = 1
            phrase = words[at : at + size]
            while words[at + size * count : at + size * (count + 1)] == phrase:
                count += 1
            if count >= at_least and count * size > best[0] * best[1]:
                best = (size, count)
        if best[0]:
            found.append((at, *best))
        at += max(1, best[0] * best[1])
    return found
