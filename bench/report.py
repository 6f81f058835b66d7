"""What came of hearing recordings of known words: the figures of text.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.ours import Answer, Surveyed
from bench.slips import (
    Slip,
    Tally,
    Word,
    by_place,
    interval,
    slips,
    tally,
    timed,
    together,
    words_of,
)
from bench.truths import Said
from pipeline.recording import WINDOW_LIMIT_S


@dataclass(frozen=True)
class Judged:
    """One recording's words as heard by one of the two."""

    said: list[Word]
    slips: list[Slip]

    @property
    def tally(self) -> Tally:
        """Its wrong words."""
        return tally(len(self.said), self.slips)


def judged(said: Sequence[Said], answer: Answer, language: str, sides: bool) -> list[Judged]:
    """Words said against words heard: each side by itself where `sides`, else in order of time."""
    if not sides:
        words = timed(said, language)
        wrong = slips([word.text for word in words], words_of(answer.text, language))
        return [Judged(words, wrong)]
    found = []
    for side in dict.fromkeys(part.side or "" for part in said):
        words = timed([part for part in said if part.side == side], language)
        heard = words_of(answer.side(side), language)
        found.append(Judged(words, slips([word.text for word in words], heard)))
    return found


def report(
    sounds: Sequence[Surveyed],
    ours: Sequence[Answer],
    theirs: Sequence[Answer] | None,
    fixed: Sequence[Answer] | None,
    *,
    timed: bool,
) -> dict[str, Any]:
    """All figures but those of the run itself. Answers are in the order of `sounds`; without
    `theirs` what would compare is null.

    `timed`: one channel, and words' times are known, so that those at cuts can be told.
    """
    unheard = [Answer()] * len(sounds)
    rows = [_Row(*of) for of in zip(sounds, ours, theirs or unheard, fixed or unheard, strict=True)]
    found = _figures(rows) | {
        "rtf": {
            who: _share(sum(answer.seconds for answer in answers), sum(r.duration_s for r in rows))
            for who, answers in (("ours", ours), ("by_hand", theirs or unheard))
        }
    }
    if fixed is not None:
        uncut = sum((row.uncut.tally for row in rows), Tally())
        found["fixed"] = {"windows": sum(a.windows for a in fixed), **uncut.to_json()}
    if timed:
        found["cuts"] = _cuts(rows)
    return found if theirs is not None else _alone(found)


def _figures(rows: Sequence[_Row]) -> dict[str, Any]:
    own, hand = [row.ours.tally for row in rows], [row.by_hand.tally for row in rows]
    texts = [row.sound.truth.text for row in rows]
    by_text = [together(zip(texts, side, strict=True)) for side in (own, hand)]
    audio_s = sum(row.duration_s for row in rows)
    windows = sum(row.our_answer.windows for row in rows)
    windows_fixed = sum(row.windows_fixed for row in rows)
    all_own, all_hand = sum(own, Tally()), sum(hand, Tally())
    return {
        "files": len(rows),
        "texts": len(set(texts)),
        "words": all_own.words,
        "wer": round(all_own.rate, 4),
        "wer_by_hand": round(all_hand.rate, 4),
        "difference": round(all_own.rate - all_hand.rate, 4),
        "windows": windows,
        "windows_fixed": windows_fixed,
        "packing": round(windows / windows_fixed, 3) if windows_fixed else None,
        "windows_by_hand": sum(row.their_answer.windows for row in rows),
        "interval": {
            "wer": interval(own),
            "wer_by_hand": interval(hand),
            "difference": interval(own, hand),
            "by_text": interval(*by_text),
        },
        "counts": {"ours": all_own.to_json(), "by_hand": all_hand.to_json()},
        "audio_s": round(audio_s, 1),
        "refused": {r.sound.truth.name: r.sound.refused for r in rows if r.sound.refused},
        "doubtful_words": sum(row.doubtful for row in rows),
        "languages": [row.languages() for row in rows if row.sound.truth.language],
        "rows": [row.to_json() for row in rows],
    }


