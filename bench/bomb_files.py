"""Small files that claim or unfold to something huge, made here. Each maker writes one file."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import av
import numpy as np

from bench.mutations import ogg_checksum
from tests.reports.files import amr, made, mp3
from tests.sounds import silence, tone, voice, wav

Write = Callable[[Path], None]


@cache
def _silent_packet() -> bytes:
    """60 ms of silence as libopus writes it, a few bytes."""
    whole = made(silence(2, 48_000), "ogg", "libopus", 48_000, bit_rate=6_000, frame_duration="60")
    with av.open(io.BytesIO(whole)) as file:
        return [bytes(packet) for packet in file.demux(audio=0) if packet.size][-2]


def _box(name: bytes, content: bytes = b"") -> bytes:
    return struct.pack(">I4s", 8 + len(content), name) + content


def long_flac(path: Path) -> None:
    """Ten hours of silence in FLAC."""
    path.write_bytes(made(silence(36_000, 8_000), "flac", "flac", 8_000))


def long_opus(path: Path) -> None:
    """Nine hours of silence in Opus, in packets of 60 ms."""
    with path.open("wb") as file:
        for page in _opus_pages(9 * 3_600, 1):
            file.write(page)


def chained_ogg(path: Path) -> None:
    """100,000 Ogg streams one after the other, each of 60 ms."""
    with path.open("wb") as file:
        for serial in range(100_000):
            for page in _opus_pages(0.06, serial):
                file.write(page)


def _opus_pages(seconds: float, serial: int) -> Iterator[bytes]:
    head = b"OpusHead\x01\x01" + struct.pack("<HIHB", 0, 48_000, 0, 0)
    yield _ogg_page(2, 0, serial, 0, [head])
    yield _ogg_page(0, 0, serial, 1, [b"OpusTags" + bytes(8)])
    packets = max(1, round(seconds / 0.06))
    for number, first in enumerate(range(0, packets, 250)):
        count = min(250, packets - first)
        last = 4 if first + count == packets else 0
        clock = (first + count) * 2_880
        yield _ogg_page(last, clock, serial, number + 2, [_silent_packet()] * count)


def _ogg_page(flags: int, clock: int, serial: int, number: int, packets: list[bytes]) -> bytes:
    lengths = bytes(len(packet) for packet in packets)
    head = struct.pack("<4sBBqIIIB", b"OggS", 0, flags, clock, serial, number, 0, len(packets))
    page = bytearray(head + lengths + b"".join(packets))
    struct.pack_into("<I", page, 22, ogg_checksum(page))
    return bytes(page)


def cover_mp3(path: Path) -> None:
    """An MP3 behind an ID3 tag with a picture of 256 MB."""
    size = 255 << 20
    body = size + 14
    with path.open("wb") as file:
        file.write(b"ID3\x03\x00\x00" + _syncsafe(body + 10))
        file.write(b"APIC" + struct.pack(">I", body) + b"\x00\x00\x00image/png\x00\x03\x00\x00")
        file.seek(20 + body)
        file.write(mp3(tone(20), header=True))


def _syncsafe(size: int) -> bytes:
    return bytes(size >> shift & 0x7F for shift in (21, 14, 7, 0))


def cover_m4a(path: Path) -> None:
    """An m4a with a cover of 256 MB in its tags, in front of its index."""
    plain = made(tone(20), "mp4", "aac")
    size = 256 << 20
    moov = plain.index(b"moov") - 4
    (length,) = struct.unpack(">I", plain[moov : moov + 4])
    hdlr = _box(b"hdlr", bytes(8) + b"mdirappl" + bytes(9))
    covr = 8 + 16 + size
    ilst = 8 + covr
    meta = 8 + 4 + len(hdlr) + ilst
    udta = 8 + meta
    with path.open("wb") as file:
        file.write(plain[:moov] + struct.pack(">I4s", length + udta, b"moov"))
        file.write(plain[moov + 8 : moov + length])
        file.write(
            struct.pack(">I4s", udta, b"udta") + struct.pack(">I4sI", meta, b"meta", 0) + hdlr
        )
        file.write(struct.pack(">I4s", ilst, b"ilst") + struct.pack(">I4s", covr, b"covr"))
        file.write(struct.pack(">I4sII", 16 + size, b"data", 14, 0))
        file.seek(size, io.SEEK_CUR)
        file.write(plain[moov + length :])
        file.truncate()


def many_chunks(path: Path) -> None:
    """A WAV with a million empty chunks before its sound."""
    plain = wav(tone(20))
    path.write_bytes(plain[:36] + b"junk\x00\x00\x00\x00" * 1_000_000 + plain[36:])


def many_atoms(path: Path) -> None:
    """An m4a with a million empty boxes before its index."""
    plain = made(tone(20), "mp4", "aac")
    moov = plain.index(b"moov") - 4
    path.write_bytes(plain[:moov] + _box(b"free") * 1_000_000 + plain[moov:])


def many_inner_atoms(path: Path) -> None:
    """An m4a with a million empty boxes inside its index."""
    plain = made(tone(20), "mp4", "aac")
    moov = plain.index(b"moov") - 4
    (length,) = struct.unpack(">I", plain[moov : moov + 4])
    grown = struct.pack(">I4s", length + 8_000_000, b"moov") + _box(b"free") * 1_000_000
    path.write_bytes(plain[:moov] + grown + plain[moov + 8 :])


def many_blocks(path: Path) -> None:
    """A FLAC with a million empty padding blocks."""
    plain = made(tone(20), "flac", "flac")
    info = bytearray(plain[:42])
    info[4] &= 0x7F
    path.write_bytes(bytes(info) + b"\x01\x00\x00\x00" * 1_000_000 + plain[42:])


def many_frames(path: Path) -> None:
    """An MP3 behind 200,000 tiny ID3 frames."""
    frames = b"TXXX\x00\x00\x00\x04\x00\x00\x00a\x00b" * 200_000
    path.write_bytes(
        b"ID3\x03\x00\x00" + _syncsafe(len(frames)) + frames + mp3(tone(20), header=True)
    )


def deep_boxes(path: Path) -> None:
    """An m4a whose index is 50,000 boxes deep."""
    head = bytearray()
    for depth in range(50_000):
        head += struct.pack(">I4s", 8 * (50_000 - depth), b"moov" if depth % 2 == 0 else b"udta")
    path.write_bytes(_box(b"ftyp", b"M4A \x00\x00\x00\x00") + bytes(head))


def huge_element(path: Path) -> None:
    """A WebM whose first cluster claims 2^56 - 2 bytes."""
    plain = bytearray(made(tone(20, rate=48_000), "webm", "libopus", 48_000, pipe=True))
    at = plain.index(b"\x1f\x43\xb6\x75") + 4
    plain[at : at + 8] = b"\x01" + b"\xff" * 6 + b"\xfe"
    path.write_bytes(bytes(plain))


def jumping_times(path: Path) -> None:
    """A WebM whose clusters are 10^15 ticks apart."""
    plain = bytearray(made(tone(20, rate=48_000), "webm", "libopus", 48_000, pipe=True))
    at, number = plain.find(b"\x1f\x43\xb6\x75"), 0
    while at >= 0:
        clock = plain.find(b"\xe7", at, at + 20)
        width = plain[clock + 1] & 0x7F
        value = min(number * 10**15, (1 << 8 * width) - 1)
        plain[clock + 2 : clock + 2 + width] = value.to_bytes(width, "big")
        at, number = plain.find(b"\x1f\x43\xb6\x75", at + 4), number + 1
    path.write_bytes(bytes(plain))


def jumping_ogg(path: Path) -> None:
    """An Ogg whose clock jumps by 10^15 in the middle."""
    pages = list(_opus_pages(60, 7))
    for number in range(len(pages) // 2, len(pages)):
        page = bytearray(pages[number])
        (clock,) = struct.unpack_from("<q", page, 6)
        struct.pack_into("<q", page, 6, clock + 10**15)
        struct.pack_into("<I", page, 22, 0)
        struct.pack_into("<I", page, 22, ogg_checksum(page))
        pages[number] = bytes(page)
    path.write_bytes(b"".join(pages))


def _wav_form(channels: int | None = None, rate: int | None = None) -> Write:
    def write(path: Path) -> None:
        content = bytearray(wav(tone(20)))
        if channels is not None:
            struct.pack_into("<H", content, 22, channels)
        if rate is not None:
            struct.pack_into("<I", content, 24, rate)
        path.write_bytes(bytes(content))

    return write


def fast_wav(path: Path) -> None:
    """Ten true seconds at 384 kHz."""
    path.write_bytes(wav(tone(10, rate=384_000), 384_000))


def many_channels(path: Path) -> None:
    """A minute of 64 channels."""
    one = voice(60, 8_000)
    path.write_bytes(wav(np.repeat(one, 64), 8_000, channels=64))


def ordinary(path: Path) -> None:
    """20 s of speech: what everything else is measured against."""
    path.write_bytes(wav(voice(20)))


def long_amr(path: Path) -> None:
    """Eleven hours of AMR silence frames, one byte each."""
    path.write_bytes(amr(1) + b"\x7c" * (11 * 3_600 * 50))


BOMBS: dict[str, Write] = {
    "ordinary.wav": ordinary,
    "ten hours.flac": long_flac,
    "nine hours.opus": long_opus,
    "eleven hours.amr": long_amr,
    "cover of 256 MB.mp3": cover_mp3,
    "cover of 256 MB.m4a": cover_m4a,
    "million chunks.wav": many_chunks,
    "million boxes.m4a": many_atoms,
    "million inner boxes.m4a": many_inner_atoms,
    "million blocks.flac": many_blocks,
    "200,000 frames.mp3": many_frames,
    "50,000 deep.m4a": deep_boxes,
    "100,000 chains.ogg": chained_ogg,
    "element of 2^56.webm": huge_element,
    "times jump.webm": jumping_times,
    "times jump.ogg": jumping_ogg,
    "65,535 channels.wav": _wav_form(channels=65_535),
    "64 channels.wav": many_channels,
    "384 kHz.wav": fast_wav,
    "1 Hz.wav": _wav_form(rate=1),
    "4 GHz.wav": _wav_form(rate=0xFFFFFFFF),
}
"""Makers by the name of their file."""
