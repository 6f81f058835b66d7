"""Headerless telephony: declared by an option or a name, decoded at the rate declared."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import BadRequest, NoSamples
from pipeline.intake.container import probe
from pipeline.intake.decode import Decoded, decode
from pipeline.intake.opening import NamelessFile
from pipeline.intake.raw import EXTENSIONS, NAMES, read_raw_format
from pipeline.recording import Probe
from tests.sounds import encoded, tone, write


def both(folder: Path, content: bytes, name: str, raw_format: str) -> tuple[Probe, Decoded]:
    """A file probed, and decoded."""
    fd = os.open(write(folder, "upload", content), os.O_RDONLY)
    try:
        found = probe(NamelessFile(fd), name, 3_600.0, raw_format)
        return found, decode(NamelessFile(fd), name, 3_600.0, raw_format)
    finally:
        os.close(fd)


def loudest_hz(sound: Decoded) -> float:
    (pcm,) = sound.channels
    return float(np.abs(np.fft.rfft(pcm.astype(float))).argmax() * 16_000 / len(pcm))


def mulaw(rate: int) -> bytes:
    return encoded(tone(4, rate=rate), "mulaw", "pcm_mulaw", rate)


def alaw(rate: int) -> bytes:
    return encoded(tone(4, rate=rate), "alaw", "pcm_alaw", rate)


def sln(rate: int) -> bytes:
    return tone(4, rate=rate).tobytes()


@pytest.mark.parametrize(
    ("content", "name", "raw_format", "rate_hz"),
    [
        (mulaw(8_000), "call", "mulaw", 8_000),
        (mulaw(16_000), "call", "mulaw@16000", 16_000),
        (alaw(11_025), "call", "alaw@11025", 11_025),
        (sln(8_000), "call", "sln", 8_000),
        (sln(48_000), "call", "sln@48000", 48_000),
        (encoded(tone(4), "g722", "g722"), "call", "g722", 16_000),
        (encoded(tone(4), "g722", "g722"), "call", "g722@16000", 16_000),
        (sln(8_000), "call.sln", "", 8_000),
        (sln(12_000), "call.sln12", "", 12_000),
        (sln(16_000), "CALL.SLN16", "", 16_000),
        (sln(24_000), "call.sln24", "", 24_000),
        (sln(32_000), "call.sln32", "", 32_000),
        (sln(44_100), "call.sln44", "", 44_100),
        (sln(48_000), "call.sln48", "", 48_000),
        (mulaw(8_000), "call.ulw", "", 8_000),
        (alaw(8_000), "call.alw", "", 8_000),
        (sln(16_000), "call.ulaw", "sln@16000", 16_000),  # the option wins over the name
        (mulaw(8_000), "call.wav", "mulaw", 8_000),
        (mulaw(8_000), "звонок ☎.pcm", "mulaw", 8_000),
    ],
)
def test_declared_sound_has_its_length_and_pitch_at_the_rate_declared(
    tmp_path: Path, content: bytes, name: str, raw_format: str, rate_hz: int
) -> None:
    """440 Hz for 4 s: a wrong rate would change both."""
    found, sound = both(tmp_path, content, name, raw_format)
    assert (found.source, found.container, found.sample_rate_hz) == ("declared", "raw", rate_hz)
    assert found.duration_s == pytest.approx(4.0, abs=0.01)
    assert sound.tally.duration_s == pytest.approx(4.0, abs=0.01)
    assert sound.tally.damaged == 0
    assert loudest_hz(sound) == pytest.approx(440.0, abs=1.0)


def test_dialogic_sound_at_6000_hz_lasts_longer_than_at_8000_hz(tmp_path: Path) -> None:
    content = bytes(range(256)) * 94  # 24064 bytes, two samples each
    at_6000, sound = both(tmp_path, content, "call.vox", "vox@6000")
    at_8000, _ = both(tmp_path, content, "call.vox", "")
    assert at_6000.duration_s == pytest.approx(48_128 / 6_000)
    assert sound.tally.duration_s == pytest.approx(48_128 / 6_000)
    assert at_8000.duration_s == pytest.approx(48_128 / 8_000)


@pytest.mark.parametrize(
    ("raw_format", "unit_bytes"), [("sln", 2), ("sln@16000", 2), ("gsm", 33), ("mulaw", 1)]
)
def test_a_unit_cut_off_at_the_end_costs_itself_and_nothing_else(
    tmp_path: Path, raw_format: str, unit_bytes: int
) -> None:
    frame = b"\xd0" + bytes(unit_bytes - 1)  # the first four bits of a GSM frame are always 13
    whole, heard = both(tmp_path, frame * 4_000, "call", raw_format)
    for more in range(1, unit_bytes):
        cut, sound = both(tmp_path, frame * 4_000 + frame[:more], "call", raw_format)
        assert cut == whole
        assert sound.tally.damaged == heard.tally.damaged == 0
        assert sound.tally.samples == heard.tally.samples


@pytest.mark.parametrize(("content", "raw_format"), [(b"\1", "sln"), (b"\xd0" * 32, "gsm")])
def test_less_than_one_unit_is_no_sound(tmp_path: Path, content: bytes, raw_format: str) -> None:
    fd = os.open(write(tmp_path, "upload", content), os.O_RDONLY)
    with pytest.raises(NoSamples):
        probe(NamelessFile(fd), "call", 60.0, raw_format)
    with pytest.raises(NoSamples):
        decode(NamelessFile(fd), "call", 60.0, raw_format)
    os.close(fd)


@pytest.mark.parametrize("extension", ["pcm", "raw", "sw", "wav", ""])
def test_an_extension_that_programs_mean_differently_declares_nothing(extension: str) -> None:
    assert extension not in EXTENSIONS


@pytest.mark.parametrize("name", NAMES)
def test_a_name_alone_means_the_usual_rate(name: str) -> None:
    form = read_raw_format(name)
    assert form.sample_rate_hz == (16_000 if name == "g722" else 8_000)
    assert read_raw_format(f"{name}@{form.sample_rate_hz}") == form


@pytest.mark.parametrize("text", ["", "opus", "sln@", "@8000", "sln@-1", "sln@1e4", "sln 16000"])
def test_what_declares_nothing_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(BadRequest, match="raw_format is one of"):
        read_raw_format(text)
