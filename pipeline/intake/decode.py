"""Decode a recording: packets come in, 16 kHz signed 16 bit samples of each channel go out.

Promises: a damaged packet costs that packet and no more; where the container's times leave a gap
there is silence, so that what comes after has a player's times; channels are never mixed; no more
than `max_duration_s` is ever decoded, silence included; memory grows by 2 bytes a sample and
channel, whatever the codec, and no further than `MOST_TRACK_S` allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler
from av.audio.stream import AudioStream
from av.error import EOFError as EndOfFile
from av.error import FFmpegError
from av.packet import Packet
from numpy.typing import NDArray

from pipeline.errors import DamagedAudio, NoSamples, TooLong
from pipeline.intake.gaps import Clock
from pipeline.intake.opening import NamelessFile, Source, open_audio, plausible
from pipeline.recording import SAMPLE_RATE_HZ, Span

Pcm = NDArray[np.int16]
"""Samples of one channel at `SAMPLE_RATE_HZ`. Integers, so never NaN or Inf."""

MOST_TRACK_S = 2 * 12 * 3_600.0
"""Seconds of all channels together: two channels of 12 h, 2.8 GB; eight may last 3 h. More would be
refused by the sandbox's memory limit, without a reason a person understands."""


@dataclass
class Tally:
    """What a decode has met so far."""

    packets: int = 0
    damaged: int = 0
    """Packets that gave an error; their sound is missing."""
    samples: Counter[int] = field(default_factory=Counter)
    """Samples of a channel by sample rate: whole numbers, and right even when the rate changes."""
    sample_rate_hz: int = 0
    channels: int = 0
    """Rate and channels of the first frame."""
    gaps: list[Span] = field(default_factory=list)
    """Silence put in where the container's times leave a gap, in order, in true time."""

    @property
    def duration_s(self) -> float:
        """How long the decoded sound is."""
        return sum(count / rate for rate, count in self.samples.items())

    @property
    def silence_filled_s(self) -> float:
        """How much silence was put in."""
        return sum(gap.length_s for gap in self.gaps)

    @property
    def plays_s(self) -> float:
        """How long it plays: the decoded sound and the silence put in."""
        return self.duration_s + self.silence_filled_s


@dataclass(frozen=True)
class Decoded:
    """A recording as sound."""

    channels: tuple[Pcm, ...]
    """All of one length."""
    tally: Tally
    container: str
    codec: str


def decode(
    file: NamelessFile, file_name: str, max_duration_s: float, raw_format: str = ""
) -> Decoded:
    """Decode the first audio stream whole.

    `raw_format`, or else `file_name`, declares headerless telephony. Raises TooLong beyond
    `max_duration_s` (seconds), NoSamples when there was nothing to decode, DamagedAudio when
    nothing could be decoded, and what `opening.open_audio` raises.
    """
    tally = Tally()
    tracks = Tracks()
    with open_audio(file, file_name, raw_format) as source:
        for frame, starts_s in frames(source, tally, max_duration_s):
            tracks.wait_until(starts_s)
            tracks.add(frame)
        channels = tracks.close(tally.channels)
        return Decoded(channels, tally, source.container, source.codec)


def count(source: Source, max_duration_s: float) -> Tally:
    """Decode without keeping the sound: how long is it? Raises as `decode` does."""
    tally = Tally()
    for _ in frames(source, tally, max_duration_s):
        pass
    return tally


def frames(
    source: Source, tally: Tally, max_duration_s: float
) -> Iterator[tuple[AudioFrame, float | None]]:
    """Every frame that can be decoded, counted in `tally`.

    With each its start in true time, seconds, where silence belongs before it, else None. Raises
    as `decode` does.
    """
    clock = Clock(source.origin_s) if source.clocked else None
    damaged = 0
    for packet in _readable(source, tally):
        tally.packets += bool(packet.size)
        try:
            decoded = source.decode(packet)
        except EndOfFile:
            continue
        except FFmpegError as error:
            _unless_out_of_memory(error)
            tally.damaged += 1
            if clock is not None and not tally.samples:
                clock.begin(_time_s(source, packet))
            continue
        for frame in decoded:
            if not plausible(frame.sample_rate, frame.layout.nb_channels):
                tally.damaged += 1
                continue
            starts_s = _gap(source, clock, frame, tally, tally.damaged > damaged)
            damaged = tally.damaged
            _count(frame, tally, max_duration_s)
            yield frame, starts_s
    if not tally.samples:
        raise DamagedAudio if tally.packets else NoSamples


