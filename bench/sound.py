"""What the survey makes of sound: the figures of docs/audio.md, one table a question.

python -m bench.sound gaps --corpus FOLDER    silence put in, file by file
python -m bench.sound tones                   speech found where nobody speaks
python -m bench.sound twins                   one sound through two codecs: recognised?
python -m bench.sound leaks                   what leaks into the other side: left out?
python -m bench.sound plan                    what planning the channels of an hour costs
python -m bench.sound cost [--hours HOURS]    what each part of a survey of two sides costs
"""

from __future__ import annotations

import argparse
import io
import os
import time
from pathlib import Path
from typing import cast

import av
import numpy as np
from av.audio.stream import AudioStream

from bench.sets import RECORDINGS
from bench.survey_cost import survey_cost
from bench.tones import NOT_SPEECH, RATE, melody
from pipeline.errors import RecordingRefused
from pipeline.intake.alike import twin_of
from pipeline.intake.channels import plan_channels
from pipeline.intake.decode import Decoded, decode
from pipeline.intake.leaks import without_leaks
from pipeline.intake.opening import NamelessFile
from pipeline.intake.speech import speech_spans
from pipeline.recording import Span
from tests.sounds import Samples, joined, noise, silence

LONGEST_S = 3_600.0
MELODIES = 80

CODECS = (
    ("wav", "pcm_mulaw", 8_000, None), ("wav", "pcm_alaw", 8_000, None),
    ("wav", "adpcm_ima_wav", 8_000, None), ("wav", "adpcm_ms", 8_000, None),
    ("wav", "adpcm_g726", 8_000, 32_000), ("ogg", "libopus", 48_000, 24_000),
    ("ogg", "libopus", 48_000, 12_000), ("mp3", "libmp3lame", 8_000, 16_000),
    ("ipod", "aac", 16_000, 32_000), ("amr", "libopencore_amrnb", 8_000, 12_200),
)  # fmt: skip
"""Container, codec, Hz, bits a second."""


def main() -> None:
    """Print the table asked for."""
    asked = argparse.ArgumentParser(prog="python -m bench.sound")
    asked.add_argument("table", choices=sorted(_TABLES))
    asked.add_argument("--corpus", type=Path, default=RECORDINGS)
    asked.add_argument("--hours", type=float, default=1.0)
    given = asked.parse_args()
    _TABLES[given.table](given)


def gaps(given: argparse.Namespace) -> None:
    """Files with silence put in, and how many have none."""
    whole = 0
    for path in sorted(path for path in given.corpus.iterdir() if path.is_file()):
        try:
            tally = opened(path).tally
        except RecordingRefused:
            continue
        whole += not tally.gaps
        for gap in tally.gaps:
            print(f"{path.name}: {gap.length_s:.3f} s at {gap.start_s:.3f} s")
    print(f"{whole} files without a gap")


def tones(_: argparse.Namespace) -> None:
    """Seconds of speech found in each sound of a line, loud and 40 dB down, and in melodies."""
    for name, sound in NOT_SPEECH.items():
        loud_s, quiet_s = found_s(sound), found_s((sound * 0.01).astype(np.int16))
        print(f"{name:26} {len(sound) / RATE:5.1f} s: {loud_s:.1f} s loud, {quiet_s:.1f} s quiet")
    all_s = sum(len(melody(seed)) for seed in range(MELODIES)) / RATE
    wrong_s = sum(found_s(melody(seed)) for seed in range(MELODIES))
    print(f"{MELODIES} melodies: {wrong_s:.1f} of {all_s:.0f} s")


def twins(_: argparse.Namespace) -> None:
    """How alike one call is to itself through a codec, over all, and whether it is known again."""
    one = opened(RECORDINGS / "lost_phone.opus").channels[0]
    for container, codec, rate, bits in CODECS:
        other = through(one, container, codec, rate, bits)
        length = min(len(one), len(other))
        twin = twin_of(one[:length], other[:length])
        told = "twice" if twin is None else f"once ({twin.late_s * 1_000:+.1f} ms)"
        print(f"{codec:18} {rate:6} Hz {bits or '':6} heard {told}")


def leaks(_: argparse.Namespace) -> None:
    """Seconds of the other side's speech left in, and of one's own lost, by how loud it leaks."""
    left, right = call()
    own = [speech_spans(left), speech_spans(right)]
    own_s = sum(span.length_s for side in own for span in side)
    print(f"own speech {own_s:.1f} s")
    for leak_db in (20, 25, 30):
        for late_ms in (0, 20):
            sides = leaking(left, right, leak_db, late_ms)
            found = [speech_spans(side) for side in sides]
            kept, left_out_s = without_leaks(found, sides)
            lost_s = sum(missing_s(o, k) for o, k in zip(own, kept, strict=True))
            more_s = sum(missing_s(k, o) for o, k in zip(own, kept, strict=True))
            print(
                f"-{leak_db} dB, {late_ms:2} ms later: {left_out_s:.1f} s left out, "
                f"{more_s:.1f} s too much kept, {lost_s:.1f} s of own speech lost"
            )


