"""Windows of real speech for tests of hearing: mono s16le at 16 kHz, at most 30 s."""

from __future__ import annotations

from pathlib import Path

import av
import pytest

from pipeline.recording import SAMPLE_RATE_HZ, WINDOW_LIMIT_S

ROOT = Path(__file__).resolve().parents[1]
PLACES = ((ROOT / "tests/sounds/speech", "*.flac"), (ROOT.parent / "shared/corpus", "speech_*.wav"))
"""Ours first; the corpus beside the checkout until, and where, those are missing."""

LIMIT_BYTES = 2 * int(SAMPLE_RATE_HZ * WINDOW_LIMIT_S)


def speech_windows(count: int) -> dict[str, bytes]:
    """`count` windows by the name of their file; skips the test where there are not so many."""
    for folder, pattern in PLACES:
        files = sorted(folder.glob(pattern), key=lambda file: file.name)
        if len(files) >= count:
            return {file.name: window_of(file) for file in files[:count]}
    pytest.skip(f"fewer than {count} speech files in {', '.join(p.name for p, _ in PLACES)}")


def window_of(file: Path) -> bytes:
    """The first 30 s of a sound file as one window, its channels mixed."""
    resampler = av.AudioResampler("s16", "mono", SAMPLE_RATE_HZ)
    pcm = bytearray()
    with av.open(str(file)) as container:
        for frame in [*container.decode(audio=0), None]:
            for piece in resampler.resample(frame):
                pcm += piece.to_ndarray().tobytes()
    return bytes(pcm[:LIMIT_BYTES])