def _gap(
    source: Source, clock: Clock | None, frame: AudioFrame, tally: Tally, damaged: bool
) -> float | None:
    """Note the silence before this frame; where the frame then starts, None without silence."""
    at_s = _time_s(source, frame)
    if clock is None or at_s is None:
        return None
    so_far_s = tally.plays_s
    missing_s = clock.missing_s(at_s, so_far_s, damaged)
    if not missing_s:
        return None
    tally.gaps.append(Span(so_far_s, so_far_s + missing_s))
    return so_far_s + missing_s


def _time_s(source: Source, timed: AudioFrame | Packet[AudioStream]) -> float | None:
    """What the container says of when this is heard, seconds of its clock."""
    if timed.pts is None:
        return None
    return timed.pts * float(timed.time_base or source.time_base_s)


def _readable(source: Source, tally: Tally) -> Iterator[Packet[AudioStream]]:
    """Packets until the end, or until the container breaks off (counted as one damaged packet)."""
    try:
        yield from source.packets
    except FFmpegError as error:
        _unless_out_of_memory(error)
        tally.damaged += 1


def _unless_out_of_memory(error: FFmpegError) -> None:
    if isinstance(error, MemoryError):
        raise error


def _count(frame: AudioFrame, tally: Tally, max_duration_s: float) -> None:
    tally.samples[frame.sample_rate] += frame.samples
    tally.sample_rate_hz = tally.sample_rate_hz or frame.sample_rate
    tally.channels = tally.channels or frame.layout.nb_channels
    if tally.plays_s > max_duration_s:
        raise TooLong(f"The recording is longer than {max_duration_s:g} s.")
    if tally.plays_s * tally.channels > MOST_TRACK_S:
        limit_s = MOST_TRACK_S / tally.channels
        raise TooLong(f"A recording of {tally.channels} channels may last {limit_s:.0f} s.")


class Tracks:
    """One growing run of samples a channel; the resampler is made again when the form changes."""

    def __init__(self) -> None:
        # bytearray grows in place (realloc), where joining arrays would double the peak.
        self._tracks: list[bytearray] = []
        self._form: tuple[int, str, str] | None = None
        self._resampler: AudioResampler | None = None

    def add(self, frame: AudioFrame) -> None:
        """Resample a frame and append it."""
        form = (frame.sample_rate, frame.layout.name, frame.format.name)
        if form != self._form:
            self._flush()
            self._form = form
            self._resampler = AudioResampler("s16", frame.layout, SAMPLE_RATE_HZ)
        assert self._resampler is not None
        # Timestamps from a hostile file must not steer the resampler; samples are only joined.
        frame.pts = None
        for part in self._resampler.resample(frame):
            self._append(_planes(part))

    def wait_until(self, start_s: float | None) -> None:
        """Silence on every track up to a moment of true time, seconds; nothing when None."""
        if start_s is None:
            return
        self._flush()
        self._form = None
        self._tracks = self._tracks or [bytearray()]
        missing = round(start_s * SAMPLE_RATE_HZ) - len(self._tracks[0]) // 2
        for track in self._tracks:
            track += bytes(2 * max(0, missing))

    def close(self, at_least: int) -> tuple[Pcm, ...]:
        """All samples so far, without a copy, in `at_least` tracks: one sample may give none."""
        self._flush()
        self._tracks += [bytearray() for _ in range(at_least - len(self._tracks))]
        return tuple(np.frombuffer(track, np.int16) for track in self._tracks)

    def _flush(self) -> None:
        if self._resampler is not None:
            for part in self._resampler.resample(None):
                self._append(_planes(part))
            self._resampler = None

    def _append(self, planes: Pcm) -> None:
        """Add one plane to each track. A mono stretch of a stereo file belongs to both sides."""
        before = self._tracks[0] if self._tracks else bytearray()
        was_mono = len(self._tracks) == 1
        while len(self._tracks) < len(planes):
            self._tracks.append(bytearray(before if was_mono else len(before)))
        silence = bytes(planes.shape[1] * 2)
        for number, track in enumerate(self._tracks):
            if len(planes) == 1:
                track += planes[0].tobytes()
            else:
                track += planes[number].tobytes() if number < len(planes) else silence


def _planes(part: AudioFrame) -> Pcm:
    """One row a channel. From packed samples: PyAV 18 reads beyond its array of planes at 8."""
    packed = cast(Pcm, part.to_ndarray())
    return np.ascontiguousarray(packed.reshape(-1, part.layout.nb_channels).T)
