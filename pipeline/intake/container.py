"""What is this recording, and how long is it? A file comes in, a `Probe` or a refusal goes out.

Three sources, cheapest first; each is believed only when something independent supports it:

    header   stream header, proved by other bytes of the file (`headers`)
    scan     every packet's duration, without decoding
    decode   every sample counted; exact

A length that nothing supports is never returned: it is found by the next source or refused.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from av.audio.stream import AudioStream
from av.error import FFmpegError
from av.packet import Packet

from pipeline.errors import NoSamples, TooLong
from pipeline.intake.claims import claimed_s
from pipeline.intake.decode import count
from pipeline.intake.gaps import LONGEST_GAP_S
from pipeline.intake.headers import Header, Unproven, read_header
from pipeline.intake.opening import NamelessFile, Source, look, open_audio
from pipeline.intake.raw import RawForm
from pipeline.recording import DurationSource, Probe

_TRIED_PACKETS = 8
"""How many packets are decoded to see that a stream decodes at all."""


def probe(file: NamelessFile, file_name: str, max_duration_s: float, raw_format: str = "") -> Probe:
    """Measure a recording.

    `raw_format`, or else the extension of `file_name`, declares headerless telephony. Raises
    EmptyRecording, NotAudio, NoAudioStream, NoSamples, DamagedAudio, UnsupportedAudio, or TooLong
    beyond `max_duration_s`.
    """
    found = _measure(file, file_name, max_duration_s, raw_format)
    if found.duration_s > max_duration_s:
        raise TooLong(f"The recording lasts {found.duration_s:.0f} s, over {max_duration_s:g} s.")
    return found


def _measure(file: NamelessFile, file_name: str, max_duration_s: float, raw_format: str) -> Probe:
    kind, raw = look(file, file_name, raw_format)
    if raw is not None:
        return _as_declared(file, raw)
    try:
        return _from_header(file, kind)
    except Unproven as doubt:
        reason = str(doubt)
    plays_s = 0.0
    try:
        found, header_s = _from_scan(file, max_duration_s, reason)
    except Unproven as doubt:
        found, header_s = _from_decode(file, max_duration_s, f"{reason}; {doubt}")
        # packets missing in the middle are silence to the survey, and cut nothing off
        if isinstance(doubt, _Apart) and doubt.span_s <= found.duration_s + LONGEST_GAP_S:
            plays_s = doubt.span_s
    there_s = max(found.duration_s, plays_s)
    return replace(found, claimed_s=claimed_s(file, kind, there_s, header_s))


def _as_declared(file: NamelessFile, raw: RawForm) -> Probe:
    """As long as its bytes last: every format here has a fixed rate."""
    duration_s = raw.whole_bytes(file.size) / raw.bytes_per_s
    if not duration_s:
        raise NoSamples
    return Probe(duration_s, "declared", False, "raw", raw.codec, raw.sample_rate_hz, 1)


def _from_header(file: NamelessFile, kind: str | None) -> Probe:
    header: Header = read_header(file, kind)
    rate_hz, channels = header.sample_rate_hz, header.channels
    if kind == "mp4":
        with open_audio(file) as source:
            if trouble := _trouble(source, list(islice(source.packets, _TRIED_PACKETS))):
                raise Unproven(trouble)
            # the table of an MP4 says 2 channels also of mono sound; the decoder knows
            rate_hz, channels = source.decoder.sample_rate, source.decoder.channels
    return Probe(
        header.duration_s, "header", False, header.container, header.codec, rate_hz, channels
    )


def _trouble(source: Source, packets: list[Packet[AudioStream]]) -> str | None:
    """Why these first packets prove nothing: a packet that does not decode has no length to add."""
    heard = False
    for number, packet in enumerate(packets, 1):
        try:
            heard = bool(source.decode(packet)) or heard
        except FFmpegError as error:
            if isinstance(error, MemoryError):
                raise
            return f"packet {number} does not decode"
    return None if heard else "the first packets do not decode"


def _from_scan(
    file: NamelessFile, max_duration_s: float, reason: str
) -> tuple[Probe, float | None]:
    """The length by packets, and by the container's own header."""
    with open_audio(file) as source:
        walk = _Walk(source)
        first: list[Packet[AudioStream]] = []
        try:
            for packet in source.packets:
                walk.add(packet)
                if len(first) < _TRIED_PACKETS:
                    first.append(packet)
                if walk.sum_s > max_duration_s:
                    raise TooLong(f"The recording is longer than {max_duration_s:g} s.")
        except FFmpegError as error:
            if isinstance(error, MemoryError):
                raise
        if not walk.packets:
            raise NoSamples
        if trouble := _trouble(source, first):
            raise Unproven(trouble)
        return _described(source, walk.agreed_s(), "scan", reason)


class _Apart(Unproven):
    """Packets last `sum_s` together, and `span_s` from the first to the last."""

    def __init__(self, sum_s: float, span_s: float) -> None:
        super().__init__(f"packets sum to {sum_s:.1f} s but span {span_s:.1f} s")
        self.span_s = span_s


class _Walk:
    """Two lengths from one walk over the packets: the sum of durations, and the span of times.

    The sum is right when a stream was cut together, the span when packets are missing; only where
    they agree is either believed.
    """

    def __init__(self, source: Source) -> None:
        self._time_base_s = source.time_base_s
        self._adts = source.container == "aac"
        self._first: int | None = None
        self._last = 0
        self._sum = 0
        self._unknown = 0
        self._rates: set[int] = set()
        self.packets = 0

    @property
    def sum_s(self) -> float:
        """Durations summed, in seconds."""
        return self._sum * self._time_base_s

    def add(self, packet: Packet[AudioStream]) -> None:
        if not packet.size:
            return
        self.packets += 1
        ticks = packet.duration or 0
        self._sum += ticks
        self._unknown += ticks == 0
        at = packet.pts if packet.pts is not None else packet.dts
        if at is not None:
            self._first = at if self._first is None else min(self._first, at)
            self._last = max(self._last, at + ticks)
        if self._adts and packet.size > 2:
            # An ADTS frame names its own rate; FFmpeg times all of them by the first one's.
            self._rates.add(memoryview(packet)[2] >> 2 & 15)

    def agreed_s(self) -> float:
        """The length in seconds; raises Unproven when the two disagree by 10 % and 1 s."""
        span_s = 0.0 if self._first is None else (self._last - self._first) * self._time_base_s
        # A few packets without a length may pass, unless there are no others.
        if self._unknown > 0.1 * self.packets + 2 or max(self.sum_s, span_s) <= 0:
            raise Unproven("packets do not say how long they are")
        if len(self._rates) > 1:
            raise Unproven("the sample rate changes")
        if abs(span_s - self.sum_s) > max(0.1 * self.sum_s, 1.0):
            raise _Apart(self.sum_s, span_s)
        return max(self.sum_s, span_s)


def _from_decode(
    file: NamelessFile, max_duration_s: float, reason: str
) -> tuple[Probe, float | None]:
    """The length by samples, and by the container's own header."""
    with open_audio(file) as source:
        tally = count(source, max_duration_s)
        return _described(source, tally.duration_s, "decode", reason)


def _described(
    source: Source, duration_s: float, by: DurationSource, reason: str
) -> tuple[Probe, float | None]:
    decoder = source.decoder
    found = Probe(
        duration_s, by, by == "decode", source.container, source.codec,
        decoder.sample_rate or 0, decoder.channels or 0, reason,
    )  # fmt: skip
    return found, source.header_s
