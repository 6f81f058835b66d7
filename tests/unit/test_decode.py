"""What comes out of the decoder, and out of a whole survey, in this process."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest

from pipeline.errors import DamagedAudio, NoSamples, TooLong
from pipeline.intake.decode import Decoded, Tracks, decode
from pipeline.intake.opening import NamelessFile
from pipeline.intake.pack import quietest, survey
from pipeline.recording import SAMPLE_RATE_HZ, SurveyReport
from tests.sounds import encoded, joined, noise, sides, silence, tone, voice, wav, write

Decode = Callable[..., Decoded]
Survey = Callable[..., tuple[SurveyReport, bytes]]

M4A = encoded(noise(10), "ipod", "aac")
MP3 = encoded(tone(10), "mp3", "libmp3lame")


@pytest.fixture
def decoded(tmp_path: Path) -> Decode:
    """Decode bytes as a file of a given name."""

    def _decoded(content: bytes, name: str = "call", max_duration_s: float = 3_600.0) -> Decoded:
        fd = os.open(write(tmp_path, "upload", content), os.O_RDONLY)
        try:
            return decode(NamelessFile(fd), name, max_duration_s)
        finally:
            os.close(fd)

    return _decoded


@pytest.fixture
def surveyed(tmp_path: Path) -> Survey:
    """Survey bytes; returns the report and the packed samples."""

    def _surveyed(content: bytes) -> tuple[SurveyReport, bytes]:
        out = io.BytesIO()
        fd = os.open(write(tmp_path, "upload", content), os.O_RDONLY)
        try:
            return survey(NamelessFile(fd), out, "call", 3_600.0), out.getvalue()
        finally:
            os.close(fd)

    return _surveyed


def loudest_hz(pcm: np.ndarray) -> float:
    return float(np.abs(np.fft.rfft(pcm.astype(float))).argmax() * 16_000 / len(pcm))


def test_sound_of_the_engines_own_rate_comes_out_as_it_went_in(decoded: Decode) -> None:
    sound = tone(3)
    (pcm,) = decoded(wav(sound)).channels
    assert np.array_equal(pcm, sound)


def test_channels_stay_apart(decoded: Decode) -> None:
    left, right = decoded(wav(sides(tone(2, 300), tone(2, 1_000)), channels=2)).channels
    assert loudest_hz(left) == pytest.approx(300, abs=2)
    assert loudest_hz(right) == pytest.approx(1_000, abs=2)


@pytest.mark.parametrize("rate", [8_000, 11_025, 44_100, 48_000])
def test_another_rate_changes_neither_length_nor_pitch(decoded: Decode, rate: int) -> None:
    found = decoded(wav(tone(3, 440, rate), rate))
    assert found.tally.duration_s == pytest.approx(3.0)
    assert len(found.channels[0]) == pytest.approx(48_000, abs=64)
    assert loudest_hz(found.channels[0]) == pytest.approx(440, abs=2)


def test_a_damaged_stretch_costs_that_stretch_and_is_counted(decoded: Decode) -> None:
    middle = len(M4A) // 2
    found = decoded(M4A[:middle] + b"\xa5" * 2_000 + M4A[middle + 2_000 :])
    assert 0 < found.tally.damaged < 20
    assert 8.0 < found.tally.duration_s < 10.5


def test_a_rate_that_changes_midway_is_followed(decoded: Decode) -> None:
    low = encoded(tone(4, rate=8_000), "adts", "aac", 8_000)
    high = encoded(tone(6, rate=16_000), "adts", "aac", 16_000)
    found = decoded(low + high)
    assert found.tally.duration_s == pytest.approx(10.0, abs=0.5)
    assert len(found.channels[0]) / 16_000 == pytest.approx(found.tally.duration_s, abs=0.1)
    assert loudest_hz(found.channels[0][-48_000:]) == pytest.approx(440, abs=2)


def test_mono_that_turns_to_stereo_keeps_its_beginning_on_both_sides() -> None:
    tracks = Tracks()
    for channels, level in ((1, 1_000), (2, 2_000), (1, 3_000)):
        layout = ("mono", "stereo")[channels - 1]
        planes = np.full((channels, 16_000), level, np.int16)
        planes[channels - 1] += 5
        frame = av.AudioFrame.from_ndarray(planes, format="s16p", layout=layout)
        frame.sample_rate = 16_000
        tracks.add(frame)
    left, right = tracks.close(0)
    assert left[::16_000].tolist() == [1_005, 2_000, 3_005]
    assert right[::16_000].tolist() == [1_005, 2_005, 3_005]


@pytest.mark.parametrize(
    ("name", "content", "true_s"),
    [("a.ulaw", b"\x80\x00" * 8_000, 2.0), ("a.vox", b"\x37\x9c" * 4_000, 2.0)],
)
def test_headerless_telephony_is_decoded_at_its_own_rate(
    decoded: Decode, name: str, content: bytes, true_s: float
) -> None:
    found = decoded(content, name)
    assert found.tally.duration_s == pytest.approx(true_s)
    assert len(found.channels[0]) == pytest.approx(true_s * 16_000, abs=64)


def test_samples_that_are_no_numbers_become_numbers(decoded: Decode) -> None:
    """One NaN that reaches the engine spoils every later request."""
    values = np.full(16_000, np.nan, np.float32)
    values[::3] = np.inf
    content = encoded(tone(1), "wav", "pcm_f32le")
    at = content.index(b"data") + 8
    (pcm,) = decoded(content[:at] + values.tobytes()).channels
    assert pcm.dtype == np.int16
    assert len(pcm) == 16_000


def test_no_more_is_decoded_than_a_recording_may_last(decoded: Decode) -> None:
    with pytest.raises(TooLong):
        decoded(MP3, max_duration_s=5.0)


def test_a_recording_of_exactly_the_limit_is_taken(decoded: Decode) -> None:
    assert decoded(wav(tone(10.1)), max_duration_s=10.1).tally.duration_s == 10.1


def test_a_header_without_sound_has_no_samples(decoded: Decode) -> None:
    with pytest.raises(NoSamples):
        decoded(wav(silence(0)))


def test_sound_of_which_nothing_decodes_is_damaged(decoded: Decode) -> None:
    at = M4A.index(b"mdat") + 4
    size = struct.unpack(">I", M4A[at - 8 : at - 4])[0] - 8
    with pytest.raises(DamagedAudio):
        decoded(M4A[:at] + b"\xa5" * size + M4A[at + size :])


def test_the_packed_speech_is_the_recordings_own(surveyed: Survey) -> None:
    """Each piece of each window holds the very samples its true time names."""
    left = joined([silence(1), voice(5, seed=1), silence(8)])
    right = joined([silence(8), voice(4, seed=2, pitch_hz=200), silence(2)])
    report, packed = surveyed(wav(sides(left, right), channels=2))
    pcm = np.frombuffer(packed, "<i2")
    assert report.plan.channels == ("left", "right")
    assert {w.channel for w in report.plan.windows} == {0, 1}
    assert len(pcm) == sum(w.sample_count for w in report.plan.windows)
    for window in report.plan.windows:
        source = (left, right)[window.channel]
        for piece in window.pieces:
            at = window.first_sample + round(piece.at_s * 16_000)
            start, count = round(piece.start_s * 16_000), round(piece.length_s * 16_000)
            assert np.array_equal(pcm[at : at + count], source[start : start + count])


def test_a_recording_in_which_nobody_speaks_has_a_plan_without_windows(surveyed: Survey) -> None:
    report, packed = surveyed(wav(tone(4)))
    assert report.plan.windows == ()
    assert report.plan.speech_s == 0
    assert report.plan.duration_s == pytest.approx(4.0)
    assert packed == b""


def test_a_long_speech_is_cut_at_its_quietest_moment(surveyed: Survey) -> None:
    sound = voice(40)
    sound[25 * 16_000 : 25 * 16_000 + 4_800] //= 200
    report, _ = surveyed(wav(sound))
    second = report.plan.windows[1]
    assert second.pieces[0].start_s == pytest.approx(25.15, abs=0.1)
    assert second.overlap_s == 0


def test_a_long_speech_without_a_pause_is_heard_twice_at_its_cut(surveyed: Survey) -> None:
    report, packed = surveyed(wav(voice(40)))
    pcm = np.frombuffer(packed, "<i2")
    first, second = report.plan.windows
    shared = round(second.overlap_s * 16_000)
    assert 3.0 <= second.overlap_s <= 5.0
    end = first.first_sample + first.sample_count
    start = second.first_sample
    assert np.array_equal(pcm[end - shared : end], pcm[start : start + shared])
    assert report.plan.speech_s == pytest.approx(
        first.speech_s + second.speech_s - second.overlap_s
    )


def test_the_quietest_moment_is_looked_for_on_the_channel_asked() -> None:
    loud, gap = noise(10), noise(10)
    gap[64_000:68_800] = 0
    lull = quietest([loud, gap], 1, 2.0, 7.0)
    assert (lull.at_s, lull.pause) == (pytest.approx(4.15, abs=0.06), True)
    assert not quietest([loud, gap], 0, 2.0, 7.0).pause


@pytest.mark.parametrize(
    ("quiet_s", "under_db", "pause"),
    [
        (0.4, 60, True),
        (0.3, 25, True),
        (0.3, 15, False),  # somebody speaks low, or there is noise
        (0.1, 60, False),  # the stop before a consonant
        (0.02, 90, False),  # a lost packet
    ],
)
def test_a_pause_is_long_enough_and_quiet_enough(
    quiet_s: float, under_db: float, pause: bool
) -> None:
    sound = voice(20)
    end = 160_000 + round(quiet_s * 16_000)
    hush = noise(quiet_s, level=0.1 * 10 ** (-under_db / 20))
    sound[160_000:end] = hush[: end - 160_000]
    assert quietest([sound], 0, 8.0, 13.0).pause is pause


def test_silence_throughout_is_a_pause() -> None:
    assert quietest([np.zeros(160_000, np.int16)], 0, 2.0, 7.0).pause


@pytest.mark.parametrize("count", [1, 2, 8, 16])
def test_every_channel_of_a_recording_of_many_keeps_its_own_samples(count: int) -> None:
    tracks = Tracks()
    layouts = {1: "mono", 2: "stereo", 8: "7.1", 16: "16 channels"}
    frame = av.AudioFrame(format="s16", layout=layouts[count], samples=1600)
    values = np.tile(np.arange(1, count + 1, dtype=np.int16) * 100, 1600)
    frame.planes[0].update(values.tobytes())
    frame.sample_rate = SAMPLE_RATE_HZ
    tracks.add(frame)
    heard = tracks.close(count)
    assert [int(np.median(channel)) for channel in heard] == [100 * (n + 1) for n in range(count)]
    assert {len(channel) for channel in heard} == {1600}


@pytest.mark.parametrize("rate_hz", [8_000, 16_000])
def test_samples_that_are_no_numbers_are_none_any_more_when_they_come_out(
    decoded: Decode, rate_hz: int
) -> None:
    # one NaN in an engine poisons its cache for other windows too
    samples = np.full(2 * rate_hz, 0.25, "<f4")
    samples[rate_hz : rate_hz + 30] = [np.nan, np.inf, -np.inf] * 10
    header = struct.pack(
        "<4sI4s4sIHHIIHH", b"RIFF", 0, b"WAVE", b"fmt ", 16, 3, 1, rate_hz, 0, 4, 32
    )
    data = samples.tobytes()
    (channel,) = decoded(header + b"data" + struct.pack("<I", len(data)) + data).channels
    assert channel.dtype == np.int16
    assert len(channel) == pytest.approx(32_000, abs=100)
    # and what stands before and after them is as it was
    for part in (channel[2_000:14_000], channel[18_000:30_000]):
        assert np.abs(part.astype(int) - 8_192).max() <= 2
