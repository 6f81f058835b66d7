"""Which language is spoken on each channel of a call, by what a model thinks of one window each.

One side may speak German and the other English; a side that says little is no ground for a guess,
and a model that is not sure makes one of anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline.recording import Plan, Window

ENOUGH_S = 3.0
"""Speech on a channel below which its language is not asked for: a few words sound like any."""

UNDETERMINED = "und"
"""ISO 639's word for the language of a recording in which nobody speaks."""

SURE = 0.5
"""Probability below which a channel takes the call's language instead of its own."""


def windows_to_ask(plan: Plan) -> dict[int, Window]:
    """By channel, the window with most speech, of equals the first: the one to hear a language out
    of. Channels with less than `ENOUGH_S` of speech are left out, but never the one with most.
    """
    said_s = speech_by_channel(plan)
    heard = sorted({window.channel for window in plan.windows})
    fullest = max(heard, key=said_s.__getitem__, default=None)
    asked: dict[int, Window] = {}
    for window in plan.windows:
        channel = window.channel
        if said_s[channel] < ENOUGH_S and channel != fullest:
            continue
        if channel not in asked or window.speech_s > asked[channel].speech_s:
            asked[channel] = window
    return asked


def speech_by_channel(plan: Plan) -> list[float]:
    """Seconds of speech on each channel of the plan, each second once."""
    said_s = [0.0] * len(plan.channels)
    for window in plan.windows:
        said_s[window.channel] += max(0.0, window.speech_s - window.overlap_s)
    return said_s


def languages_of(
    thought: Mapping[int, tuple[str, float]], speech_s: Sequence[float]
) -> tuple[str, list[str]]:
    """(the call's language, that of each channel).

    `thought`: by channel (at least one) the language heard out and its probability, 0..1;
    `speech_s`: seconds of speech on every channel. The call's language is the one of most speech
    on channels where the model is sure. Where it is sure of none, speech counts as much as the
    probability says. Of equals the one that stands on the earlier channel.

    >>> languages_of({0: ("de", 0.98), 1: ("en", 0.9)}, [100.0, 20.0])
    ('de', ['de', 'en'])
    >>> languages_of({0: ("de", 0.98), 1: ("cy", 0.3)}, [20.0, 100.0])
    ('de', ['de', 'de'])
    """
    sure = {n: language for n, (language, share) in thought.items() if share >= SURE}
    votes: dict[str, float] = {}
    for channel, (language, share) in sorted(thought.items()):
        if channel in sure or not sure:
            weight = 1.0 if sure else share
            votes[language] = votes.get(language, 0.0) + weight * speech_s[channel]
    main = max(votes, key=votes.__getitem__)
    return main, [sure.get(channel, main) for channel in range(len(speech_s))]
