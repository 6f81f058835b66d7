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
from pipeline.scheduling.windows import plan_windows

_HOP_S = 0.02
_LISTEN_S = 0.1


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


def quietest(channels: Sequence[Pcm], channel: int, from_s: float, to_s: float) -> float:
    """The middle of the quietest 0.1 s between two moments of one channel, in true time."""
    first = round(from_s * SAMPLE_RATE_HZ)
    heard = channels[channel][first : round(to_s * SAMPLE_RATE_HZ)].astype(np.float64)
    hop, length = round(_HOP_S * SAMPLE_RATE_HZ), round(_LISTEN_S * SAMPLE_RATE_HZ)
    if len(heard) < length:
        return to_s
    energy = np.concatenate(([0.0], np.cumsum(heard**2)))
    starts = np.arange(0, len(heard) - length + 1, hop)
    best = int(starts[np.argmin(energy[starts + length] - energy[starts])])
    return (first + best + length // 2) / SAMPLE_RATE_HZ
