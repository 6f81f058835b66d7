"""Files that people reported other programs to get wrong, made here at run time."""

from __future__ import annotations

import io
import struct
from functools import cache
from typing import Any

import av
import numpy as np

from bench.sets import speech
from bench.tones import MAKERS, pcm
from tests.sounds import Samples, joined, noise, silence, tone, wav

RATE_HZ = 16_000


class Pipe:
    """Takes bytes and cannot go back: a header written first can never be corrected."""

    def __init__(self) -> None:
        self.content = bytearray()

    def write(self, more: bytes) -> int:
        """Take some."""
        self.content += more
        return len(more)


def made(
    samples: Samples,
    container: str,
    codec: str,
    rate: int = RATE_HZ,
    *,
    bit_rate: int = 32_000,
    pipe: bool = False,
    starts_s: float = 0.0,
    file_options: dict[str, str] | None = None,
    **codec_options: str,
) -> bytes:
    """One channel through an encoder, with FFmpeg's options for the container and the codec.

    `starts_s`: the moment its first sample has by its timestamps.
    """
    out: Any = Pipe() if pipe else io.BytesIO()
    with av.open(out, "w", format=container, options=file_options or {}) as file:
        stream = file.add_stream(codec, rate=rate, options=codec_options)
        stream.layout = "mono"
        if bit_rate:
            stream.bit_rate = bit_rate
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate = rate
        resampler = av.AudioResampler(stream.format, "mono", rate, stream.frame_size or None)
        at = round(starts_s * rate)
        for part in [*resampler.resample(frame), *resampler.resample(None)]:
            part.pts = at
            at += part.samples
            file.mux(stream.encode(part))
        file.mux(stream.encode(None))
    return bytes(out.content) if pipe else out.getvalue()


def gated(seconds: float = 20.0, rate: int = RATE_HZ) -> Samples:
    """A tone of 220 Hz, on for a second and off for a second: cheap frames beside dear ones."""
    t = np.arange(round(seconds * rate)) / rate
    return (tone(seconds, 220, rate) * (np.sin(np.pi * t) > 0)).astype(np.int16)


def mp3(samples: Samples, rate: int = RATE_HZ, *, variable: bool = True, header: bool) -> bytes:
    """An MP3 of one or of changing bit rates, with a Xing (or Info) header or with none."""
    file_options = {"write_xing": str(int(header)), "id3v2_version": "0"}
    if not variable:
        return made(samples, "mp3", "libmp3lame", rate, file_options=file_options)
    quality = {"flags": "+qscale", "global_quality": str(118 * 4)}
    return made(
        samples, "mp3", "libmp3lame", rate, bit_rate=0, file_options=file_options, **quality
    )


def patched(content: bytes, tag: bytes, offset: int, form: str, value: int) -> bytes:
    """`content` with a number written `offset` bytes after the first `tag`."""
    changed = bytearray(content)
    struct.pack_into(form, changed, content.index(tag) + offset, value)
    return bytes(changed)


def junk_xing() -> bytes:
    """The letters Xing and junk where a Xing header would stand, inside a frame of sound."""
    content = bytearray(mp3(gated(), variable=False, header=False))
    content[13:33] = b"Xing" + b"\x00\x00\x00\x0f" + b"\x7f\xff\xff\xff" * 3  # MPEG-2, mono
    return bytes(content)


def noise_then_silence() -> bytes:
    """A radio call: 10 s of noise, 50 s of nothing, by changing bit rates without a header."""
    return mp3(joined([noise(10, level=0.2), silence(50)]), header=False)


def with_odd_list() -> bytes:
    """A WAV with a LIST chunk of odd size, padded as it should be, before its sound."""
    plain = wav(gated())
    chunk = b"LIST" + struct.pack("<I", 7) + b"INFOabc\x00"
    return plain[:36] + chunk + plain[36:]


def browser_webm(live: bool) -> bytes:
    """What a browser's recorder makes: Opus in WebM, written as it comes, without a duration."""
    options = {"live": "1"} if live else {}
    return made(gated(rate=48_000), "webm", "libopus", 48_000, pipe=True, file_options=options)


def cut_webm() -> bytes:
    """60 of 100 bytes of 20 s of noise (which costs as much in every second) as WebM."""
    whole = made(noise(20, 48_000), "webm", "libopus", 48_000, pipe=True)
    return whole[: len(whole) * 6 // 10]


def amr(seconds: int) -> bytes:
    """AMR of frames of 12.2 kb/s."""
    return b"#!AMR\n" + (b"\x3c" + bytes(31)) * (50 * seconds)


def damaged_m4a() -> bytes:
    """An m4a with 100 bytes in the middle of its sound turned over."""
    content = bytearray(made(gated(), "mp4", "aac"))
    middle = content.index(b"mdat") + len(content) // 3
    for at in range(middle, middle + 1_000, 10):
        content[at] ^= 0xFF
    return bytes(content)


def stereo(left: Samples, right: Samples, rate: int = RATE_HZ) -> bytes:
    """A WAV of two channels."""
    return wav(np.stack([left, right], axis=1).reshape(-1), rate, channels=2)


@cache
def said(piece: str) -> Samples:
    """What is said in one of bench/recordings, 16 kHz, without the silence around it."""
    return speech(piece)


def line(name: str, seconds: float) -> Samples:
    """A sound of a line on which nobody speaks (`bench.tones.MAKERS`)."""
    return pcm(MAKERS[name](seconds))


def louder(samples: Samples, decibels: float) -> Samples:
    """The same with its peak at so many dB of full scale."""
    peak = np.abs(samples.astype(np.float64)).max()
    return (samples / peak * 32_767 * 10 ** (decibels / 20)).round().astype(np.int16)
