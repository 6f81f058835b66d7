"""Recordings of known words at known times, made when they are measured.

gapless     minutes of talk without any pause: sentences joined in a short crossfade, and every
            quiet stretch inside them taken down to a few hundredths of a second
two-sided   a call with a side in each channel, in turn
languages   sentences in German, Spanish and French by espeak-ng, where it is installed
"""

from __future__ import annotations

import random
import shutil
import subprocess
import wave
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.make_recordings import RECORDINGS as MADE
from bench.sets import RECORDINGS
from bench.truths import Said, Truth
from pipeline.errors import BadRequest
from pipeline.intake.decode import decode
from pipeline.intake.opening import NamelessFile
from pipeline.recording import SAMPLE_RATE_HZ

Samples = NDArray[np.float64]

SOURCE = "long_call.mp3"
"""Of what is shipped it has most sentences, of two voices, with 0.9 s between them."""

HOP_S = 0.01
QUIET_RMS = 60.0
"""Of 32768: below it nobody speaks in SOURCE."""

SENTENCE_PAUSE_S = 0.7
LONGEST_QUIET_S = 0.08
"""A stop consonant is silent for that long; a longer quiet stretch is a pause."""
LEFT_QUIET_S = 0.03
CROSSFADE_S = 0.015

GAPLESS_FILES, GAPLESS_S = 5, 300.0
TWO_SIDED_FILES, TWO_SIDED_S = 4, 120.0
TURN_S = 0.5
"""From the end of one side's sentence to the other's."""

SPOKEN = {
    "de": (
        "Guten Tag, ich möchte gerne meine neue Adresse angeben.",
        "Die Rechnung vom letzten Monat ist leider viel zu hoch.",
        "Der Zug in die Stadt fährt alle dreißig Minuten.",
    ),
    "es": (
        "Buenos días, quiero cambiar la dirección de mi cuenta.",
        "La factura del mes pasado es mucho más alta que la anterior.",
        "El tren a la ciudad sale cada treinta minutos.",
    ),
    "fr": (
        "Bonjour, je voudrais changer l'adresse de mon compte.",
        "La facture du mois dernier est beaucoup plus élevée que la précédente.",
        "Le train pour la ville part toutes les trente minutes.",
    ),
}


def gapless(folder: Path, files: int = GAPLESS_FILES, length_s: float = GAPLESS_S) -> list[Truth]:
    """`files` recordings of at least `length_s` seconds in which nobody pauses.

    Each speaks all sentences in an order of its own, again and again, none twice in a row.
    """
    chance = random.Random(11)
    takes = [(words, without_pauses(sound)) for words, sound in sentences()]
    made = []
    for number in range(files):
        sound, said = np.zeros(0), []
        bag: list[tuple[str, Samples]] = []
        while len(sound) < length_s * SAMPLE_RATE_HZ:
            bag = bag or chance.sample(takes, len(takes))
            words, take = bag.pop()
            if said and said[-1].text == words:
                continue
            begins_s = len(sound) / SAMPLE_RATE_HZ
            sound = crossfaded(sound, take)
            said.append(Said(words, None, begins_s, len(sound) / SAMPLE_RATE_HZ))
        path = folder / f"gapless-{number}.wav"
        write_wav(path, [sound])
        made.append(Truth(path.name, path, tuple(said), "en"))
    return made


def two_sided(
    folder: Path, files: int = TWO_SIDED_FILES, length_s: float = TWO_SIDED_S
) -> list[Truth]:
    """Calls of at least `length_s` seconds: a sentence on the left, one on the right, in turn."""
    chance = random.Random(12)
    takes = sentences()
    made = []
    for number in range(files):
        said: list[Said] = []
        sides: list[list[Samples]] = [[], []]
        at_s = 0.0
        while at_s < length_s:
            words, take = chance.choice(takes)
            long_s = len(take) / SAMPLE_RATE_HZ
            turn = len(said) % 2
            said.append(Said(words, ("left", "right")[turn], at_s, at_s + long_s))
            pause = np.zeros(round(TURN_S * SAMPLE_RATE_HZ))
            sides[turn] += [take, pause]
            sides[1 - turn] += [np.zeros(len(take)), pause]
            at_s += long_s + TURN_S
        path = folder / f"two-sided-{number}.wav"
        write_wav(path, [np.concatenate(side) for side in sides])
        made.append(Truth(path.name, path, tuple(said), "en"))
    return made