def plan(_: argparse.Namespace) -> None:
    """Processor seconds for the channels of one hour of a stereo call."""
    left, right = call()
    times = int(3_600 * RATE / len(left)) + 1
    late = np.concatenate((silence(0.02), left))[: len(left)]
    for name, other in (("two sides", right), ("one sound, 20 ms later", late)):
        hour = [np.tile(side, times)[: 3_600 * RATE] for side in (left, other)]
        began_s = time.process_time()
        reason = plan_channels(hour).reason
        print(f"{name}: {time.process_time() - began_s:.2f} s ({reason})")


def cost(given: argparse.Namespace) -> None:
    """Processor seconds of each part of a survey, and of the whole in the sandbox."""
    left, right = call()
    quiet = [line(left, right, 90, 0, 1), line(right, left, 90, 0, 2)]
    for name, sides in (("nothing leaks", quiet), ("each leaks", leaking(left, right, 25, 20))):
        parts, whole = survey_cost(sides, given.hours)
        print(f"{given.hours:g} h, {name}: {whole.outcome}")
        print("  " + ", ".join(f"{part} {spent_s:.2f} s" for part, spent_s in parts.items()))
        print(
            f"  the whole in the sandbox: {whole.cpu_s:.1f} s, {whole.memory_mb:.0f} MB", flush=True
        )


_TABLES = {
    "gaps": gaps, "tones": tones, "twins": twins, "leaks": leaks, "plan": plan, "cost": cost,
}  # fmt: skip


def opened(path: Path) -> Decoded:
    """A file decoded in this process."""
    with path.open("rb") as file:
        return decode(NamelessFile(file.fileno()), path.name, LONGEST_S)


def found_s(sound: Samples) -> float:
    """Seconds of speech found."""
    return sum(span.length_s for span in speech_spans(sound))


def missing_s(spans: list[Span], among: list[Span]) -> float:
    """Seconds of `spans` that none of `among` covers, but for the pad at their edges."""
    within = sum(
        max(0.0, min(a.end_s, b.end_s) - max(a.start_s, b.start_s)) for a in spans for b in among
    )
    return sum(span.length_s for span in spans) - within


def call() -> tuple[Samples, Samples]:
    """Two recordings speak by turns, one on each side."""
    names = ("lost_phone.opus", "late_flight.ogg", "new_address.mp3", "hotel.flac")
    left, right = [], []
    for number, name in enumerate(names):
        said = opened(RECORDINGS / name).channels[0]
        quiet = np.zeros(len(said), np.int16)
        for side, sound in ((left, said), (right, quiet)) if number % 2 else (
            (left, quiet), (right, said),
        ):  # fmt: skip
            side += [sound, silence(0.5)]
    return joined(left), joined(right)


def leaking(left: Samples, right: Samples, leak_db: float, late_ms: float) -> list[Samples]:
    """Both sides of a call with a trace of each in the other."""
    return [line(left, right, leak_db, late_ms, 1), line(right, left, leak_db, late_ms, 2)]


def line(own: Samples, other: Samples, leak_db: float, late_ms: float, seed: int) -> Samples:
    """One side as recorded: its own, the other's trace, its noise at -62 dB."""
    trace = np.concatenate((silence(late_ms / 1_000), other))[: len(other)] * 10 ** (-leak_db / 20)
    heard = own + trace + noise(len(own) / RATE, level=0.0008, seed=seed)[: len(own)]
    return np.asarray(heard.clip(-32_768, 32_767).astype(np.int16))


def through(pcm: Samples, container: str, codec: str, rate: int, bits: int | None) -> Samples:
    """The sound after an encoder and our decoder."""
    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        stream = cast(AudioStream, file.add_stream(codec, rate=rate))
        stream.layout = "mono"
        if bits:
            stream.bit_rate = bits
        frame = av.AudioFrame.from_ndarray(pcm[None], format="s16", layout="mono")
        frame.sample_rate = RATE
        resampler = av.AudioResampler(stream.format, "mono", rate, stream.frame_size or None)
        for part in [*resampler.resample(frame), *resampler.resample(None), None]:
            file.mux(stream.encode(part))
    fd = os.memfd_create("encoded")
    try:
        os.write(fd, out.getvalue())
        return decode(NamelessFile(fd), "", LONGEST_S).channels[0]
    finally:
        os.close(fd)


if __name__ == "__main__":
    main()
