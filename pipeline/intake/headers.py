"""Believe a header only when other bytes of the file say the same.

A file comes in, a `Header` or `Unproven` (with the reason) comes out; nothing is decoded and no tag
is parsed. mutagen reads the stream headers; by itself it is wrong or silent on four files in ten of
an adversarial corpus. Its length times its bitrate proves nothing (it derives one from the other),
so each format is checked against bytes mutagen did not use.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from mutagen.mp3 import MPEGInfo
from mutagen.mp4 import MP4Info
from mutagen.mp4._atom import Atoms
from mutagen.wave import WaveStreamInfo

from pipeline.intake import mpeg
from pipeline.intake.opening import NamelessFile, plausible


@dataclass(frozen=True)
class Header:
    """What a proven header says."""

    duration_s: float
    container: str
    codec: str
    sample_rate_hz: int
    channels: int


class Unproven(Exception):
    """The header may be right, but nothing in the file supports it."""


def read_header(file: NamelessFile, kind: str | None) -> Header:
    """The header of a file that `opening.sniff` called `kind`.

    Raises Unproven when there is no cheap proof for this format or the proof fails.
    """
    reader = _READERS.get(kind or "")
    if reader is None:
        raise Unproven("no header of this format can be checked cheaply")
    try:
        header = reader(file)
    except (Unproven, MemoryError):
        raise
    except Exception as error:  # mutagen raises anything: IndexError, struct.error, RecursionError
        raise Unproven(f"the {kind} header cannot be read ({type(error).__name__})") from None
    if not plausible(header.sample_rate_hz, header.channels):
        raise Unproven(f"no sound has {header.sample_rate_hz} Hz in {header.channels} channels")
    return header


_WAV_CODECS = {1: "pcm_s{}le", 3: "pcm_f{}le", 6: "pcm_alaw", 7: "pcm_mulaw", 0xFFFE: "pcm_s{}le"}


def _wav(file: NamelessFile) -> Header:
    """Proof: the samples claimed fill the file. Compressed WAV fails it and is scanned."""
    file.seek(0)
    info = WaveStreamInfo(file)
    form, bits = info.audio_format, info.bits_per_sample
    if form not in _WAV_CODECS or bits not in (8, 16, 24, 32, 64) or (form in (6, 7) and bits != 8):
        raise Unproven(f"WAV codec {form} with {bits} bits has no fixed size")
    claimed = info.length * info.sample_rate * info.channels * bits / 8
    slack = max(65_536, 0.02 * file.size)
    if not 0 < claimed <= file.size or claimed < file.size - slack:
        raise Unproven(f"the WAV header claims {claimed:.0f} bytes of sound in {file.size}")
    form = _wav_subform(file) if form == 0xFFFE else form
    codec = "pcm_u8" if bits == 8 and form == 1 else _WAV_CODECS.get(form, "pcm_s{}le").format(bits)
    return Header(info.length, "wav", codec, info.sample_rate, info.channels)


def _wav_subform(file: NamelessFile) -> int:
    """What samples an extensible WAV holds, by its subformat; 1 (integers) if not there."""
    file.seek(0)
    head = file.read(4_096)
    at = head.find(b"fmt ", 12) + 32
    return struct.unpack("<H", head[at : at + 2])[0] if at >= 44 and len(head) >= at + 2 else 1


def _mp3(file: NamelessFile) -> Header:
    """Proof: frames sampled all over the file have one rate and the bitrate the length implies."""
    file.seek(0)
    info = MPEGInfo(file)
    if info.layer != 3 or info.length <= 0:
        raise Unproven("not an MP3 with a length")
    start = info.frame_offset
    sample = mpeg.sample(file, start)
    if sample.windows_hit < mpeg.WINDOWS - 2 or sample.frames < 8:
        raise Unproven(f"MP3 frames in only {sample.windows_hit} of {mpeg.WINDOWS} places")
    if len(sample.rates_hz) > 1:
        raise Unproven("the MP3 changes its sample rate")
    measured_s = 8 * (file.size - start) / sample.mean_bitrate
    if abs(measured_s - info.length) > max(0.10 * info.length, 1.0):
        raise Unproven(f"the MP3 header says {info.length:.1f} s, its frames {measured_s:.1f} s")
    return Header(info.length, "mp3", "mp3", info.sample_rate, info.channels)


_MOOV_LIMIT_BYTES = 4 << 20
"""An index of hours of sound; a larger one is left to FFmpeg. mutagen makes an object of each box
in it: a million empty ones took 270 MB and 8 s."""


def _mp4(file: NamelessFile) -> Header:
    """Proof: one whole unfragmented track whose bytes make a plausible bitrate.

    The caller still has to decode a few packets: sound tables can point at nothing.
    """
    boxes = list(_boxes(file))
    names = [name for name, _ in boxes]
    if b"moof" in names or names.count(b"moov") != 1 or dict(boxes)[b"moov"] > _MOOV_LIMIT_BYTES:
        raise Unproven("the MP4 is fragmented or has no plain moov box")
    file.seek(0)
    atoms = Atoms(file)
    info = MP4Info(atoms, file)  # type: ignore[no-untyped-call]
    tracks = sum(child.name == b"trak" for child in atoms[b"moov"].children)
    if tracks != 1:
        raise Unproven(f"the MP4 has {tracks} tracks")
    if not info.channels or not info.codec or info.length <= 0:
        raise Unproven("the MP4's header does not say how long its track is")
    bitrate = 8 * sum(size for name, size in boxes if name == b"mdat") / info.length
    nominal = info.bitrate if info.codec.startswith("mp4a") and info.bitrate else bitrate
    if not 4_000 <= bitrate <= 3e6 or not 0.5 <= bitrate / nominal <= 2:
        raise Unproven(f"{bitrate:.0f} b/s does not fit the MP4's length")
    codec = "aac" if info.codec.startswith("mp4a") else info.codec
    return Header(info.length, "mov", codec, info.sample_rate, info.channels)


def _boxes(file: NamelessFile) -> Iterator[tuple[bytes, int]]:
    """Top-level boxes as (name, size); raises Unproven unless they end exactly with the file."""
    at = 0
    for _ in range(2_000):
        if at == file.size:
            return
        file.seek(at)
        size, name = struct.unpack(">I4s", file.read(8))
        if size == 1:
            (size,) = struct.unpack(">Q", file.read(8))
        size = size or file.size - at
        if size < 8 or at + size > file.size:
            break
        yield name, size
        at += size
    raise Unproven("the MP4's boxes do not end with the file")


_OGG_WINDOWS = 16


def _ogg(file: NamelessFile) -> Header:
    """Proof: one stream from start to end, whose clock starts near 0 and never falls.

    The header itself is one page, read here: length is the last page's clock less the pre-skip.
    """
    file.seek(0)
    head = file.read(65_536)
    ticks_per_s, skip, made = _ogg_codec(head)
    serial, last, first, seen = head[14:18], 0, None, -1
    for number in range(_OGG_WINDOWS):
        start = file.size * number // _OGG_WINDOWS
        file.seek(start)
        window = file.read(min(max(4_096, file.size // _OGG_WINDOWS), 65_536))
        for at, page_serial, begins, clock in _pages(window):
            if start + at <= seen:
                continue  # windows of a small file overlap
            seen = start + at
            if page_serial != serial or (begins and seen > 0):
                raise Unproven("the Ogg file holds more than one stream")
            if 0 <= clock < last:
                raise Unproven("the Ogg clock goes back")
            last = max(last, clock)
            first = clock if first is None and clock > 0 else first
    if first is None or first / ticks_per_s > 30:
        raise Unproven("the Ogg clock does not start at 0")
    file.seek(max(0, file.size - 65_536))
    ends = [page for page in _pages(file.read()) if page[3] >= 0]
    if not ends or ends[-1][1] != serial:
        raise Unproven("the last Ogg page is missing")
    duration_s = (ends[-1][3] - skip) / ticks_per_s
    if duration_s <= 0 or not 400 <= 8 * file.size / duration_s <= 6e5:
        raise Unproven("the file's size does not fit the Ogg clock")
    return Header(duration_s, "ogg", *made)


def _ogg_codec(head: bytes) -> tuple[int, int, tuple[str, int, int]]:
    """(clock ticks per second, ticks to skip, (codec, sample rate, channels)) of the first page."""
    if head[28:36] == b"OpusHead":
        channels, skip = struct.unpack("<BH", head[37:40])
        return 48_000, skip, ("opus", 48_000, channels)
    if head[28:35] == b"\x01vorbis":
        channels, rate = struct.unpack("<BI", head[39:44])
        if 0 < rate <= 192_000:
            return rate, 0, ("vorbis", rate, channels)
    raise Unproven("an Ogg codec whose clock we do not read")


def _pages(data: bytes) -> Iterator[tuple[int, bytes, bool, int]]:
    """Ogg pages seen in `data`: (offset, serial, begins a stream, clock)."""
    at = data.find(b"OggS")
    while 0 <= at <= len(data) - 27:
        (clock,) = struct.unpack("<q", data[at + 6 : at + 14])
        yield at, data[at + 14 : at + 18], bool(data[at + 5] & 2), clock
        at = data.find(b"OggS", at + 4)


_READERS = {"wav": _wav, "mp3": _mp3, "mp4": _mp4, "ogg": _ogg}
