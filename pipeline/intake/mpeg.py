"""Read MPEG audio frame headers, to check by sampling what an MP3's header claims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

WINDOWS = 24
"""Places of a file that are looked at."""
_WINDOW_BYTES = 4_096

_KBITS_V1 = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_KBITS_V2 = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_RATES_HZ = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}


class File(Protocol):
    """What is read of a file here; `opening`, which has one, reads declarations by frames."""

    size: int

    def read(self, count: int = -1) -> bytes:
        """At most `count` bytes from the position."""

    def seek(self, offset: int) -> int:
        """Move."""


@dataclass(frozen=True)
class Frame:
    """One layer III frame header."""

    bitrate: int
    length_bytes: int
    sample_rate_hz: int


@dataclass(frozen=True)
class Sample:
    """What was seen in `WINDOWS` places of a file."""

    windows_hit: int
    """Places with two frames in a row."""
    frames: int
    mean_bitrate: float
    rates_hz: frozenset[int]


def frame_at(data: bytes, at: int) -> Frame | None:
    """The layer III frame whose header begins at `at`; None when there is none.

    >>> frame_at(bytes.fromhex("fffb9064"), 0)
    Frame(bitrate=128000, length_bytes=417, sample_rate_hz=44100)
    """
    if at + 4 > len(data) or data[at] != 0xFF or data[at + 1] & 0xE6 != 0xE2:
        return None
    version, bits, rate, padding = (
        data[at + 1] >> 3 & 3, data[at + 2] >> 4, data[at + 2] >> 2 & 3, data[at + 2] >> 1 & 1,
    )  # fmt: skip
    if version == 1 or bits in (0, 15) or rate == 3:
        return None
    bitrate = (_KBITS_V1 if version == 3 else _KBITS_V2)[bits] * 1_000
    sample_rate_hz = _RATES_HZ[version][rate]
    samples = 1_152 if version == 3 else 576
    return Frame(bitrate, samples // 8 * bitrate // sample_rate_hz + padding, sample_rate_hz)


def counted_s(data: bytes) -> float | None:
    """Seconds that the first frame's Xing, Info or VBRI header counts; None without one.

    Fields by the public descriptions of both: flags, then the count of frames after "Xing"; 10
    bytes, then the count after "VBRI".
    """
    at = next((n for n in range(len(data)) if frame_at(data, n)), len(data))
    frame = frame_at(data, at)
    if frame is None:
        return None
    first = data[at : at + frame.length_bytes]
    counted = 0
    for mark, before in ((b"Xing", 8), (b"Info", 8), (b"VBRI", 14)):
        place = first.find(mark, 4, 48)
        if place < 0 or len(first) < place + before + 4:
            continue
        if mark != b"VBRI" and not first[place + 7] & 1:
            continue  # it counts bytes only
        counted = int.from_bytes(first[place + before : place + before + 4], "big")
    samples = 1_152 if frame.sample_rate_hz >= 32_000 else 576
    return counted * samples / frame.sample_rate_hz if counted else None


def sample(file: File, start: int) -> Sample:
    """Look at `WINDOWS` places between byte `start` and the end of the file."""
    runs = []
    for number in range(WINDOWS):
        file.seek(start + (file.size - start) * number // WINDOWS)
        runs.append(_run(file.read(_WINDOW_BYTES)))
    seen = [frame for run in runs for frame in run]
    mean = sum(frame.bitrate for frame in seen) / len(seen) if seen else 0.0
    rates_hz = frozenset(frame.sample_rate_hz for frame in seen)
    return Sample(sum(bool(run) for run in runs), len(seen), mean, rates_hz)


def _run(data: bytes) -> list[Frame]:
    """The first run of two or more consecutive frames of one rate; empty when there is none."""
    at = data.find(b"\xff")
    while at >= 0:
        run: list[Frame] = []
        place = at
        while frame := frame_at(data, place):
            run.append(frame)
            place += frame.length_bytes
        if len(run) > 1 and run[0].sample_rate_hz == run[1].sample_rate_hz:
            return run
        at = data.find(b"\xff", at + 1)
    return []
