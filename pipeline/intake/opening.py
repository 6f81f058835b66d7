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

from pipeline.errors import DamagedAudio, EmptyRecording, NoAudioStream, NotAudio, UnsupportedAudio

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


@dataclass(frozen=True)
class RawForm:
    """A headerless telephony format: the caller's file name is the only thing that declares it."""

    codec: str
    sample_rate_hz: int
    bytes_per_s: int
    demuxer: str | None
    """FFmpeg's demuxer; None where it has none and the bytes are cut into packets here."""


_MULAW = RawForm("pcm_mulaw", 8_000, 8_000, "mulaw")
_ALAW = RawForm("pcm_alaw", 8_000, 8_000, "alaw")
_SLN = RawForm("pcm_s16le", 8_000, 16_000, "s16le")
RAW_FORMS = {
    "ulaw": _MULAW, "ul": _MULAW, "mulaw": _MULAW, "alaw": _ALAW, "al": _ALAW, "sln": _SLN,
    "g722": RawForm("g722", 16_000, 8_000, "g722"),
    "gsm": RawForm("gsm", 8_000, 1_650, "gsm"),
    "vox": RawForm("adpcm_ima_oki", 8_000, 4_000, None),
}  # fmt: skip
"""By file name extension. FFmpeg guesses 44.1 kHz for some of these, so the rate is given."""


class NamelessFile:
    """A read-only file over a descriptor: no name, its own position, and the descriptor's kept.

    `pread` leaves the descriptor's offset alone, so two readers of one descriptor do not meet.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._at = 0
        self.size = os.fstat(fd).st_size

    def read(self, count: int = -1) -> bytes:
        """At most `count` bytes from the position, all that follow if negative."""
        rest = max(0, self.size - self._at)
        # Room is made for what is asked before anything is read: 4 GB where a chunk's size lies.
        got = os.pread(self._fd, min(count, rest) if count >= 0 else rest, self._at)
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


def declared_raw(file_name: str, kind: str | None) -> RawForm | None:
    """The headerless format a file name declares; None when its bytes show a container.

    A frame sync is no proof of a container here: u-law silence is FF FF, which looks like one.
    """
    form = RAW_FORMS.get(file_name.rpartition(".")[2].lower())
    return form if form and kind in (None, "mp3", "aac", "ac3") else None


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

    def decode(self, packet: Packet[AudioStream]) -> list[AudioFrame]:
        """Frames of one packet (maybe none). Raises av.error.FFmpegError when it is damaged."""
        return self.decoder.decode(packet if packet.size else None)


@contextmanager
def open_audio(file: NamelessFile, file_name: str = "") -> Iterator[Source]:
    """Open the first audio stream of `file`.

    `file_name` is read for its extension only, and only to learn of headerless telephony.
    Raises EmptyRecording, NotAudio, DamagedAudio, NoAudioStream or UnsupportedAudio.
    """
    if file.size == 0:
        raise EmptyRecording
    file.seek(0)
    kind = sniff(file.read(64))
    file.seek(0)
    raw = declared_raw(file_name, kind)
    if raw is not None and raw.demuxer is None:
        yield _headerless(file, raw)
        return
    try:
        container = _open(file, raw)
    except (FFmpegError, ValueError) as error:
        raise _refusal(kind, error) from None
    with container:
        yield _first_audio(container, raw)


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
    return Source(name, decoder.name, decoder, tick_s, container.demux(stream), raw)


def _headerless(file: NamelessFile, raw: RawForm) -> Source:
    def packets() -> Iterator[Packet[AudioStream]]:
        while chunk := file.read(raw.bytes_per_s):
            yield cast("Packet[AudioStream]", Packet(chunk))
        yield cast("Packet[AudioStream]", Packet())

    return Source("raw", raw.codec, _made(raw.codec, raw.sample_rate_hz), 0.0, packets(), raw)


def _made(codec: str, sample_rate_hz: int) -> AudioCodecContext:
    decoder = cast(AudioCodecContext, av.CodecContext.create(codec, "r"))
    decoder.sample_rate = sample_rate_hz
    decoder.layout = "mono"
    return decoder
