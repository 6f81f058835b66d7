"""The words for sound: what a recording is, where speech lies in it, what was said.

Values only. Times are seconds as float, counted from the start of the recording ("true time")
unless a field says otherwise. Sample counts are at `SAMPLE_RATE_HZ`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

SAMPLE_RATE_HZ = 16_000
"""Whisper's sample rate. Packed speech is mono, signed 16 bit, at this rate."""

SAMPLE_BYTES = 2
"""A sample of packed speech, bytes."""

WINDOW_LIMIT_S = 30.0
"""Whisper always encodes 30 s; a longer window would be cut off by the engine."""


def known_fields(kind: type[Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    """Of what is kept of a value, the fields this release knows: a newer one may have kept more,
    and while both run side by side each reads what the other wrote.

    >>> known_fields(Span, {"start_s": 0.0, "end_s": 1.0, "since_next_release": True})
    {'start_s': 0.0, 'end_s': 1.0}
    """
    return {name: value for name, value in raw.items() if name in kind.__dataclass_fields__}


DurationSource = Literal["header", "scan", "decode", "declared"]
"""Who said how long a recording is: its header (proved by other bytes), a walk over its packets,
a full decode, or the caller (headerless telephony only)."""


@dataclass(frozen=True)
class Probe:
    """What a recording is and how long it lasts, before it is decoded.

    Never a bare number: a length is worth what its source is worth.
    """

    duration_s: float
    source: DurationSource
    exact: bool
    """True only when every sample was counted."""
    container: str
    codec: str
    sample_rate_hz: int
    channels: int
    reason: str = ""
    """Why a cheaper source was not believed; empty when the first one was."""
    claimed_s: float | None = None
    """What the header claims, seconds, when that is over a tenth more than was found: the rest was
    cut off. Else None."""

    @property
    def cut_off(self) -> str | None:
        """That sound is missing, in words a person understands; None when none is.

        >>> Probe(8.8, "scan", False, "mov", "aac", 16_000, 1, "", claimed_s=18.285).cut_off
        'the header claims 18.3 s, 8.8 s are there'
        """
        if self.claimed_s is None:
            return None
        return f"the header claims {self.claimed_s:.1f} s, {self.duration_s:.1f} s are there"


@dataclass(frozen=True)
class Span:
    """A stretch of speech on one channel, in true time."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Seconds of speech."""
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Piece:
    """A part of a window and the true time it was taken from."""

    at_s: float
    """Where the piece begins inside its window."""
    start_s: float
    """Where it begins in the recording."""
    length_s: float


@dataclass(frozen=True)
class Window:
    """At most 30 s of packed speech of one channel: the unit of the engine's work."""

    index: int
    """Position in the plan, from 0; (plan hash, index) names a window for good."""
    channel: int
    first_sample: int
    """Where its samples begin in the packed artefact."""
    sample_count: int
    pieces: tuple[Piece, ...]
    overlap_s: float = 0.0
    """Seconds at its start that the window before it on its channel holds too: the cut fell where
    nobody pauses, so both hear the words at it and the text is stitched."""

    @property
    def length_s(self) -> float:
        """Seconds the engine will hear, gaps between pieces included."""
        return self.sample_count / SAMPLE_RATE_HZ

    @property
    def speech_s(self) -> float:
        """Seconds of speech in it: its pieces, without the gaps between them."""
        return sum(piece.length_s for piece in self.pieces)

    def true_time_s(self, at_s: float) -> float:
        """Map a time inside the window (seconds) to the recording's own time (seconds).

        A time in the gap after a piece belongs to that piece's end.

        >>> w = Window(0, 0, 0, 64_000, (Piece(0.0, 10.0, 1.0), Piece(1.3, 50.0, 2.7)))
        >>> w.true_time_s(0.5), w.true_time_s(1.2), w.true_time_s(2.3)
        (10.5, 11.0, 51.0)
        """
        piece = self.pieces[0]
        for candidate in self.pieces:
            if candidate.at_s > at_s:
                break
            piece = candidate
        return piece.start_s + min(max(at_s - piece.at_s, 0.0), piece.length_s)


@dataclass(frozen=True)
class Plan:
    """What survey found: the exact length, the channels worth hearing, the windows."""

    duration_s: float
    """Length as it plays: what was decoded, and the silence its timestamps leave; exact."""
    speech_s: float
    """Speech over all channels kept, each second once; what the engine will be asked to hear."""
    channels: tuple[str, ...]
    """A label for each channel kept, by channel number: "mono", "left", "right", "channel 3"."""
    channel_reason: str
    """Why these channels, in words a person understands."""
    windows: tuple[Window, ...]
    silence_filled_s: float = 0.0
    """Of `duration_s`, silence put in where packets are missing or the sound starts late."""

    @property
    def plan_hash(self) -> str:
        """Names this plan: saved windows of another plan are not ours to merge."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:16]

    def shared_s(self, window: Window) -> float:
        """Seconds at the end of a window of this plan that the next one of its channel has too."""
        later = (w for w in self.windows[window.index + 1 :] if w.channel == window.channel)
        return next((w.overlap_s for w in later), 0.0)

    def to_json(self) -> dict[str, Any]:
        """The plan as plain JSON values; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Plan:
        """Read what `to_json` wrote, here or in another release."""
        windows = tuple(
            Window(
                **{
                    **known_fields(Window, w),
                    "pieces": tuple(Piece(**known_fields(Piece, p)) for p in w["pieces"]),
                }
            )
            for w in raw["windows"]
        )
        plan = known_fields(cls, raw)
        return cls(**{**plan, "channels": tuple(raw["channels"]), "windows": windows})


@dataclass(frozen=True)
class SurveyReport:
    """What a survey learned: the plan, and how sound the recording was."""

    plan: Plan
    packets: int
    damaged_packets: int
    """Packets that could not be decoded: when there are any, words may be missing."""
    container: str
    codec: str
    channels: int
    """Channels in the recording, kept or not."""
    gaps: int = 0
    """Places at which silence was put in (see `Plan.silence_filled_s`)."""
    longest_gap: Span | None = None
    """The longest of them."""


@dataclass(frozen=True)
class Segment:
    """Words said on one channel between two moments of true time."""

    start_s: float
    end_s: float
    channel: int
    speaker: str | None
    text: str
    confidence: float | None
    """Mean probability of a token, 0..1; None when the engine does not tell."""
    doubt: str | None = None
    """Why these words may not have been said, in words a person understands; None: no doubt."""


@dataclass(frozen=True)
class Channel:
    """A channel that was heard."""

    label: str
    """As in `Plan.channels`."""
    speaker: str | None
    """Whose side it is; None where the words of several people are on it."""
    language: str
    """Code of the language heard on it."""


@dataclass(frozen=True)
class Lengths:
    """One recording measured three ways, seconds: where they part, sound or words are missing."""

    probed_s: float | None
    """Before it was decoded; None when nobody noted it."""
    decoded_s: float
    """As it plays; exact."""
    speech_s: float
    """Speech found, over all channels heard."""
    transcribed_s: float
    """Speech the engine heard to its end and wrote words for that nobody doubts."""


@dataclass(frozen=True)
class Transcript:
    """Everything said in a recording, in order of time, and where it came from."""

    job_id: str
    text: str
    language: str
    duration_s: float
    segments: tuple[Segment, ...]
    no_speech: bool = False
    channels: tuple[Channel, ...] = ()
    """By channel number, as segments name them."""
    channel_reason: str = ""
    """Why these channels, in words a person understands."""
    speakers_separated: bool = False
    """Whether segments tell one side from the other. Never on one channel: the words of two people
    on it are in order of time, and who said which is not told."""
    lengths: Lengths | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    """model, weights_hash, engine, dtype, plan_hash, options."""

    def to_json(self) -> dict[str, Any]:
        """The transcript as its public JSON document."""
        return asdict(self)
