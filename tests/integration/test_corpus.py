"""Recordings that break probes, each with its right value, through the sandbox.

The corpus is not part of this repository (its files have licences of their own); it is read beside
the checkout, and without it these tests are skipped.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from bench.sets import CORPUS
from pipeline.errors import (
    DamagedAudio,
    EmptyRecording,
    FairscribeError,
    NoAudioStream,
    NoSamples,
    NotAudio,
    RecordingRefused,
    TooLong,
)
from pipeline.intake.prober import Prober
from pipeline.recording import Probe, SurveyReport

pytestmark = pytest.mark.skipif(
    not (CORPUS / "manifest.tsv").exists(),
    reason="no audio corpus at ../shared/corpus beside this checkout",
)
SOUND = ("ok", "partial")
LONGEST_S = 11 * 3_600.0
"""One file lasts ten hours, in 72 kB."""
LONGEST_SURVEYED_S = 3_600.0
"""It is measured, but not listened to."""


@dataclass(frozen=True)
class Row:
    """One file of the corpus and what is true of it."""

    name: str
    category: str
    expected: str
    """ok, partial (damaged), reject, or reject_or_recover."""
    true_s: float

    def right(self, duration_s: float) -> bool:
        """Within 2 %, or a quarter of a second: encoders pad that much."""
        return abs(duration_s - self.true_s) <= max(0.02 * self.true_s, 0.25)


def rows() -> list[Row]:
    with (CORPUS / "manifest.tsv").open(encoding="utf-8") as file:
        found = csv.DictReader((line for line in file if not line.startswith("#")), delimiter="\t")
        return [
            Row(r["name"], r["category"], r["expected"], float(r["true_duration_s"] or 0))
            for r in found
        ]


@pytest.fixture(scope="module")
def prober() -> Iterator[Prober]:
    found = Prober(max_duration_s=LONGEST_S)
    yield found
    found.close()


@pytest.fixture(scope="module")
def probes(prober: Prober) -> dict[str, Probe | FairscribeError]:
    """What a probe says of each file."""
    found: dict[str, Probe | FairscribeError] = {}
    for row in rows():
        fd = os.open(CORPUS / row.name, os.O_RDONLY)
        try:
            found[row.name] = prober.probe(fd, row.name)
        except FairscribeError as refused:
            found[row.name] = refused
        finally:
            os.close(fd)
    return found


@pytest.fixture(scope="module")
def surveys(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, SurveyReport | FairscribeError]:
    """What a survey says of each file."""
    prober = Prober(max_duration_s=LONGEST_SURVEYED_S)
    found: dict[str, SurveyReport | FairscribeError] = {}
    out = os.open(tmp_path_factory.mktemp("packed") / "packed.s16", os.O_RDWR | os.O_CREAT)
    for row in rows():
        fd = os.open(CORPUS / row.name, os.O_RDONLY)
        try:
            found[row.name] = prober.survey(fd, out, row.name)
        except FairscribeError as refused:
            found[row.name] = refused
        finally:
            os.close(fd)
    os.close(out)
    prober.close()
    return found


def test_probed_lengths_are_right_in_99_of_100_files(
    probes: dict[str, Probe | FairscribeError],
) -> None:
    wrong = []
    sound = [row for row in rows() if row.expected in SOUND]
    for row in sound:
        found = probes[row.name]
        if not isinstance(found, Probe) or not row.right(found.duration_s):
            wrong.append((row.name, row.true_s, found))
    assert len(wrong) <= 0.01 * len(sound), wrong


def decoded_s(found: SurveyReport) -> float:
    return found.plan.duration_s - found.plan.silence_filled_s


def test_surveyed_lengths_are_right_in_99_of_100_files(
    surveys: dict[str, SurveyReport | FairscribeError],
) -> None:
    wrong = []
    sound = [r for r in rows() if r.expected in SOUND and r.true_s <= LONGEST_SURVEYED_S]
    for row in sound:
        found = surveys[row.name]
        # What the manifest holds true was counted by decoding: the silence put in was not there.
        if not isinstance(found, SurveyReport) or not row.right(decoded_s(found)):
            wrong.append((row.name, row.true_s, found))
    assert len(wrong) <= 0.01 * len(sound), wrong


def test_silence_is_put_in_only_where_sound_is_missing(
    surveys: dict[str, SurveyReport | FairscribeError],
) -> None:
    """Times in ms, encoders' delays and blocks of Vorbis fill nothing in a healthy file."""
    missing_s = {
        "m4a_edit_list_start_5s.m4a": 5.0,
        "webm_opus_gap_5s_to_10s.webm": 5.0,
        # its first frame is damaged and lasts this long
        "mutagen_52-too-short-block-size.flac": 0.104,
    }
    for row in rows():
        found = surveys[row.name]
        if isinstance(found, SurveyReport):
            expected_s = missing_s.get(row.name, 0.0)
            assert found.plan.silence_filled_s == pytest.approx(expected_s, abs=0.07), row.name


