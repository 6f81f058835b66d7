"""Where sound is missing: a container's times of its frames come in, silence to put in goes out.

A decoder joins what it can decode. Where packets are missing (a lost fragment, a sender that sends
nothing while nobody speaks, a damaged packet) everything after them would come too early, and every
word would have a wrong time. A player waits there instead, and so do we.

A container's times are a hint by a stranger: they can only add silence, each stretch at most
`LONGEST_GAP_S`, and all of it counts against the longest recording.
"""

from __future__ import annotations

CLOCKED = frozenset({"mov", "matroska", "ogg", "asf", "flac"})
"""Containers that store times. FFmpeg reckons those of all others from sizes and durations: such a
time says nothing of what is missing (of an ADTS file whose rate changes, 4.7 of 15.1 s)."""

TOLERANCE_S = 0.1
"""A shorter lag is no gap. Of 227 recordings without one the worst lags 0.02 s: times in ms, blocks
of Vorbis, a pause of the encoder."""

DAMAGED_TOLERANCE_S = 0.005
"""... unless packets before the frame were damaged: then it is they that are missing."""

LATE_START_S = 0.5
"""A start less late than this is an encoder's priming (2,048 samples at 8 kHz are 0.26 s)."""

RESTART_S = 1.0
"""A clock that runs back this far was set anew: a chain of recordings in one file."""

LONGEST_GAP_S = 3_600.0
"""A longer jump is a clock set anew (a live stream, a wrapped counter, a lie), and no pause in a
call: nothing is filled in."""


class Clock:
    """Follows one stream's times.

    `origin_s` is the time at which the recording begins; None where only its first frame says so.
    """

    def __init__(self, origin_s: float | None = None) -> None:
        self._origin_s = origin_s

    def begin(self, at_s: float | None) -> None:
        """A packet before the first frame could not be read: its time is where sound began."""
        if self._origin_s is None:
            self._origin_s = at_s

    def missing_s(self, at_s: float, so_far_s: float, damaged: bool = False) -> float:
        """Seconds of silence that belong before a frame; 0 in a sound recording.

        `at_s` is the frame's time, `so_far_s` the length of everything before it, silence
        included, `damaged` whether packets just before it gave no sound.

        >>> clock = Clock()
        >>> clock.missing_s(3600.0, 0.0), clock.missing_s(3600.02, 0.02)
        (0.0, 0.0)
        >>> clock.missing_s(3605.0, 0.04)
        4.96
        """
        if self._origin_s is None:
            self._origin_s = at_s
        lag_s = at_s - self._origin_s - so_far_s
        if not -RESTART_S <= lag_s <= LONGEST_GAP_S:
            self._origin_s = at_s - so_far_s
            return 0.0
        at_start = LATE_START_S if not so_far_s else TOLERANCE_S
        tolerance_s = DAMAGED_TOLERANCE_S if damaged else at_start
        return round(lag_s, 6) if lag_s > tolerance_s else 0.0
