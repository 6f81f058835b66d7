"""Survey: a recording comes in; its plan, and its speech packed for the engine, go out.

One decode serves everything: the exact length, the channels worth hearing, where speech lies in
them, and the packed samples (16 kHz, signed 16 bit, little endian, windows one after the other).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

import numpy as np

from pipeline.intake.channels import plan_channels
from pipeline.intake.decode import Decoded, Pcm, decode
from pipeline.intake.leaks import without_leaks
from pipeline.intake.opening import NamelessFile
from pipeline.intake.speech import speech_spans
from pipeline.recording import SAMPLE_RATE_HZ, Plan, SurveyReport, Window
from pipeline.scheduling.windows import Lull, plan_windows

PAUSE_S = 0.25
"""The shortest pause worth cutting at..."""
PAUSE_DB = -20.0
"""...and how far under the speech around it its power lies. Measured on speech without pauses: so
quiet for so long are 3 % of stretches of 5 s; of pauses of 0.3 s all are, with noise at -20 dB too.
Under louder noise no pause is believed, and the cut gets an overlap: dearer, never wrong."""
AROUND_S = 2.0
"""Before and after the stretch, what also tells how loud speech is."""

_HOP_S = 0.02
_FRAME_S = 0.1


def survey(
    file: NamelessFile, out: BinaryIO, file_name: str, max_duration_s: float, raw_format: str = ""
) -> SurveyReport:
    """Decode `file` once, plan its windows, write them packed to `out`.

    `raw_format`, or else `file_name`, declares headerless telephony. Raises TooLong, NoSamples,
    DamagedAudio (nothing decodes) and what `opening.open_audio` raises. No speech is no error: the
    plan has no windows and nothing is written.
    """
    sound = decode(file, file_name, max_duration_s, raw_format)
    chosen = plan_channels(sound.channels)
    kept = [sound.channels[number] for number in chosen.kept]
    spans, leaked_s = without_leaks([speech_spans(pcm) for pcm in kept], kept)
    windows = plan_windows(spans, quietest=lambda *place: quietest(kept, *place))
    write_packed(windows, kept, out)
    speech_s = sum(span.length_s for side in spans for span in side)
    reason = chosen.reason
    if leaked_s:
        reason += f"; {leaked_s:.1f} s that only leak from one into another are left out"
    tally = sound.tally
    plan = Plan(tally.plays_s, speech_s, chosen.labels, reason, windows, tally.silence_filled_s)
    return _surveyed(plan, sound)


def _surveyed(plan: Plan, sound: Decoded) -> SurveyReport:
    tally = sound.tally
    return SurveyReport(
        plan, tally.packets, tally.damaged, sound.container, sound.codec, len(sound.channels),
        len(tally.gaps), max(tally.gaps, key=lambda gap: gap.length_s, default=None),
    )  # fmt: skip


def write_packed(windows: Sequence[Window], channels: Sequence[Pcm], out: BinaryIO) -> None:
    """Write each window's samples, zeros in the gaps, at the place its `first_sample` says."""
    for window in windows:
        packed = np.zeros(window.sample_count, "<i2")
        for piece in window.pieces:
            at, start, count = (
                round(seconds * SAMPLE_RATE_HZ)
                for seconds in (piece.at_s, piece.start_s, piece.length_s)
            )
            taken = channels[window.channel][start : start + count]
            packed[at : at + len(taken)] = taken
        out.write(packed.data)


def quietest(channels: Sequence[Pcm], channel: int, from_s: float, to_s: float) -> Lull:
    """The middle of the quietest `PAUSE_S` between two moments of one channel; if it is a pause.

    Speech around it is taken to be as loud as the louder half of all 0.1 s from `AROUND_S` before
    the stretch to `AROUND_S` after it, in the mean.
    """
    first, last = _samples(from_s), _samples(to_s)
    heard = channels[channel][first:last].astype(np.float64)
    hop, length = _samples(_HOP_S), _samples(PAUSE_S)
    if len(heard) < length:
        return Lull(to_s, pause=False)
    energy = np.concatenate(([0.0], np.cumsum(heard**2)))
    starts = np.arange(0, len(heard) - length + 1, hop)
    powers = (energy[starts + length] - energy[starts]) / length
    best = int(np.argmin(powers))
    around = channels[channel][max(0, first - _samples(AROUND_S)) : last + _samples(AROUND_S)]
    pause = bool(powers[best] <= _loudness(around) * 10 ** (PAUSE_DB / 10))
    return Lull((first + int(starts[best]) + length // 2) / SAMPLE_RATE_HZ, pause)


def _loudness(pcm: Pcm) -> float:
    """Mean power of the louder half of a stretch's frames."""
    frame = _samples(_FRAME_S)
    frames = pcm[: len(pcm) // frame * frame].astype(np.float64).reshape(-1, frame)
    powers = np.sort((frames**2).mean(axis=1))
    return float(powers[len(powers) // 2 :].mean()) if len(powers) else 0.0


def _samples(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE_HZ)
