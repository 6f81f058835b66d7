"""What a telephone line carries when nobody speaks: ring and busy tones, keys, fax, music on hold.

Frequencies and cadences of ITU-T E.180 (its Supplement 2 for countries), Q.23 (keys), T.30 (fax).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.recording import SAMPLE_RATE_HZ as RATE

Samples = NDArray[np.int16]

KEYS_HZ = {
    key: (low, high)
    for row, low in zip(("123", "456", "789", "*0#"), (697, 770, 852, 941), strict=True)
    for key, high in zip(row, (1_209, 1_336, 1_477), strict=True)
}


def silence(seconds: float) -> Samples:
    """Digital silence."""
    return np.zeros(round(seconds * RATE), np.int16)


def joined(parts: list[Samples]) -> Samples:
    """Sounds one after the other."""
    return np.concatenate(parts)


def noise(seconds: float, level: float = 0.1, seed: int = 1) -> Samples:
    """White noise, the same for the same seed."""
    values = np.random.default_rng(seed).standard_normal(round(seconds * RATE))
    return (level * 32_767 * values).clip(-32_768, 32_767).astype(np.int16)


def tones(seconds: float, *hz: float, level: float = 0.2) -> Samples:
    """Steady tones together, each at `level` of full scale."""
    t = np.arange(round(seconds * RATE)) / RATE
    both = sum((np.sin(2 * np.pi * f * t) for f in hz), np.zeros(len(t)))
    return (level * 32_767 * both).clip(-32_768, 32_767).astype(np.int16)


def cadence(times: int, *parts: tuple[float, tuple[float, ...]]) -> Samples:
    """(seconds, frequencies) in turn; no frequencies: silence."""
    return joined([tones(seconds, *hz) for _ in range(times) for seconds, hz in parts])


def keys(pressed: str, on_s: float = 0.1, off_s: float = 0.1) -> Samples:
    """A number dialled with touch tones."""
    return joined(
        [part for key in pressed for part in (tones(on_s, *KEYS_HZ[key]), silence(off_s))]
    )


def notes(seconds: float, note_s: float, chords: tuple[tuple[float, ...], ...]) -> Samples:
    """Plucked chords one after the other, four harmonics a note, dying away."""
    t = np.arange(round(note_s * RATE)) / RATE
    out = []
    for number in range(round(seconds / note_s)):
        chord = chords[number % len(chords)]
        wave = sum(
            (np.sin(2 * np.pi * f * h * t) / h for f in chord for h in (1, 2, 3, 4)),
            np.zeros(len(t)),
        )
        out.append(wave / len(chord) * np.exp(-2 * t / note_s) * np.minimum(1, t / 0.01))
    return (0.25 * 32_767 * np.concatenate(out)).clip(-32_768, 32_767).astype(np.int16)


def drums(seconds: float, beats_a_minute: float = 120) -> Samples:
    """Bursts of noise and a low thump by turns."""
    beat = round(60 / beats_a_minute * RATE)
    t = np.arange(beat) / RATE
    snare = noise(beat / RATE, level=0.2) * np.exp(-18 * t)
    thump = 9_000 * np.sin(2 * np.pi * 70 * t * np.exp(-3 * t)) * np.exp(-9 * t)
    bar = np.concatenate((thump, snare)).astype(np.int16)
    return np.tile(bar, int(seconds * RATE / len(bar)) + 1)[: round(seconds * RATE)]


def modem(seconds: float, seed: int = 1) -> Samples:
    """V.21 channel 2: 300 bits a second between 1650 and 1850 Hz, as a fax answers."""
    bits = np.random.default_rng(seed).integers(0, 2, round(seconds * 300) + 1)
    hz = np.where(bits, 1_650, 1_850)[(np.arange(round(seconds * RATE)) * 300 // RATE)]
    return (0.2 * 32_767 * np.sin(2 * np.pi * np.cumsum(hz) / RATE)).astype(np.int16)


def melody(seed: int, seconds: float = 16.0) -> Samples:
    """A tune by chance: its pace, pitch, timbre, vibrato and decay, half of them with drums."""
    r = np.random.default_rng(seed)
    note_s, base_hz = r.choice([0.15, 0.25, 0.4, 0.6, 1.0]), r.choice([110, 165, 220, 330, 440])
    harmonics, vibrato = int(r.integers(1, 12)), r.choice([0, 0.005, 0.02])
    decay, tilt = r.choice([0, 1, 3, 8]), r.choice([0.5, 1, 2])
    t = np.arange(round(note_s * RATE)) / RATE
    shape = np.exp(-decay * t) * np.minimum(1, t / 0.01) * np.minimum(1, (note_s - t) / 0.02)
    played = []
    for _ in range(int(seconds / note_s)):
        hz = base_hz * 2 ** (r.choice([0, 2, 4, 5, 7, 9, 11, 12]) / 12)
        phase = 2 * np.pi * np.cumsum(hz * (1 + vibrato * np.sin(2 * np.pi * 5.5 * t))) / RATE
        heard = [h for h in range(1, harmonics + 1) if h * hz < 7_500]
        played.append(sum((np.sin(h * phase) / h**tilt for h in heard), np.zeros(len(t))) * shape)
    tune = np.concatenate(played)
    tune *= 0.3 * 32_767 / np.abs(tune).max()
    if r.random() < 0.5:
        tune += drums(len(tune) / RATE)[: len(tune)] * 0.5
    return np.asarray(tune.clip(-32_768, 32_767).astype(np.int16))


CHORDS = (
    (262.0, 330.0, 392.0),
    (220.0, 262.0, 330.0),
    (175.0, 220.0, 262.0),
    (196.0, 247.0, 294.0),
)
ARPEGGIO = tuple((f,) for chord in CHORDS for f in (*chord, chord[1] * 2))

NOT_SPEECH = {
    "silence": silence(10),
    "noise at -60 dB": noise(10, level=0.001),
    "noise": noise(10),
    "dial tone, US": tones(10, 350, 440),
    "ring tone, US": cadence(4, (2.0, (440, 480)), (4.0, ())),
    "ring tone, UK": cadence(5, (0.4, (400, 450)), (0.2, ()), (0.4, (400, 450)), (2.0, ())),
    "ring tone, EU": cadence(4, (1.0, (425,)), (4.0, ())),
    "busy, US": cadence(12, (0.5, (480, 620)), (0.5, ())),
    "busy, EU": cadence(12, (0.5, (425,)), (0.5, ())),
    "congestion": cadence(30, (0.25, (480, 620)), (0.25, ())),
    "intercept (SIT)": cadence(5, (0.38, (950,)), (0.38, (1_400,)), (0.38, (1_800,)), (1.0, ())),
    "keys": keys("0123456789*#" * 3),
    "keys held": keys("159#", on_s=1.0, off_s=0.5),
    "fax calling (CNG)": cadence(4, (0.5, (1_100,)), (3.0, ())),
    "fax answering (2100 Hz)": tones(5, 2_100),
    "modem (V.21)": modem(6),
    "music: chords": notes(16, 0.5, CHORDS),
    "music: slow chords": notes(24, 2.0, CHORDS),
    "music: arpeggio": notes(16, 0.2, ARPEGGIO),
    "music: drums": drums(16),
    "music: band": (notes(16, 0.5, CHORDS) // 2 + notes(16, 0.25, ARPEGGIO)[: 16 * RATE] // 2)
    + drums(16) // 2,
}
