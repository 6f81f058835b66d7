"""Open an untrusted recording: comes in a nameless file, goes out a source of packets and frames.

Promises: no parser ever sees a path or a name (a playlist cannot reach another file), only
demuxers and decoders on two short lists are used, video is never decoded, and what cannot be
opened is refused by a typed error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import av
from av.audio.codeccontext import AudioCodecContext
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.error import FFmpegError
from av.packet import Packet

from pipeline.errors import (
    DamagedAudio,
    EmptyRecording,
    NoAudioStream,
    NoSamples,
    NotAudio,
    UnsupportedAudio,
)
from pipeline.intake.gaps import CLOCKED
from pipeline.intake.raw import HEAD_BYTES, RawForm, declared_raw

av.logging.set_level(None)

DEMUXERS = "wav,w64,mp3,flac,ogg,mov,matroska,aac,amr,aiff,au,caf,asf,gsm,nistsphere,ac3,wv"
"""FFmpeg's `format_whitelist`. Leaves out every playlist, concat, text and device demuxer: a
43-byte ffconcat file would otherwise decode its neighbour."""

_PCM = (
    "pcm_u8 pcm_s8 pcm_s16le pcm_s16be pcm_s24le pcm_s24be pcm_s32le pcm_s32be pcm_s64le pcm_s64be "
    "pcm_f32le pcm_f32be pcm_f64le pcm_f64be pcm_alaw pcm_mulaw pcm_bluray pcm_dvd"
)
_TELEPHONY = (
    "adpcm_ima_wav adpcm_ima_qt adpcm_ima_oki adpcm_ms adpcm_yamaha adpcm_swf g722 g726 g726le "
    "g723_1 g729 gsm gsm_ms libgsm libgsm_ms amrnb amrwb libopencore_amrnb libopencore_amrwb "
    "speex libspeex ilbc libilbc truespeech"
)
_MUSIC = (
    "aac aac_latm ac3 eac3 alac flac mp1 mp1float mp2 mp2float mp3 mp3float opus libopus "
    "vorbis libvorbis wmav1 wmav2 wmapro wmavoice wmalossless wavpack"
)
DECODERS = frozenset(f"{_PCM} {_TELEPHONY} {_MUSIC}".split())
"""Decoders we let run. Also FFmpeg's `codec_whitelist`, or opening would decode video frames."""


LEAST_RATE_HZ, MOST_RATE_HZ, MOST_CHANNELS = 1_000, 768_000, 64
"""Beyond these a header lies: no recorder writes such sound, and bringing 1 s that claims 87 MHz to
16 kHz took 3.5 s of the processor, while 1 Hz makes 16,000 samples of each."""


def plausible(sample_rate_hz: int, channels: int) -> bool:
    """Whether a recorder can have written sound of this form.

    >>> plausible(8_000, 2), plausible(4_294_967_295, 1), plausible(8_000, 65_535)
    (True, False, False)
    """
    return LEAST_RATE_HZ <= sample_rate_hz <= MOST_RATE_HZ and 0 < channels <= MOST_CHANNELS


class NamelessFile:
    """A read-only file over a descriptor: no name, its own position, and the descriptor's kept.

    `pread` leaves the descriptor's offset alone, so two readers of one descriptor do not meet.
    Nothing behind `size` is read, should the file grow meanwhile.
    """

    def __init__(self, fd: int, size: int | None = None) -> None:
        """`size`: read no more of it than these bytes; None: all it has now."""
        self._fd = fd
        self._at = 0
        self.size = os.fstat(fd).st_size if size is None else size

    def up_to(self, size: int) -> NamelessFile:
        """The same file, as if it ended after `size` bytes, with a position of its own."""
        return NamelessFile(self._fd, size)

    def read(self, count: int = -1) -> bytes:
        """At most `count` bytes from the position, all that follow if negative."""
        # Room is made for what is asked before anything is read: 4 GB where a chunk's size lies.
        left = max(0, self.size - self._at)
        got = os.pread(self._fd, left if count < 0 else min(count, left), self._at)
        self._at += len(got)
        return got

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move; raises ValueError before the start, as Python's own files do."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError("negative seek position")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """The position in bytes."""
        return self._at


