"""Who speaks on which channel, as far as anybody can say: callers' labels on plans' channels."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipeline.recording import Plan

MOST = 8
"""Channels that can be named: recorders of conferences have as many."""

_NUMBERED = re.compile(r"channel (\d+)")


def speakers_of(plan: Plan, given: Sequence[str] | None = None) -> list[str | None]:
    """The speaker of each channel of the plan; None where nobody can say.

    `given`: labels of the recording's channels, in the recording's order. A channel without one is
    named as it is labelled, where there are several. On a mono channel are the words of everybody.

    >>> two = Plan(9.0, 4.0, ("left", "right"), "", ())
    >>> speakers_of(two), speakers_of(two, ["agent", "customer"])
    (['left', 'right'], ['agent', 'customer'])
    >>> speakers_of(Plan(9.0, 4.0, ("channel 1", "channel 3"), "", ()), ["a", "b", "c"])
    ['a', 'c']
    """
    several = len(plan.channels) > 1
    names: list[str | None] = []
    for label in plan.channels:
        place = channel_of(label)
        named = given[place] if given and place is not None and place < len(given) else None
        names.append(named or (label if several else None))
    return names


def channel_of(label: str) -> int | None:
    """Which channel of the recording a plan's label is, from 0; None where it stands for all."""
    if label in ("left", "right"):
        return ("left", "right").index(label)
    numbered = _NUMBERED.fullmatch(label)
    return int(numbered[1]) - 1 if numbered else None
