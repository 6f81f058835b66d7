"""Damage a file, always the same way for the same chance: what a broken disk, a bad recorder or
somebody hostile makes of it.

`mutated(content, other, chance)` gives the damaged bytes and the names of what was done to them.
"""

from __future__ import annotations

import random
import re
import struct
import zlib
from collections.abc import Callable

from pipeline.intake.opening import sniff

MOST_BYTES = 600_000
"""A repeated or spliced file is cut here: more of the same finds nothing more."""

Mutation = Callable[[bytearray, bytes, random.Random], bytes | bytearray]

_EXTREMES = (0, 1, 2, 7, 8, 0x7F, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_EXTREMES += (0xFFFFFFFE, 1 << 56, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
"""Zero, one, a header's size, and both sides of every sign and width."""

_MAGIC = (
    b"RIFF\xff\xff\xff\xffWAVEfmt ", b"RF64\xff\xff\xff\xffWAVEds64", b"OggS\x00\x02",
    b"ID3\x04\x00\x00", b"fLaC\x00\x00\x00\x22", b"\x1aE\xdf\xa3", b"FORM\x00\x00\x00\x00AIFF",
    b"caff\x00\x01", b".snd", b"#!AMR\n", b"#!AMR-WB\n", b"wvpk", b"riff\x2e\x91\xcf\x11",
    b"NIST_1A\n   1024\n", b"\x0bw", b"\x30\x26\xb2\x75", b"\x00\x00\x00\x20ftypM4A ",
    b"\x00\x00\x00\x08moov", b"\xff\xfb\x90\x64", b"\xff\xf1\x50\x80", b"ffconcat version 1.0\n",
    b"#EXTM3U\n", b"%PDF-1.4", b"PK\x03\x04",
)  # fmt: skip


def mutated(content: bytes, other: bytes, chance: random.Random) -> tuple[bytes, list[str]]:
    """`content` after one to three mutations (`other` lends bytes for splices), and their names."""
    done: list[str] = []
    damaged = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3))):
        name = chance.choices(list(MUTATIONS), [weight for _, weight in MUTATIONS.values()])[0]
        damaged = bytearray(MUTATIONS[name][0](damaged or bytearray(1), other, chance))
        done.append(name)
        del damaged[MOST_BYTES:]
    return bytes(damaged), done


def _place(damaged: bytearray, chance: random.Random) -> int:
    """A byte of the file; every second time one of its first 512, where headers are."""
    most = len(damaged) if chance.random() < 0.5 else min(512, len(damaged))
    return chance.randrange(most)


def flip_bits(damaged: bytearray, _: bytes, chance: random.Random) -> bytearray:
    """Turn over one to 256 bits."""
    for _ in range(chance.choice((1, 2, 4, 16, 64, 256))):
        damaged[_place(damaged, chance)] ^= 1 << chance.randrange(8)
    return damaged


def overwrite(damaged: bytearray, _: bytes, chance: random.Random) -> bytearray:
    """A run of zeros, of ones, or of chance."""
    at, count = _place(damaged, chance), chance.choice((1, 4, 16, 256, 4_096))
    count = min(count, len(damaged) - at)
    run = chance.choice((bytes(count), b"\xff" * count, chance.randbytes(count)))
    damaged[at : at + count] = run
    return damaged


def cut(damaged: bytearray, _: bytes, chance: random.Random) -> bytearray:
    """Lose the end, the start, or something between."""
    one, two = sorted((_place(damaged, chance), _place(damaged, chance)))
    return chance.choice((damaged[:two], damaged[one:], damaged[:one] + damaged[two:]))


def insert(damaged: bytearray, _: bytes, chance: random.Random) -> bytearray:
    """Put in bytes that were not there."""
    at, count = _place(damaged, chance), chance.choice((1, 2, 3, 4, 100, 4_096, 70_000))
    damaged[at:at] = chance.choice((bytes(count), b"\xff" * count, chance.randbytes(count)))
    return damaged