def test_ten_hours_in_a_small_file_are_not_decoded(
    surveys: dict[str, SurveyReport | FairscribeError],
) -> None:
    long = [row for row in rows() if row.expected == "ok" and row.true_s > LONGEST_SURVEYED_S]
    assert long
    for row in long:
        assert isinstance(surveys[row.name], TooLong), row.name


def test_what_is_no_sound_is_refused_with_a_reason(
    probes: dict[str, Probe | FairscribeError],
    surveys: dict[str, SurveyReport | FairscribeError],
) -> None:
    for row in rows():
        if row.expected == "reject":
            assert isinstance(probes[row.name], RecordingRefused), row.name
            assert isinstance(surveys[row.name], RecordingRefused), row.name


REASONS: dict[str, type[RecordingRefused]] = {
    "zero_byte.wav": EmptyRecording,
    "zero_byte.mp3": EmptyRecording,
    "wav_header_only_44.wav": NoSamples,
    "mm_stream.weba": NoSamples,  # the head of a live stream
    "mp4_video_only_no_audio.mp4": NoAudioStream,
    "wav_sample_rate_0.wav": DamagedAudio,
    "m4a_truncated_moov_lost.m4a": DamagedAudio,
    "mutagen_truncated-64bit.mp4": DamagedAudio,
    "mutagen_52-overwritten-metadata.flac": DamagedAudio,
    "mutagen_106-invalid-streaminfo.flac": DamagedAudio,
    "mutagen_ooming-header.flac": DamagedAudio,
    "mutagen_adif.aac": NotAudio,  # AAC with the one header nobody writes: FFmpeg knows it not
}
"""Why each file that is refused is refused; one that is not named begins like nothing we read."""


def test_what_is_refused_is_refused_for_the_right_reason(
    probes: dict[str, Probe | FairscribeError],
) -> None:
    refused = {row.name for row in rows() if row.expected == "reject"}
    found = {name: type(probes[name]) for name in refused}
    assert found == {name: REASONS.get(name, NotAudio) for name in refused}


def test_a_playlist_never_gives_another_files_sound(
    probes: dict[str, Probe | FairscribeError],
    surveys: dict[str, SurveyReport | FairscribeError],
) -> None:
    hostile = [row for row in rows() if row.category == "hostile"]
    assert hostile
    for row in hostile:
        assert isinstance(probes[row.name], NotAudio), row.name
        assert isinstance(surveys[row.name], NotAudio), row.name


def test_every_damaged_file_says_that_it_is_damaged_or_why_it_was_measured_anew(
    probes: dict[str, Probe | FairscribeError],
    surveys: dict[str, SurveyReport | FairscribeError],
) -> None:
    for row in rows():
        if row.expected == "partial":
            probed, surveyed = probes[row.name], surveys[row.name]
            assert isinstance(probed, Probe)
            assert isinstance(surveyed, SurveyReport)
            assert surveyed.damaged_packets or probed.reason, row.name


def test_speech_is_found_in_every_recording_of_speech(
    surveys: dict[str, SurveyReport | FairscribeError],
) -> None:
    for row in rows():
        if row.category == "speech":
            found = surveys[row.name]
            assert isinstance(found, SurveyReport), row.name
            assert found.plan.windows, row.name


def test_no_speech_is_found_in_silence(
    surveys: dict[str, SurveyReport | FairscribeError],
) -> None:
    for name in ("silence_3s_8k.wav", "opus_silence_20min.opus", "mutagen_silence-44-s.mp3"):
        found = surveys[name]
        assert isinstance(found, SurveyReport)
        assert found.plan.windows == ()


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("stereo_call_agentL_customerR_8k_mulaw.wav", ("left", "right")),
        ("stereo_call_opus.ogg", ("left", "right")),
        ("speech_fw_stereo_two_speakers.wav", ("left", "right")),
        ("stereo_right_channel_silent_8k.wav", ("left",)),
    ],
)
def test_every_side_of_a_call_that_speaks_is_heard(
    surveys: dict[str, SurveyReport | FairscribeError], name: str, labels: tuple[str, ...]
) -> None:
    found = surveys[name]
    assert isinstance(found, SurveyReport)
    assert found.plan.channels == labels
    assert {window.channel for window in found.plan.windows} == set(range(len(labels)))