def languages(folder: Path) -> list[Truth]:
    """A sentence a file. Raises `BadRequest` where espeak-ng is not installed."""
    if shutil.which("espeak-ng") is None:
        raise BadRequest("espeak-ng is not installed, and nobody else here speaks other languages.")
    made = []
    for code, lines in SPOKEN.items():
        for number, line in enumerate(lines):
            path = folder / f"espeak-{code}-{number}.wav"
            words = ["espeak-ng", "-v", code, "-s", "150", "-w", str(path), line]
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
            made.append(Truth(path.name, path, (Said(line),), code))
    return made


@cache
def sentences() -> tuple[tuple[str, Samples], ...]:
    """Every sentence of SOURCE: its words, and its sound at 16 kHz without silence around it."""
    lines = next(one.lines for one in MADE if one.name == SOURCE)
    with (RECORDINGS / SOURCE).open("rb") as file:
        pcm = decode(NamelessFile(file.fileno()), SOURCE, 3_600.0).channels[0].astype(np.float64)
    pauses = [
        (first, last) for first, last in quiet_stretches(pcm, SENTENCE_PAUSE_S) if last < len(pcm)
    ]
    starts = [0, *(last for _, last in pauses)]
    ends = [*(first for first, _ in pauses), len(pcm)]
    parts = [pcm[a:b] for a, b in zip(starts, ends, strict=True)]
    assert len(parts) == len(lines), "a pause was taken for no pause, or the reverse"
    return tuple(zip(lines, parts, strict=True))


def without_pauses(sound: Samples) -> Samples:
    """The same speech, every pause in it cut down to `LEFT_QUIET_S`."""
    out, at = np.zeros(0), 0
    left = round(LEFT_QUIET_S * SAMPLE_RATE_HZ)
    for first, last in quiet_stretches(sound, LONGEST_QUIET_S):
        edge = first == 0 or last == len(sound)
        out = crossfaded(out, sound[at : first + (0 if edge else left)])
        at = last
    return crossfaded(out, sound[at:])


def quiet_stretches(sound: Samples, at_least_s: float) -> list[tuple[int, int]]:
    """Stretches under `QUIET_RMS` of at least so many seconds, as first and last sample."""
    hop = round(HOP_S * SAMPLE_RATE_HZ)
    energy = np.add.reduceat(sound**2, np.arange(0, len(sound), hop)) / hop
    quiet = np.concatenate(([False], energy < QUIET_RMS**2, [False]))
    edges = np.flatnonzero(np.diff(quiet.astype(np.int8))).reshape(-1, 2) * hop
    least = at_least_s * SAMPLE_RATE_HZ
    return [(int(a), min(int(b), len(sound))) for a, b in edges if b - a >= least]


def crossfaded(one: Samples, other: Samples) -> Samples:
    """The second after the first, over `CROSSFADE_S` both."""
    over = min(round(CROSSFADE_S * SAMPLE_RATE_HZ), len(one), len(other))
    if not over:
        return np.concatenate((one, other))
    rising = np.linspace(0.0, 1.0, over)
    mixed = one[-over:] * (1.0 - rising) + other[:over] * rising
    return np.concatenate((one[:-over], mixed, other[over:]))


def write_wav(path: Path, channels: Sequence[Samples]) -> None:
    """16 bit WAV at 16 kHz, channels of one length side by side."""
    samples = np.stack(channels, axis=1).clip(-32_768, 32_767).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(len(channels))
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE_HZ)
        file.writeframes(samples.tobytes())


def longest_pause_s(path: Path) -> float:
    """Of a mono recording made here: its longest quiet stretch, seconds."""
    with wave.open(str(path), "rb") as file:
        sound = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float64)
    found: Iterable[tuple[int, int]] = quiet_stretches(sound, HOP_S)
    return max(((b - a) / SAMPLE_RATE_HZ for a, b in found), default=0.0)
