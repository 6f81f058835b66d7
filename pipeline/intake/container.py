"""What is this recording, and how long is it? A file comes in, a `Probe` or a refusal goes out.

Three sources, cheapest first; each is believed only when something independent supports it:

    header   stream header, proved by other bytes of the file (`headers`)
    scan     every packet's duration, without decoding
    decode   every sample counted; exact

A length that nothing supports is never returned: it is found by the next source or refused.
"""

from __future__ import annotations

from itertools import islice

from av.audio.stream import AudioStream
from av.error import FFmpegError
from av.packet import Packet

from pipeline.errors import EmptyRecording, NoSamples, TooLong
from pipeline.intake.decode import count
from pipeline.intake.headers import Header, Unproven, read_header
from pipeline.intake.opening import NamelessFile, Source, declared_raw, open_audio, sniff
from pipeline.recording import DurationSource, Probe

_TRIED_PACKETS = 8
"""How many packets are decoded to see that a stream decodes at all."""


def probe(file: NamelessFile, file_name: str, max_duration_s: float) -> Probe:
    """Measure a recording.

    `file_name` declares headerless telephony by its extension, nothing else. Raises
    EmptyRecording, NotAudio, NoAudioStream, NoSamples, DamagedAudio, UnsupportedAudio, or TooLong
    beyond `max_duration_s`.
    """
    found = _measure(file, file_name, max_duration_s)
    if found.duration_s > max_duration_s:
        raise TooLong(f"The recording lasts {found.duration_s:.0f} s, over {max_duration_s:g} s.")
    return found


def _measure(file: NamelessFile, file_name: str, max_duration_s: float) -> Probe:
    if file.size == 0:
        raise EmptyRecording
    file.seek(0)
    kind = sniff(file.read(64))
    if raw := declared_raw(file_name, kind):
        duration_s = file.size / raw.bytes_per_s
        return Probe(duration_s, "declared", False, "raw", raw.codec, raw.sample_rate_hz, 1)
    try:
        return _from_header(file, kind)
    except Unproven as doubt:
        reason = str(doubt)
    try:
        return _from_scan(file, max_duration_s, reason)
    except Unproven as doubt:
        return _from_decode(file, max_duration_s, f"{reason}; {doubt}")


def _from_header(file: NamelessFile, kind: str | None) -> Probe:
    header: Header = read_header(file, kind)
    if kind == "mp4":
        with open_audio(file) as source:
            if not _decodes(source, list(islice(source.packets, _TRIED_PACKETS))):
                raise Unproven("the MP4's first packets do not decode")
    return Probe(
        header.duration_s, "header", False, header.container, header.codec,
        header.sample_rate_hz, header.channels,
    )  # fmt: skip


def _decodes(source: Source, packets: list[Packet[AudioStream]]) -> bool:
    """Whether any of these packets gives sound."""
    for packet in packets:
        try:
            if source.decode(packet):
                return True
        except FFmpegError as error:
            if isinstance(error, MemoryError):
                raise
    return False


def _from_scan(file: NamelessFile, max_duration_s: float, reason: str) -> Probe:
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
        if not _decodes(source, first):
            raise Unproven("the first packets do not decode")
        return _described(source, walk.agreed_s(), "scan", reason)


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
            raise Unproven(f"packets sum to {self.sum_s:.1f} s but span {span_s:.1f} s")
        return max(self.sum_s, span_s)


def _from_decode(file: NamelessFile, max_duration_s: float, reason: str) -> Probe:
    with open_audio(file) as source:
        tally = count(source, max_duration_s)
        return _described(source, tally.duration_s, "decode", reason)


def _described(source: Source, duration_s: float, by: DurationSource, reason: str) -> Probe:
    decoder = source.decoder
    return Probe(
        duration_s, by, by == "decode", source.container, source.codec,
        decoder.sample_rate or 0, decoder.channels or 0, reason,
    )  # fmt: skip