def repeat(damaged: bytearray, _: bytes, chance: random.Random) -> bytearray:
    """One block many times."""
    at = _place(damaged, chance)
    block = damaged[at : at + chance.choice((4, 8, 27, 64, 417, 4_096))]
    times = min(chance.choice((2, 10, 1_000, 20_000)), MOST_BYTES // len(block))
    damaged[at:at] = block * times
    return damaged


def extreme(damaged: bytearray, _: bytes, chance: random.Random) -> bytearray:
    """A number of two, four or eight bytes, in either order, becomes an extreme one."""
    return _written(damaged, _place(damaged, chance), chance.choice((2, 4, 8)), chance)


def header_field(damaged: bytearray, _: bytes, chance: random.Random) -> bytearray:
    """A size, rate, count or depth of this format's headers becomes an extreme, or any number."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        fields = FIELDS.get(sniff(bytes(damaged[:64])) or "", ())
        places = [
            (match.start() + offset, width)
            for tag, offset, width in fields
            for match in re.finditer(re.escape(tag), damaged[:200_000])
        ]
        at, width = chance.choice(places) if places else (_place(damaged, chance), 4)
        _written(damaged, at, width, chance)
    return damaged


def page(damaged: bytearray, other: bytes, chance: random.Random) -> bytearray:
    """A field or the body of an Ogg page, its checksum made right again, so that it is believed."""
    starts = [match.start() for match in re.finditer(b"OggS", damaged)]
    if not starts:
        return extreme(damaged, other, chance)
    at = chance.choice(starts)
    end = min((start for start in starts if start > at), default=len(damaged))
    if chance.random() < 0.5:
        field, width = chance.choice(((5, 1), (6, 8), (14, 4), (18, 4), (26, 1)))
        _written(damaged, at + field, width, chance)
    elif end - at > 28:
        damaged[chance.randrange(at + 27, end)] ^= 1 << chance.randrange(8)
    if end - at >= 27:
        damaged[at + 22 : at + 26] = bytes(4)
        damaged[at + 22 : at + 26] = struct.pack("<I", ogg_checksum(damaged[at:end]))
    return damaged


def splice(damaged: bytearray, other: bytes, chance: random.Random) -> bytes:
    """Two files in one: one after the other, or one in the middle of the other."""
    at, to = _place(damaged, chance), chance.randrange(len(other) + 1)
    left = bytes(damaged)
    return chance.choice(
        (left[:at] + other[to:], left + other, other + left, left[:at] + other + left[at:])
    )


def other_magic(damaged: bytearray, other: bytes, chance: random.Random) -> bytearray:
    """The first bytes of another format."""
    magic = chance.choice((*_MAGIC, other[:64]))
    if chance.random() < 0.5:
        damaged[: len(magic)] = magic
    else:
        damaged[:0] = magic
    return damaged


MUTATIONS: dict[str, tuple[Mutation, int]] = {
    "flip bits": (flip_bits, 4),
    "overwrite": (overwrite, 3),
    "cut": (cut, 2),
    "insert": (insert, 2),
    "repeat": (repeat, 1),
    "extreme": (extreme, 4),
    "header field": (header_field, 6),
    "page": (page, 1),
    "splice": (splice, 1),
    "other magic": (other_magic, 1),
}
"""Each by name, and how often it is taken beside the others."""

_BOXES = (
    b"mvhd", b"mdhd", b"tkhd", b"elst", b"stsz", b"stco", b"stts", b"stsc", b"stsd", b"mp4a",
    b"esds", b"moof", b"trun", b"tfhd", b"mdat", b"moov", b"ftyp", b"dOps", b"alac",
)  # fmt: skip
_ELEMENTS = (
    "1a45dfa3", "18538067", "1549a966", "2ad7b1", "4489", "1654ae6b", "1f43b675", "b5", "9f", "a3",
    "a1", "63a2", "56aa", "56bb", "1c53bb6b", "e7",
)  # fmt: skip

FIELDS: dict[str, tuple[tuple[bytes, int, int], ...]] = {
    "wav": (
        (b"RIFF", 4, 4), (b"fmt ", 4, 4), (b"fmt ", 8, 2), (b"fmt ", 10, 2), (b"fmt ", 12, 4),
        (b"fmt ", 16, 4), (b"fmt ", 20, 2), (b"fmt ", 22, 2), (b"data", 4, 4), (b"fact", 8, 4),
        (b"LIST", 4, 4),
    ),
    "wav-variant": (
        (b"ds64", 4, 4), (b"ds64", 8, 8), (b"ds64", 16, 8), (b"ds64", 24, 8), (b"fmt ", 12, 4),
    ),
    "mp3": (
        (b"ID3", 3, 2), (b"ID3", 5, 1), (b"ID3", 6, 4), (b"Xing", 4, 4), (b"Xing", 8, 4),
        (b"Xing", 12, 4), (b"Info", 4, 4), (b"Info", 8, 4), (b"VBRI", 10, 4), (b"VBRI", 14, 4),
        (b"LAME", 21, 4), (b"\xff\xfb", 2, 1), (b"\xff\xf3", 2, 1), (b"\xff\xe3", 2, 1),
    ),
    "mp4": tuple((box, offset, 4) for box in _BOXES for offset in (-4, 4, 8, 12, 16, 20, 24)),
    "ogg": (
        (b"OpusHead", 8, 1), (b"OpusHead", 9, 1), (b"OpusHead", 10, 2), (b"OpusHead", 18, 1),
        (b"\x01vorbis", 11, 1), (b"\x01vorbis", 12, 4), (b"\x01vorbis", 28, 1),
        (b"Speex ", 36, 4), (b"Speex ", 48, 4), (b"Speex ", 56, 4), (b"Speex ", 64, 4),
        (b"OggS", 4, 1), (b"OggS", 6, 8),
    ),
    "flac": (
        (b"fLaC", 4, 4), (b"fLaC", 8, 2), (b"fLaC", 10, 2), (b"fLaC", 12, 2), (b"fLaC", 18, 2),
        (b"fLaC", 20, 1), (b"fLaC", 21, 4),
    ),
    "matroska": tuple(
        (bytes.fromhex(element), len(element) // 2, width)
        for element in _ELEMENTS
        for width in (1, 4, 8)
    ),
    "aiff": (
        (b"FORM", 4, 4), (b"COMM", 4, 4), (b"COMM", 8, 2), (b"COMM", 10, 4), (b"COMM", 16, 8),
        (b"SSND", 4, 4),
    ),
    "caf": (
        (b"desc", 4, 8), (b"desc", 12, 8), (b"desc", 24, 4), (b"desc", 32, 4), (b"data", 4, 8),
    ),
    "au": ((b".snd", 4, 4), (b".snd", 8, 4), (b".snd", 12, 4), (b".snd", 16, 4), (b".snd", 20, 4)),
}  # fmt: skip
"""Sizes, rates, counts and depths by format: what stands in front, offset from there, width."""


def _written(damaged: bytearray, at: int, width: int, chance: random.Random) -> bytearray:
    """Write an extreme (or, one time in four, any) number over `width` bytes, within the file."""
    value = chance.choice(_EXTREMES) if chance.random() < 0.75 else chance.getrandbits(64)
    number = (value & (1 << 8 * width) - 1).to_bytes(width, chance.choice(("little", "big")))
    at = max(0, at)
    damaged[at : at + width] = number[: max(0, len(damaged) - at)]
    return damaged


_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def ogg_checksum(content: bytes | bytearray) -> int:
    """CRC-32 as RFC 3533 has it: zlib's with every bit order turned round, starting from zero.

    >>> ogg_checksum(b"OggS") == 0x5FB0A94F
    True
    """
    turned = zlib.crc32(bytes(content).translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{turned:032b}"[::-1], 2)