def _alone(found: dict[str, Any]) -> dict[str, Any]:
    """The same report, null wherever it is about a comparison that was not made."""
    compared = ("by_hand", "by_hand_there", "difference", "by_text", "text_by_hand")
    compared += ("wer_by_hand", "windows_by_hand")

    def without(value: Any) -> Any:
        if isinstance(value, list):
            return [without(one) for one in value]
        if isinstance(value, dict):
            return {key: None if key in compared else without(one) for key, one in value.items()}
        return value

    return dict(without(found))


class _Row:
    """One recording in the report."""

    def __init__(self, sound: Surveyed, ours: Answer, by_hand: Answer, fixed: Answer) -> None:
        self.sound, self.our_answer, self.their_answer = sound, ours, by_hand
        first = next((one.language for one in ours.languages if one.language), "en")
        self.language = sound.truth.language or first
        self.ours, self.by_hand, self.uncut = self._of(ours), self._of(by_hand), self._of(fixed)
        self.duration_s = sound.plan.duration_s if sound.plan else 0.0

    @property
    def windows_fixed(self) -> int:
        channels = len(self.sound.plan.channels) if self.sound.plan else 0
        return math.ceil(self.duration_s / WINDOW_LIMIT_S) * channels

    @property
    def doubtful(self) -> int:
        """Words that we say may not have been said."""
        doubtful = [s.text for s in self.our_answer.segments if s.doubt]
        return sum(len(words_of(text, self.language)) for text in doubtful)

    def _of(self, answer: Answer) -> Judged:
        """Sides one after the other, where the truth tells them apart but not their order."""
        said = self.sound.truth.said
        sides = any(part.side for part in said) and not any(part.end_s for part in said)
        words: list[Word] = []
        wrong: list[Slip] = []
        for one in judged(said, answer, self.language, sides):
            moved = [Slip(s.kind, s.at + len(words), s.said, s.heard, s.doubled) for s in one.slips]
            words, wrong = words + one.said, wrong + moved
        return Judged(words, wrong)

    def languages(self) -> dict[str, Any]:
        """Which language was heard out, of the first channel with speech, against the truth."""
        told = self.sound.truth.language
        found: dict[str, Any] = {"name": self.sound.truth.name, "language": told}
        for who, answer in (("ours", self.our_answer), ("by_hand", self.their_answer)):
            first = next((one for one in answer.languages if one.language), None)
            found[who] = first and {
                "language": first.language,
                "probability": round(first.language_prob, 3),
                "right": first.language == told,
            }
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.sound.truth.name,
            "duration_s": round(self.duration_s, 3),
            "windows": self.our_answer.windows,
            "ours": self.ours.tally.to_json(),
            "by_hand": self.by_hand.tally.to_json(),
            "text": self.our_answer.text,
            "text_by_hand": self.their_answer.text,
        }


def _cuts(rows: Sequence[_Row]) -> dict[str, Any]:
    """Wrong words at cuts and elsewhere."""
    kinds = {
        "ours": [(row.ours, row.our_answer.cuts_s) for row in rows],
        "by_hand_there": [(row.by_hand, row.our_answer.cuts_s) for row in rows],
        "by_hand": [(row.by_hand, row.their_answer.cuts_s) for row in rows],
    }
    found: dict[str, Any] = {"number": sum(len(row.our_answer.cuts_s) for row in rows)}
    for kind, heard in kinds.items():
        near, far = Tally(), Tally()
        for one, cuts_s in heard:
            here, there = by_place(one.said, one.slips, cuts_s)
            near, far = near + here, far + there
        found[kind] = {"at": near.to_json(), "elsewhere": far.to_json()}
    return found


def _share(seconds: float, audio_s: float) -> float | None:
    return round(seconds / audio_s, 4) if audio_s else None
