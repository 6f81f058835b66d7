"""What heard windows are worth: how much speech became words nobody doubts, and why not all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pipeline.engine import Heard
from pipeline.recording import Plan, Window
from pipeline.transcript.doubts import END_MISSING

KINDS = 4
"""Reasons told one by one; what is rarer is summed up."""


def transcribed_s(plan: Plan, heard: Mapping[int, Heard]) -> float:
    """Seconds of speech heard to their end, with words that nobody doubts.

    What two windows share counts once, and counts when one of them is sound.
    """
    total_s = 0.0
    before: dict[int, bool] = {}
    for window in plan.windows:
        sound = _is_sound(window, heard)
        if sound:
            shared_s = window.overlap_s if before.get(window.channel) else 0.0
            total_s += max(0.0, window.speech_s - shared_s)
        before[window.channel] = sound
    # cuts fall on whole samples, so that many of them may sum up to a moment more than there is
    return round(min(total_s, plan.speech_s), 3)


def _is_sound(window: Window, heard: Mapping[int, Heard]) -> bool:
    answer = heard.get(window.index)
    return answer is not None and bool(answer.text.strip()) and doubt_of(answer) is None


def doubt_of(answer: Heard) -> str | None:
    """Why its words may not be all, or not have been said; None: no doubt."""
    return answer.doubt or (None if answer.finish == "stop" else END_MISSING)


def told_doubts(heard: Mapping[int, Heard]) -> str | None:
    """One sentence on all doubtful windows, the most frequent reason first; None without any.

    >>> sound, noise = Heard((), "en", 1, None, "stop", 0.1), Heard((), "en", 1, None, "stop", 0.1,
    ...     doubt="perhaps nobody speaks")
    >>> told_doubts({0: sound, 1: noise, 2: noise}), told_doubts({0: sound})
    ('2 of 3 windows are doubtful: perhaps nobody speaks (2)', None)
    """
    reasons = Counter(doubt for answer in heard.values() if (doubt := doubt_of(answer)))
    if not reasons:
        return None
    ordered = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    told = [f"{doubt} ({count})" for doubt, count in ordered[:KINDS]]
    if rest := sum(count for _, count in ordered[KINDS:]):
        told.append(f"other reasons ({rest})")
    number = sum(reasons.values())
    verb = "is" if number == 1 else "are"
    return f"{number} of {len(heard)} windows {verb} doubtful: {', '.join(told)}"
