"""What a telephone line sounds of when nobody speaks: 16 kHz s16le, the same bytes each time.

Tones are those of the networks (ITU-T E.180 for ringing and busy, Q.23 for keys), the music is made
of chords, so that no recording has to be carried along.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

RATE_HZ = 16_000

KEYS = {
    **{k: (697, hz) for k, hz in zip("123", (1209, 1336, 1477), strict=True)},
    **{k: (770, hz) for k, hz in zip("456", (1209, 1336, 1477), strict=True)},
    **{k: (852, hz) for k, hz in zip("789", (1209, 1336, 1477), strict=True)},
    **{k: (941, hz) for k, hz in zip("*0#", (1209, 1336, 1477), strict=True)},
}
"""The two tones of each key, Hz."""

CHORDS = ((262, 330, 392), (220, 262, 330), (175, 220, 262), (196, 247, 294))
"""C, a, F, G: what half of all hold music is made of, Hz."""


def _tones(seconds: float, *hz: float, level: float = 0.2) -> np.ndarray:
    t = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    return level * np.mean([np.sin(2 * np.pi * f * t) for f in hz], axis=0)


def _pause(seconds: float) -> np.ndarray:
    return np.zeros(round(seconds * RATE_HZ))


def _over(seconds: float, *parts: np.ndarray) -> np.ndarray:
    """The parts in turn, over and over."""
    once = np.concatenate(parts)
    count = round(seconds * RATE_HZ)
    return np.tile(once, count // len(once) + 1)[:count]


def _white(seconds: float, db: float) -> np.ndarray:
    """White noise at `db` decibels of full scale (RMS)."""
    chance = np.random.default_rng(7)
    return 10 ** (db / 20) * chance.standard_normal(round(seconds * RATE_HZ))


def _pink(seconds: float, db: float) -> np.ndarray:
    """Noise that falls with 1/f, as a room and a line do."""
    bins = np.fft.rfft(_white(seconds, 0))
    bins[1:] /= np.sqrt(np.arange(1, len(bins)))
    sound = np.fft.irfft(bins)
    return 10 ** (db / 20) * sound / np.sqrt(np.mean(sound**2))


def _hold_music(seconds: float) -> np.ndarray:
    """Plucked chords with a tune over them, four notes a chord."""
    chance = np.random.default_rng(3)
    bars = []
    for _ in range(round(seconds / 2) + 1):
        chord = CHORDS[len(bars) % len(CHORDS)]
        t = np.arange(2 * RATE_HZ) / RATE_HZ
        bar = sum(np.sin(2 * np.pi * hz * n * t) / n**2 for hz in chord for n in (1, 2, 3))
        for beat in range(4):
            hz = 2 * chance.choice(chord)
            since = np.clip(t - beat / 2, 0, None)
            bar += 2 * np.sin(2 * np.pi * hz * since) * np.exp(-4 * since) * (t >= beat / 2)
        bars.append(0.06 * bar * np.exp(-0.4 * t))
    return np.concatenate(bars)[: round(seconds * RATE_HZ)]


def _keys(seconds: float) -> np.ndarray:
    presses = [part for k in "18005550199#" for part in (_tones(0.2, *KEYS[k]), _pause(0.15))]
    return _over(seconds, *presses, _pause(1.0))


MAKERS: Mapping[str, Callable[[float], np.ndarray]] = {
    "silence": _pause,
    "noise -60 dB": lambda s: _white(s, -60),
    "noise -30 dB": lambda s: _white(s, -30),
    "room -45 dB": lambda s: _pink(s, -45),
    "hum": lambda s: _tones(s, 50, 100, 150, 250, level=0.05) + _white(s, -60),
    "ring US": lambda s: _over(s, _tones(2, 440, 480), _pause(4)),
    "ring UK": lambda s: _over(
        s, _tones(0.4, 400, 450), _pause(0.2), _tones(0.4, 400, 450), _pause(2)
    ),
    "ring Europe": lambda s: _over(s, _tones(1, 425), _pause(4)),
    "busy": lambda s: _over(s, _tones(0.5, 425), _pause(0.5)),
    "beeps": lambda s: _over(s, _tones(0.1, 1000), _pause(0.9)),
    "fax": lambda s: _over(s, _tones(0.5, 1100), _pause(3), _tones(2.6, 2100)),
    "keys": _keys,
    "hold music": _hold_music,
    "hold music, quiet": lambda s: 0.05 * _hold_music(s),
}
"""Sound -> its samples (-1..1) for so many seconds."""


def line_sound(name: str, seconds: float = 30.0) -> bytes:
    """A sound of `MAKERS` as a window of speech would be: mono s16le at 16 kHz."""
    samples = np.clip(MAKERS[name](seconds), -1, 1) * 32_767
    return samples.astype("<i2").tobytes()
