"""What a telephone line carries when nobody speaks: ring and busy tones, keys, fax, music on hold.

Frequencies and cadences of ITU-T E.180 (its Supplement 2 for countries), Q.23 (keys), T.30 (fax);
the music is made of chords and chance, so that no recording has to be carried along. The same bytes
each time. `NOT_SPEECH` is put before the voice detector, `MAKERS` before the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from pipeline.recording import SAMPLE_RATE_HZ as RATE
from tests.sounds import Samples

Sound = NDArray[np.float64]
"""Samples of one channel, of full scale (-1..1)."""

KEYS_HZ = {
    key: (low, high)
    for row, low in zip(("123", "456", "789", "*0#"), (697, 770, 852, 941), strict=True)
    for key, high in zip(row, (1_209, 1_336, 1_477), strict=True)
}
"""The two tones of each key."""

CHORDS = ((262, 330, 392), (220, 262, 330), (175, 220, 262), (196, 247, 294))
"""C, a, F, G: what half of all hold music is made of, Hz."""
ARPEGGIO = tuple((hz,) for chord in CHORDS for hz in (*chord, chord[1] * 2))


def pcm(sound: Sound) -> Samples:
    """16 bit samples of a sound; what is louder than full scale is cut."""
    return (np.clip(sound, -1, 1) * 32_767).astype(np.int16)


def pause(seconds: float) -> Sound:
    """Digital silence."""
    return np.zeros(round(seconds * RATE))


def tones(seconds: float, *hz: float, level: float = 0.2) -> Sound:
    """Steady tones together, each at `level` of full scale."""
    t = np.arange(round(seconds * RATE)) / RATE
    return level * sum((np.sin(2 * np.pi * f * t) for f in hz), np.zeros(len(t)))


def white(seconds: float, db: float, seed: int = 7) -> Sound:
    """White noise at `db` decibels of full scale (RMS)."""
    chance = np.random.default_rng(seed)
    return 10 ** (db / 20) * chance.standard_normal(round(seconds * RATE))


def pink(seconds: float, db: float) -> Sound:
    """Noise that falls with 1/f, as a room and a line do."""
    bins = np.fft.rfft(white(seconds, 0))
    bins[1:] /= np.sqrt(np.arange(1, len(bins)))
    sound = np.fft.irfft(bins)
    return 10 ** (db / 20) * sound / np.sqrt(np.mean(sound**2))


def over(seconds: float, *parts: Sound) -> Sound:
    """The parts in turn, over and over."""
    once = np.concatenate(parts)
    count = round(seconds * RATE)
    return np.tile(once, count // len(once) + 1)[:count]


def cadence(times: int, *parts: tuple[float, tuple[float, ...]]) -> Sound:
    """(seconds, frequencies) in turn; no frequencies: silence."""
    return np.concatenate([tones(seconds, *hz) for _ in range(times) for seconds, hz in parts])


def keys(pressed: str, on_s: float = 0.1, off_s: float = 0.1, level: float = 0.2) -> Sound:
    """A number dialled with touch tones."""
    parts = [(tones(on_s, *KEYS_HZ[key], level=level), pause(off_s)) for key in pressed]
    return np.concatenate([part for pair in parts for part in pair])


def notes(seconds: float, note_s: float, chords: tuple[tuple[float, ...], ...]) -> Sound:
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
    return 0.25 * np.concatenate(out)


def hold_music(seconds: float) -> Sound:
    """Plucked chords with a tune over them, four notes a chord."""
    chance = np.random.default_rng(3)
    bars: list[Sound] = []
    for _ in range(round(seconds / 2) + 1):
        chord = CHORDS[len(bars) % len(CHORDS)]
        t = np.arange(2 * RATE) / RATE
        bar = sum(np.sin(2 * np.pi * hz * n * t) / n**2 for hz in chord for n in (1, 2, 3))
        for beat in range(4):
            hz = 2 * chance.choice(chord)
            since = np.clip(t - beat / 2, 0, None)
            bar += 2 * np.sin(2 * np.pi * hz * since) * np.exp(-4 * since) * (t >= beat / 2)
        bars.append(0.06 * bar * np.exp(-0.4 * t))
    return np.concatenate(bars)[: round(seconds * RATE)]


def drums(seconds: float) -> Sound:
    """Bursts of noise and a low thump by turns, 120 a minute."""
    beat = RATE // 2
    t = np.arange(beat) / RATE
    snare = white(beat / RATE, -14, seed=1) * np.exp(-18 * t)
    thump = 0.27 * np.sin(2 * np.pi * 70 * t * np.exp(-3 * t)) * np.exp(-9 * t)
    return over(seconds, thump, snare)


def modem(seconds: float) -> Sound:
    """V.21 channel 2: 300 bits a second between 1650 and 1850 Hz, as a fax answers."""
    bits = np.random.default_rng(1).integers(0, 2, round(seconds * 300) + 1)
    hz = np.where(bits, 1_650, 1_850)[(np.arange(round(seconds * RATE)) * 300 // RATE)]
    return 0.2 * np.sin(2 * np.pi * np.cumsum(hz) / RATE)


def melody(seed: int) -> Samples:
    """16 s of a tune by chance: pace, pitch, timbre, vibrato and decay, half of them with drums."""
    r = np.random.default_rng(seed)
    note_s, base_hz = r.choice([0.15, 0.25, 0.4, 0.6, 1.0]), r.choice([110, 165, 220, 330, 440])
    harmonics, vibrato = int(r.integers(1, 12)), r.choice([0, 0.005, 0.02])
    decay, tilt = r.choice([0, 1, 3, 8]), r.choice([0.5, 1, 2])
    t = np.arange(round(note_s * RATE)) / RATE
    shape = np.exp(-decay * t) * np.minimum(1, t / 0.01) * np.minimum(1, (note_s - t) / 0.02)
    played = []
    for _ in range(int(16 / note_s)):
        hz = base_hz * 2 ** (r.choice([0, 2, 4, 5, 7, 9, 11, 12]) / 12)
        phase = 2 * np.pi * np.cumsum(hz * (1 + vibrato * np.sin(2 * np.pi * 5.5 * t))) / RATE
        heard = [h for h in range(1, harmonics + 1) if h * hz < 7_500]
        played.append(sum((np.sin(h * phase) / h**tilt for h in heard), np.zeros(len(t))) * shape)
    tune = np.concatenate(played)
    tune *= 0.3 / np.abs(tune).max()
    if r.random() < 0.5:
        tune += 0.5 * drums(len(tune) / RATE)[: len(tune)]
    return pcm(tune)


NOT_SPEECH: Mapping[str, Samples] = {
    name: pcm(sound)
    for name, sound in {
        "silence": pause(10),
        "noise at -60 dB": white(10, -60, seed=1),
        "noise": white(10, -20, seed=1),
        "dial tone, US": tones(10, 350, 440),
        "ring tone, US": cadence(4, (2.0, (440, 480)), (4.0, ())),
        "ring tone, UK": cadence(5, (0.4, (400, 450)), (0.2, ()), (0.4, (400, 450)), (2.0, ())),
        "ring tone, EU": cadence(4, (1.0, (425,)), (4.0, ())),
        "busy, US": cadence(12, (0.5, (480, 620)), (0.5, ())),
        "busy, EU": cadence(12, (0.5, (425,)), (0.5, ())),
        "congestion": cadence(30, (0.25, (480, 620)), (0.25, ())),
        "intercept (SIT)": cadence(
            5, (0.38, (950,)), (0.38, (1_400,)), (0.38, (1_800,)), (1.0, ())
        ),
        "keys": keys("0123456789*#" * 3),
        "keys held": keys("159#", on_s=1.0, off_s=0.5),
        "fax calling (CNG)": cadence(4, (0.5, (1_100,)), (3.0, ())),
        "fax answering (2100 Hz)": tones(5, 2_100),
        "modem (V.21)": modem(6),
        "music: chords": notes(16, 0.5, CHORDS),
        "music: slow chords": notes(24, 2.0, CHORDS),
        "music: arpeggio": notes(16, 0.2, ARPEGGIO),
        "music: drums": drums(16),
        "music: band": notes(16, 0.5, CHORDS) / 2 + notes(16, 0.25, ARPEGGIO) / 2 + drums(16) / 2,
    }.items()
}
"""For the voice detector, in which it must find no speech."""

MAKERS: Mapping[str, Callable[[float], Sound]] = {
    "silence": pause,
    "noise -60 dB": lambda s: white(s, -60),
    "noise -30 dB": lambda s: white(s, -30),
    "room -45 dB": lambda s: pink(s, -45),
    "hum": lambda s: tones(s, 50, 100, 150, 250, level=0.0125) + white(s, -60),
    "ring US": lambda s: over(s, tones(2, 440, 480, level=0.1), pause(4)),
    "ring UK": lambda s: over(
        s, tones(0.4, 400, 450, level=0.1), pause(0.2), tones(0.4, 400, 450, level=0.1), pause(2)
    ),
    "ring Europe": lambda s: over(s, tones(1, 425), pause(4)),
    "busy": lambda s: over(s, tones(0.5, 425), pause(0.5)),
    "beeps": lambda s: over(s, tones(0.1, 1000), pause(0.9)),
    "fax": lambda s: over(s, tones(0.5, 1100), pause(3), tones(2.6, 2100)),
    "keys": lambda s: over(s, keys("18005550199#", 0.2, 0.15, level=0.1), pause(1.0)),
    "hold music": hold_music,
    "hold music, quiet": lambda s: 0.05 * hold_music(s),
}
"""For the engine: sound -> its samples for so many seconds."""


def line_sound(name: str, seconds: float = 30.0) -> bytes:
    """A sound of `MAKERS` as a window of speech would be: mono s16le at 16 kHz."""
    return pcm(MAKERS[name](seconds)).astype("<i2").tobytes()
