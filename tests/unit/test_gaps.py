"""Where sound is missing, silence keeps the times of what follows."""

from __future__ import annotations

import io
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import cast

import av
import numpy as np
import pytest
from av.audio.stream import AudioStream
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import TooLong
from pipeline.intake.decode import Decoded, Tracks, count, decode
from pipeline.intake.gaps import LONGEST_GAP_S, RESTART_S, TOLERANCE_S, Clock
from pipeline.intake.opening import NamelessFile, open_audio
from tests.sounds import Samples, encoded, noise, sides, tone, wav, write

Decode = Callable[..., Decoded]
RATES = {"aac": 16_000, "libopus": 48_000}


@pytest.fixture
def decoded(tmp_path: Path) -> Decode:
    """Decode bytes as a file of no name."""

    def _decoded(content: bytes, max_duration_s: float = 20_000.0) -> Decoded:
        fd = os.open(write(tmp_path, "upload", content), os.O_RDONLY)
        try:
            return decode(NamelessFile(fd), "", max_duration_s)
        finally:
            os.close(fd)

    return _decoded


def kept(
    samples: Samples, container: str, codec: str, when: Callable[[float], float | None]
) -> bytes:
    """Encoded at the codec's rate; `when` moves each packet's time (s), or drops it by None."""
    rate = RATES[codec]
    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        stream = cast(AudioStream, file.add_stream(codec, rate=rate))
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate, frame.pts = rate, 0
        resampler = av.AudioResampler(stream.format, "mono", rate, stream.frame_size or None)
        parts = [*resampler.resample(frame), *resampler.resample(None)]
        for packet in [p for part in [*parts, None] for p in stream.encode(part)]:
            assert packet.pts is not None
            at_s = when(float(packet.pts * packet.time_base))
            if at_s is not None:
                packet.pts = packet.dts = round(at_s / packet.time_base)
                file.mux(packet)
    return out.getvalue()


