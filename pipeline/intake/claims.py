"""How long a header says a recording is, where that is more than was found: it was cut off.

An upload that broke off, a full disk or a recorder that crashed leave a header that was right once.
Its length is no measure, but the difference is what nobody will ever hear, so people are told.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from pipeline.intake import mpeg
from pipeline.intake.opening import NamelessFile

MORE = 1.1
"""A header that claims up to a tenth more than was found is not far wrong."""
LEAST_S = 0.5
"""Encoders pad; what is missing must be worth a word."""

_UNKNOWN_BYTES = 0x7FFF_0000
"""A WAV that is written to a pipe claims 2 or 4 GiB less a little: no claim, but a placeholder."""
_CHUNKS_LIMIT = 2_000
_MP3_HEAD_BYTES = 8_192


def claimed_s(
    file: NamelessFile, kind: str | None, found_s: float, header_s: float | None
) -> float | None:
    """What the header claims, in seconds; None when it claims nothing or hardly more than
    `found_s`.

    `kind` is what `opening.sniff` called the file, `header_s` the length that FFmpeg read in the
    header (`opening.Source`).
    """
    if kind == "wav":
        claim = _wav_s(file, found_s)
    elif kind == "mp3":
        claim = _mp3_s(file)
    else:
        claim = header_s
    if claim is None or claim <= found_s * MORE or claim < found_s + LEAST_S:
        return None
    return claim


def _wav_s(file: NamelessFile, found_s: float) -> float | None:
    """By the bytes of sound claimed over those there, whatever the codec: WAV is of one bitrate."""
    for name, size, at in _chunks(file):
        if name == b"data":
            there = file.size - at
            if there <= 0 or size <= there or size >= _UNKNOWN_BYTES:
                return None
            return found_s * size / there
    return None


def _chunks(file: NamelessFile) -> Iterator[tuple[bytes, int, int]]:
    """The chunks of a RIFF file as (name, size claimed, where its content begins)."""
    at = 12
    for _ in range(_CHUNKS_LIMIT):
        file.seek(at)
        head = file.read(8)
        if len(head) < 8:
            return
        name, size = struct.unpack("<4sI", head)
        yield name, size, at + 8
        at += 8 + size + size % 2


def _mp3_s(file: NamelessFile) -> float | None:
    """By the frames that a Xing, Info or VBRI header counts; a guess by bitrate is no claim."""
    file.seek(0)
    head = file.read(10)
    start = 0
    if head.startswith(b"ID3") and len(head) == 10:
        start = 10 + (head[6] << 21 | head[7] << 14 | head[8] << 7 | head[9])
    file.seek(start)
    return mpeg.counted_s(file.read(_MP3_HEAD_BYTES))
