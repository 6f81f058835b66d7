"""Whole files to damage: the shared corpus where it lies beside the checkout, the small ones of
bench/recordings, and a few seconds of sound in every format FFmpeg writes for us.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.sets import CORPUS, RECORDINGS
from tests.reports.files import made
from tests.sounds import joined, sides, silence, tone, voice, wav

_LARGEST_BYTES = 200_000
"""A larger file costs more time and shows no more of its parser."""

_ENCODED = (
    ("wav", "pcm_mulaw", 8_000), ("wav", "adpcm_ima_wav", 8_000), ("wav", "adpcm_ms", 8_000),
    ("wav", "pcm_f32le", 16_000), ("w64", "pcm_s16le", 16_000), ("mp3", "libmp3lame", 16_000),
    ("mp3", "libmp3lame", 8_000), ("flac", "flac", 16_000), ("ogg", "libopus", 48_000),
    ("ogg", "libvorbis", 16_000), ("ogg", "libspeex", 8_000),
    ("mp4", "aac", 16_000), ("mp4", "libopus", 48_000), ("mov", "alac", 16_000),
    ("webm", "libopus", 48_000), ("matroska", "libmp3lame", 16_000), ("adts", "aac", 16_000),
    ("aiff", "pcm_s16be", 16_000), ("caf", "pcm_s16le", 16_000), ("au", "pcm_mulaw", 8_000),
    ("amr", "libopencore_amrnb", 8_000), ("ac3", "ac3", 48_000), ("asf", "wmav2", 16_000),
    ("wv", "wavpack", 16_000), ("wav", "g726", 8_000), ("wav", "g723_1", 8_000),
)  # fmt: skip


_EXACT = {"fflags": "+bitexact"}
"""Else the numbers of streams and tracks would be drawn anew in each run."""


@dataclass(frozen=True)
class Seed:
    """A whole file."""

    name: str
    content: bytes


@cache
def seeds() -> tuple[Seed, ...]:
    """Every seed there is on this machine, in order of name."""
    found = [*_read(CORPUS), *_read(RECORDINGS), *_made()]
    return tuple(sorted(found, key=lambda seed: seed.name))


def digest(whole: tuple[Seed, ...]) -> str:
    """Names a set of seeds: a number of a run means the same file only among the same seeds."""
    sums = [hashlib.sha256(seed.content).hexdigest() + seed.name for seed in whole]
    return hashlib.sha256("\n".join(sums).encode("utf-8", "replace")).hexdigest()[:16]


def _read(folder: Path) -> Iterator[Seed]:
    for path in folder.glob("*"):  # nothing where there is no such folder
        written = path.suffix in (".tsv", ".md", ".json")
        if path.is_file() and not written and 0 < path.stat().st_size <= _LARGEST_BYTES:
            yield Seed(f"{folder.name}/{path.name}", path.read_bytes())


def _made() -> Iterator[Seed]:
    for container, codec, rate in _ENCODED:
        sound = joined([silence(0.3, rate), voice(1.5, rate), tone(0.5, rate=rate)])
        try:
            content = made(sound, container, codec, rate, file_options=_EXACT, flags="+bitexact")
        except (ValueError, OSError):  # this build of FFmpeg does not write it
            continue
        yield Seed(f"made/{codec}_{rate}.{container}", content)
    call = sides(joined([voice(2), silence(2)]), joined([silence(2), voice(2, pitch_hz=210)]))
    yield Seed("made/call.wav", wav(call, channels=2))