def sniff(head: bytes) -> str | None:
    """Name the container by its first bytes (16 or more): None when they mean nothing to us.

    >>> sniff(b"RIFF....WAVEfmt "), sniff(b"hello, this is text")
    ('wav', None)
    """
    if head[:4] in (b"RIFF", b"RF64", b"RIFX") and head[8:12] == b"WAVE":
        return "wav" if head[:4] == b"RIFF" else "wav-variant"
    if head[4:8] in (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide"):
        return "mp4"
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    if len(head) > 2 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        return "aac" if head[1] & 0xF6 == 0xF0 else "mp3"
    return None


_MAGIC = (
    (b"OggS", "ogg"), (b"ID3", "mp3"), (b"fLaC", "flac"), (b"\x1aE\xdf\xa3", "matroska"),
    (b"FORM", "aiff"), (b"caff", "caf"), (b".snd", "au"), (b"#!AMR", "amr"), (b"wvpk", "wv"),
    (b"riff", "w64"), (b"NIST_1A", "nistsphere"), (b"\x0bw", "ac3"), (b"\x30\x26\xb2\x75", "asf"),
)  # fmt: skip


@dataclass
class Source:
    """An open recording: its first audio stream as packets, and the decoder for them."""

    container: str
    codec: str
    decoder: AudioCodecContext
    time_base_s: float
    packets: Iterator[Packet[AudioStream]]
    """Every packet, then one empty packet that flushes the decoder."""
    raw: RawForm | None = None
    header_s: float | None = None
    """What the container's header claims; None where it claims nothing, or FFmpeg guessed."""
    clocked: bool = False
    """Whether times of packets are the container's own (see `gaps.CLOCKED`)."""
    origin_s: float | None = None
    """Time at which the recording begins; None where its first sound says so."""

    def decode(self, packet: Packet[AudioStream]) -> list[AudioFrame]:
        """Frames of one packet (maybe none). Raises av.error.FFmpegError when it is damaged."""
        return self.decoder.decode(packet if packet.size else None)


def look(
    file: NamelessFile, file_name: str = "", raw_format: str = ""
) -> tuple[str | None, RawForm | None]:
    """(what `sniff` calls it, the headerless format it is declared as); the position is the start.

    Raises EmptyRecording, and BadRequest for a `raw_format` that nobody could have asked for.
    """
    if file.size == 0:
        raise EmptyRecording
    file.seek(0)
    head = file.read(HEAD_BYTES)
    file.seek(0)
    kind = sniff(head)
    return kind, declared_raw(head, kind, file_name, raw_format)


@contextmanager
def open_audio(file: NamelessFile, file_name: str = "", raw_format: str = "") -> Iterator[Source]:
    """Open the first audio stream of `file`.

    `raw_format`, or else the extension of `file_name`, declares headerless telephony, nothing else.
    Raises EmptyRecording, NotAudio, DamagedAudio, NoAudioStream, NoSamples or UnsupportedAudio.
    """
    kind, raw = look(file, file_name, raw_format)
    if raw is not None:
        # A frame or sample cut off at the end is no damage worth a word, and must not cost more.
        file = file.up_to(raw.whole_bytes(file.size))
        if file.size == 0:
            raise NoSamples
        if raw.demuxer is None:
            yield _headerless(file, raw)
            return
    try:
        container = _open(file, raw)
    except (FFmpegError, ValueError) as error:
        raise _refusal(kind, error) from None
    with container:
        source = _first_audio(container, raw)
        source.header_s = _header_s(container)
        yield source


def _open(file: NamelessFile, raw: RawForm | None) -> InputContainer:
    options = {
        "format_whitelist": DEMUXERS,
        "codec_whitelist": ",".join(sorted(DECODERS)),
        # Belt to the whitelist's braces: nothing that is opened from inside a file opens.
        "protocol_whitelist": "none",
    }
    if raw is None:
        return cast(InputContainer, av.open(cast(Any, file), options=options))
    options["format_whitelist"] = raw.demuxer or ""
    if raw.codec.startswith("pcm_"):
        options["sample_rate"] = str(raw.sample_rate_hz)
    opened = av.open(cast(Any, file), format=raw.demuxer, options=options)
    return cast(InputContainer, opened)


def _refusal(kind: str | None, error: Exception) -> Exception:
    """Why FFmpeg did not open it: bytes that begin as audio are damaged, others never were."""
    if isinstance(error, MemoryError):
        return error
    return DamagedAudio(f"The file begins as {kind} but cannot be read.") if kind else NotAudio()


def _first_audio(container: InputContainer, raw: RawForm | None) -> Source:
    if not container.streams.audio:
        raise NoAudioStream if container.streams else NotAudio
    stream = container.streams.audio[0]
    # A stream without a decoder has no context, and PyAV crashes the process on decoding it.
    decoder = cast(AudioCodecContext | None, stream.codec_context)
    if decoder is None or decoder.name not in DECODERS:
        raise UnsupportedAudio
    if decoder.name == "amrnb":
        # FFmpeg's own AMR decoder drops the frames that stand for silence: 1.6 of 18.24 s.
        decoder = _made("libopencore_amrnb", 8_000)
    rate_hz, channels = decoder.sample_rate or 0, decoder.channels or 0
    # Neither need be known before the first frame; what is known must be possible.
    if not plausible(rate_hz or LEAST_RATE_HZ, channels or 1):
        raise DamagedAudio(f"The file claims {rate_hz} samples a second in {channels} channels.")
    decoder.thread_type = "NONE"
    decoder.thread_count = 1
    name = container.format.name.split(",")[0]
    tick_s = float(stream.time_base or 0)
    return Source(
        name, decoder.name, decoder, tick_s, container.demux(stream), raw,
        clocked=name in CLOCKED, origin_s=_origin_s(container, name, stream),
    )  # fmt: skip


def _origin_s(container: InputContainer, name: str, stream: AudioStream) -> float | None:
    """When a film's or an edited recording's own time begins; None: with its first sound.

    An MP4 with a table of samples counts from 0, so an edit list may hold sound back. Fragments,
    and what is cut from a live stream, count from anywhere: from the first picture or sound.
    """
    if name not in CLOCKED:
        return None
    if name == "mov" and stream.frames:
        return 0.0
    started = container.start_time
    return None if started is None or len(container.streams) == 1 else started / av.time_base


_TIMED_STREAMS = ("flac", "mov", "aiff", "asf", "wv")
"""Containers whose header says how long a stream is. For others FFmpeg divides sizes."""


def _header_s(container: InputContainer) -> float | None:
    name = container.format.name.split(",")[0]
    stream = container.streams.audio[0]
    if name in _TIMED_STREAMS and stream.duration and stream.time_base:
        return float(stream.duration * stream.time_base)
    if name == "matroska" and container.duration:
        return container.duration / av.time_base
    return None


def _headerless(file: NamelessFile, raw: RawForm) -> Source:
    def packets() -> Iterator[Packet[AudioStream]]:
        while chunk := file.read(round(raw.bytes_per_s)):
            yield cast("Packet[AudioStream]", Packet(chunk))
        yield cast("Packet[AudioStream]", Packet())

    return Source("raw", raw.codec, _made(raw.codec, raw.sample_rate_hz), 0.0, packets(), raw)


def _made(codec: str, sample_rate_hz: int) -> AudioCodecContext:
    decoder = cast(AudioCodecContext, av.CodecContext.create(codec, "r"))
    decoder.sample_rate = sample_rate_hz
    decoder.layout = "mono"
    return decoder
