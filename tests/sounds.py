"""Sounds and files made for tests, so that no recording has to be carried along."""

from __future__ import annotations

import io
import wave
from collections.abc import Sequence
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.int16]

VOWELS_HZ = ((730, 1090, 2440), (270, 2290, 3010), (570, 840, 2410), (530, 1840, 2480))


def tone(seconds: float, hz: float = 440.0, rate: int = 16_000, level: float = 0.3) -> Samples:
    """A sine."""
    t = np.arange(round(seconds * rate)) / rate
    return (level * 32_767 * np.sin(2 * np.pi * hz * t)).astype(np.int16)


def silence(seconds: float, rate: int = 16_000) -> Samples:
    """Digital silence."""
    return np.zeros(round(seconds * rate), np.int16)


def noise(seconds: float, rate: int = 16_000, level: float = 0.1, seed: int = 1) -> Samples:
    """White noise, the same for the same seed."""
    values = np.random.default_rng(seed).standard_normal(round(seconds * rate))
    return (level * 32_767 * values).clip(-32_768, 32_767).astype(np.int16)


def voice(
    seconds: float, rate: int = 16_000, level: float = 0.3, pitch_hz: float = 120.0, seed: int = 1
) -> Samples:
    """Something a voice detector takes for speech: vowels of four syllables a second."""
    count = round(seconds * rate)
    t = np.arange(count) / rate
    random = np.random.default_rng(seed)
    pitch = pitch_hz * (1 + 0.1 * np.sin(2 * np.pi * 0.7 * t) + 0.02 * np.sin(2 * np.pi * 5 * t))
    phase = np.cumsum(pitch) / rate
    out = np.zeros(count)
    syllable = (t * 4).astype(int)
    order = random.integers(0, len(VOWELS_HZ), syllable.max(initial=0) + 1)
    formants = np.array(VOWELS_HZ, float)[order][syllable]
    for harmonic in range(1, int(3_800 / pitch_hz)):
        hz = harmonic * pitch
        gain = sum(1.0 / (1.0 + ((hz - formants[:, n]) / 90.0) ** 2) / (n + 1) for n in range(3))
        out += gain * np.sin(2 * np.pi * harmonic * phase)
    out = out * (0.2 + np.abs(np.sin(np.pi * 4 * t))) + 0.01 * random.standard_normal(count)
    return (level * 32_767 * out / np.abs(out).max()).astype(np.int16)


def sides(*channels: Samples) -> Samples:
    """Channels of one length, interleaved for a WAV file."""
    return np.stack(channels, axis=1).reshape(-1)


def wav(samples: Samples, rate: int = 16_000, channels: int = 1) -> bytes:
    """A plain 16 bit WAV file of (interleaved) samples."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return out.getvalue()


def encoded(
    samples: Samples, container: str, codec: str, rate: int = 16_000, bit_rate: int = 32_000
) -> bytes:
    """One channel through an encoder: container and codec by FFmpeg's names."""
    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate)
        stream.layout = "mono"
        stream.bit_rate = bit_rate
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate = rate
        resampler = av.AudioResampler(stream.format, "mono", rate, stream.frame_size or None)
        for part in [*resampler.resample(frame), *resampler.resample(None)]:
            file.mux(stream.encode(part))
        file.mux(stream.encode(None))
    return out.getvalue()


def mulaw_wav(samples: Samples, rate: int = 8_000) -> bytes:
    """A WAV file as telephone exchanges write it."""
    return encoded(samples, "wav", "pcm_mulaw", rate)


def video_without_sound() -> bytes:
    """A film of ten grey frames and no audio stream."""
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as file:
        stream = file.add_stream("mpeg4", rate=5)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for shade in range(10):
            picture = np.full((48, 64, 3), shade * 20, np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        file.mux(stream.encode(None))
    return out.getvalue()


def write(folder: Path, name: str, content: bytes) -> Path:
    """Put bytes in a file."""
    path = folder / name
    path.write_bytes(content)
    return path


def joined(parts: Sequence[Samples]) -> Samples:
    """Sounds one after the other."""
    return np.concatenate(parts)