def beep_at_s(pcm: Samples) -> float:
    """When the first loud sound begins, to 20 ms."""
    blocks = np.abs(pcm[: len(pcm) // 320 * 320].reshape(-1, 320).astype(float)).max(axis=1)
    return float(np.argmax(blocks > 3_000) * 0.02)


def marked(codec: str, at_s: float, of_s: float) -> Samples:
    """Faint noise with one second of a tone in it."""
    rate = RATES[codec]
    faint = noise(of_s, rate, level=0.002)
    faint[round(at_s * rate) : round((at_s + 1) * rate)] += tone(1, rate=rate)
    return faint


@pytest.mark.parametrize(("container", "codec"), [("webm", "libopus"), ("ogg", "libopus")])
def test_what_follows_missing_packets_keeps_the_time_of_a_player(
    decoded: Decode, container: str, codec: str
) -> None:
    sound = marked(codec, 12, 15)
    found = decoded(kept(sound, container, codec, lambda at: None if 3 < at < 8.5 else at))
    (gap,) = found.tally.gaps
    assert gap.start_s == pytest.approx(3, abs=0.05)
    assert found.tally.silence_filled_s == pytest.approx(5.5, abs=0.06)
    assert found.tally.plays_s == pytest.approx(15, abs=0.06)
    assert len(found.channels[0]) / 16_000 == pytest.approx(found.tally.plays_s, abs=0.002)
    assert beep_at_s(found.channels[0]) == pytest.approx(12, abs=0.05)
    assert not found.channels[0][round(3.2 * 16_000) : 8 * 16_000].any()


def test_many_gaps_do_not_add_up_to_a_shift(decoded: Decode) -> None:
    sound = marked("libopus", 57, 60)
    found = decoded(kept(sound, "webm", "libopus", lambda at: None if at % 2 > 1.5 else at))
    assert len(found.tally.gaps) > 25
    # the last gap is followed by nothing, so nobody knows of it
    assert found.tally.plays_s == pytest.approx(59.5, abs=0.05)
    assert beep_at_s(found.channels[0]) == pytest.approx(57, abs=0.05)


def test_sound_that_an_edit_list_holds_back_starts_when_it_is_played(decoded: Decode) -> None:
    found = decoded(kept(marked("aac", 2, 6), "mp4", "aac", lambda at: at + 5))
    assert found.tally.silence_filled_s == pytest.approx(5, abs=0.1)
    assert beep_at_s(found.channels[0]) == pytest.approx(7, abs=0.1)


def film(sound_from_s: float, pictures_from_s: float) -> bytes:
    """A grey film with three seconds of a tone."""
    out = io.BytesIO()
    with av.open(out, "w", format="matroska") as file:
        pictures = file.add_stream("mpeg4", rate=5)
        pictures.width, pictures.height, pictures.pix_fmt = 64, 48, "yuv420p"
        heard = file.add_stream("pcm_s16le", rate=16_000)
        heard.layout = "mono"
        grey = np.full((48, 64, 3), 90, np.uint8)
        for number in range(30):
            picture = av.VideoFrame.from_ndarray(grey, format="rgb24")
            picture.pts = number + round(pictures_from_s * 5)
            file.mux(pictures.encode(picture))
        file.mux(pictures.encode(None))
        frame = av.AudioFrame.from_ndarray(tone(3)[None], format="s16", layout="mono")
        frame.sample_rate, frame.pts = 16_000, round(sound_from_s * 16_000)
        file.mux(heard.encode(frame))
        file.mux(heard.encode(None))
    return out.getvalue()


@pytest.mark.parametrize("stream_began_s", [0, 500])
def test_sound_that_begins_after_the_picture_starts_when_it_is_played(
    decoded: Decode, stream_began_s: float
) -> None:
    found = decoded(film(stream_began_s + 2.5, stream_began_s))
    assert beep_at_s(found.channels[0]) == pytest.approx(2.5, abs=0.05)
    assert found.tally.plays_s == pytest.approx(5.5, abs=0.05)


@pytest.mark.parametrize("container", ["ogg", "webm"])
def test_a_recording_cut_from_a_live_stream_gets_no_silence(
    decoded: Decode, container: str
) -> None:
    found = decoded(kept(noise(5, 48_000), container, "libopus", lambda at: at + 3_600))
    assert found.tally.gaps == []
    assert found.tally.plays_s == pytest.approx(5, abs=0.1)


def test_a_chain_of_recordings_gets_no_silence(decoded: Decode) -> None:
    part = encoded(noise(3), "ogg", "libopus", 48_000)
    found = decoded(part + part)
    assert found.tally.gaps == []


@pytest.mark.parametrize("jump_s", [LONGEST_GAP_S + 5, 1e5, 1e9])
def test_a_clock_set_anew_gets_no_silence(decoded: Decode, jump_s: float) -> None:
    moved = kept(noise(6, 48_000), "webm", "libopus", lambda at: at + (jump_s if at > 3 else 0))
    found = decoded(moved)
    assert found.tally.gaps == []
    assert found.tally.plays_s == pytest.approx(6, abs=0.1)


def test_silence_counts_against_the_longest_recording_and_takes_no_memory_first(
    decoded: Decode,
) -> None:
    content = kept(noise(6, 48_000), "webm", "libopus", lambda at: at + (3_000 if at > 3 else 0))
    assert decoded(content).tally.plays_s == pytest.approx(3_006, abs=0.1)
    tracemalloc.start()
    with pytest.raises(TooLong):
        decoded(content, max_duration_s=60.0)
    assert tracemalloc.get_traced_memory()[1] < 8_000_000
    tracemalloc.stop()


def test_a_damaged_packet_is_silent_for_as_long_as_it_lasts(decoded: Decode) -> None:
    whole = kept(marked("aac", 8, 10), "mp4", "aac", lambda at: at)
    at = whole.index(b"mdat") + (len(whole) - whole.index(b"mdat")) // 3
    broken = decoded(whole[:at] + b"\xa5" * 1_200 + whole[at + 1_200 :])
    assert broken.tally.damaged
    assert broken.tally.plays_s == pytest.approx(decoded(whole).tally.plays_s, abs=0.005)
    assert beep_at_s(broken.channels[0]) == beep_at_s(decoded(whole).channels[0])


def test_silence_frames_of_amr_last_as_long_as_they_stand_for(decoded: Decode) -> None:
    """A phone that hears nobody sends SID frames and NO_DATA: 20 ms each, some of 5 bytes."""
    speech = b"\x3c" + bytes(31)
    sid, nothing = b"\x44" + bytes(5), b"\x7c"
    frames = speech * 50 + (sid + nothing * 7) * 25 + speech * 50
    found = decoded(b"#!AMR\n" + frames)
    assert found.tally.damaged == 0
    assert found.tally.plays_s == pytest.approx(300 * 0.02)


def test_both_sides_wait_for_one_gap() -> None:
    """And a mono stretch, a gap and a stereo stretch keep time and sides."""
    left, right = on_tracks([("mono", 8_000, 2.0, None), ("stereo", 16_000, 1.0, 5.0)])
    assert len(left) == len(right) == 6 * 16_000
    assert not left[int(2.1 * 16_000) : int(4.9 * 16_000)].any()
    assert left[: 2 * 16_000].any()
    assert np.array_equal(left[: 5 * 16_000], right[: 5 * 16_000])
    assert not np.array_equal(left[5 * 16_000 :], right[5 * 16_000 :])


def on_tracks(parts: list[tuple[str, int, float, float | None]]) -> tuple[Samples, ...]:
    """Frames of (layout, rate, seconds, start or None) put on tracks."""
    tracks = Tracks()
    for layout, rate, seconds, start_s in parts:
        mono = tone(seconds, 300, rate)
        samples = mono if layout == "mono" else sides(mono, tone(seconds, 700, rate))
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout=layout)
        frame.sample_rate = rate
        tracks.wait_until(start_s)
        tracks.add(frame)
    return tracks.close(0)


def test_a_recording_of_many_channels_may_be_shorter(
    decoded: Decode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.intake.decode.MOST_TRACK_S", 8.0)
    assert decoded(wav(sides(*[noise(4)] * 2), channels=2)).tally.plays_s == pytest.approx(4)
    with pytest.raises(TooLong, match="4 channels may last 2 s"):
        decoded(wav(sides(*[noise(4)] * 4), channels=4))


def test_a_count_finds_the_gaps_that_a_decode_finds(tmp_path: Path, decoded: Decode) -> None:
    content = kept(noise(9, 48_000), "webm", "libopus", lambda at: None if 3 < at < 8 else at)
    fd = os.open(write(tmp_path, "counted", content), os.O_RDONLY)
    with open_audio(NamelessFile(fd)) as source:
        counted = count(source, 60.0)
    os.close(fd)
    assert counted.gaps == decoded(content).tally.gaps
    assert counted.duration_s < 4.1


TIMES = st.one_of(
    st.floats(-1e16, 1e16), st.floats(0, 10), st.floats(0, 7_200), st.just(0.0), st.just(1e15)
)


@given(st.lists(TIMES, max_size=40), st.one_of(st.none(), st.floats(-1e9, 1e9)))
def test_no_times_whatever_make_one_gap_longer_than_the_longest(
    times: list[float], origin_s: float | None
) -> None:
    clock, so_far_s = Clock(origin_s), 0.0
    for at_s in times:
        missing_s = clock.missing_s(at_s, so_far_s)
        assert missing_s == 0 or TOLERANCE_S < missing_s <= LONGEST_GAP_S + 1e-6
        so_far_s += missing_s + 0.02


@given(st.lists(st.floats(-RESTART_S * 0.99, TOLERANCE_S * 0.99), max_size=200))
def test_times_that_tremble_fill_nothing(noises: list[float]) -> None:
    clock = Clock(0.0)
    assert [clock.missing_s(n * 0.02 + shake, n * 0.02) for n, shake in enumerate(noises)] == [
        0.0
    ] * len(noises)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0, 60)), min_size=1, max_size=30))
def test_a_clock_that_only_runs_forward_is_followed(parts: list[tuple[int, float]]) -> None:
    """After each stretch of 20 ms frames a gap: the sum is the clock's, within the tolerance."""
    clock, at_s, so_far_s = Clock(), 100.0, 0.0
    for frames, gap_s in parts:
        for _ in range(frames):
            so_far_s += clock.missing_s(at_s, so_far_s)
            assert abs(at_s - 100.0 - so_far_s) < TOLERANCE_S + 1e-3 or so_far_s == 0
            at_s, so_far_s = at_s + 0.02, so_far_s + 0.02
        at_s += gap_s
