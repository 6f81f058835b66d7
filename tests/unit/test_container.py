"""What a recording is and how long it lasts: files made here, each lying in its own way."""

from __future__ import annotations

import io
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from types import SimpleNamespace

import av
import pytest
from av.packet import Packet

from pipeline.errors import (
    DamagedAudio,
    EmptyRecording,
    NoAudioStream,
    NoSamples,
    NotAudio,
    RecordingRefused,
    TooLong,
)
from pipeline.intake.container import _Walk, probe
from pipeline.intake.headers import Unproven
from pipeline.intake.opening import NamelessFile
from pipeline.recording import Probe
from tests.sounds import encoded, mulaw_wav, noise, tone, video_without_sound, wav, write

Look = Callable[..., Probe]

WAV = wav(tone(10))
MP3 = encoded(tone(10), "mp3", "libmp3lame")
M4A = encoded(tone(10), "ipod", "aac")
OPUS = encoded(tone(10, rate=48_000), "ogg", "libopus", 48_000)
FLAC = encoded(tone(10), "flac", "flac")
NOISY_FLAC = encoded(noise(10), "flac", "flac")  # as many bytes in each second
LOW_ADTS = encoded(tone(5, rate=8_000), "adts", "aac", 8_000)
HIGH_ADTS = encoded(tone(5), "adts", "aac")
_PCM32_WAV = encoded(tone(10), "wav", "pcm_s32le")
FLOAT_WAV = _PCM32_WAV[:44] + b"\3" + _PCM32_WAV[45:]  # extensible: the subformat says float
WEBM = encoded(tone(10, rate=48_000), "webm", "libopus", 48_000)


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """Probe bytes as a file of a given name."""

    def _look(
        content: bytes, name: str = "call", max_duration_s: float = 3_600.0, raw_format: str = ""
    ) -> Probe:
        fd = os.open(write(tmp_path, "upload", content), os.O_RDONLY)
        try:
            return probe(NamelessFile(fd), name, max_duration_s, raw_format)
        finally:
            os.close(fd)

    return _look


def with_data_size(content: bytes, size: int) -> bytes:
    """A WAV whose data chunk claims `size` bytes."""
    at = content.index(b"data") + 4
    return content[:at] + struct.pack("<I", size) + content[at + 4 :]


@pytest.mark.parametrize(
    ("content", "source", "container", "codec"),
    [
        (WAV, "header", "wav", "pcm_s16le"),
        (mulaw_wav(tone(10, rate=8_000)), "header", "wav", "pcm_mulaw"),
        (MP3, "header", "mp3", "mp3"),
        (M4A, "header", "mov", "aac"),
        (OPUS, "header", "ogg", "opus"),
        (encoded(tone(10, rate=48_000), "ogg", "libopus", 48_000, 8_000), "header", "ogg", "opus"),
        (FLOAT_WAV, "header", "wav", "pcm_f32le"),
        (encoded(tone(10), "wav", "pcm_s24le"), "header", "wav", "pcm_s24le"),
        (FLAC, "scan", "flac", "flac"),
        (WEBM, "scan", "matroska", "opus"),
        (encoded(tone(10), "adts", "aac"), "scan", "aac", "aac"),
    ],
    ids=[
        *("wav", "mulaw", "mp3", "m4a", "opus", "small opus", "float wav", "24 bit wav"),
        *("flac", "webm", "adts"),
    ],
)
def test_a_sound_file_is_measured_by_the_cheapest_source_that_can_be_checked(
    look: Look, content: bytes, source: str, container: str, codec: str
) -> None:
    found = look(content)
    assert found.duration_s == pytest.approx(10.0, abs=0.25)
    assert (found.source, found.container, found.codec) == (source, container, codec)
    assert found.channels == 1
    assert found.exact is False


@pytest.mark.parametrize(
    ("content", "true_s"),
    [
        (with_data_size(WAV, 0), 10.0),  # the recorder crashed
        (with_data_size(WAV, 0xFFFFFFFF), 10.0),  # written to a pipe
        (WAV[: len(WAV) // 2], 5.0),  # the upload was cut
        (MP3[: len(MP3) // 2], 5.0),
        (MP3 + MP3, 20.0),  # two recordings joined, two headers of 10 s
        (OPUS + OPUS, 20.0),
        (NOISY_FLAC[: len(NOISY_FLAC) // 2], 5.0),
        (LOW_ADTS + HIGH_ADTS, 10.0),
    ],
    ids=[
        "size 0",
        "size unknown",
        "cut wav",
        "cut mp3",
        "two mp3",
        "two opus",
        "cut flac",
        "two rates",
    ],
)
def test_a_header_that_lies_is_not_believed(look: Look, content: bytes, true_s: float) -> None:
    found = look(content)
    assert found.source != "header"
    assert found.reason
    assert found.duration_s == pytest.approx(true_s, abs=0.5)


@pytest.mark.parametrize(
    ("content", "refused"),
    [
        (b"", EmptyRecording),
        (WAV[:44], NoSamples),
        (b"This is a letter about a call.\n" * 100, NotAudio),
        (b'{"call": 1}' * 100, NotAudio),
        (bytes(65_536), NotAudio),
        (b"ffconcat version 1.0\nfile other.wav\n", NotAudio),
        (b"#EXTM3U\n#EXTINF:10,\nfile:///etc/hostname\n#EXT-X-ENDLIST\n", NotAudio),
        (video_without_sound(), NoAudioStream),
        (M4A[: len(M4A) // 2], DamagedAudio),  # its index was at the end
        (FLAC[:42] + bytes(500), DamagedAudio),
    ],
    ids=[
        "empty", "header only", "text", "json", "zeros", "ffconcat", "hls", "film", "half m4a",
        "flac of zeros",
    ],
)  # fmt: skip
def test_what_holds_no_sound_is_refused_by_name(
    look: Look, content: bytes, refused: type[RecordingRefused]
) -> None:
    with pytest.raises(RecordingRefused) as caught:
        look(content, "call.wav")
    assert type(caught.value) is refused


def test_an_m4a_whose_tables_are_sound_but_whose_sound_is_not_is_refused(look: Look) -> None:
    at = M4A.index(b"mdat") + 4
    size = struct.unpack(">I", M4A[at - 8 : at - 4])[0] - 8
    with pytest.raises(DamagedAudio):
        look(M4A[:at] + b"\xa5" * size + M4A[at + size :])


@pytest.mark.parametrize(
    ("extension", "content", "true_s"),
    [
        ("ulaw", b"\xff" * 16_000, 2.0),
        ("al", b"\xd5" * 16_000, 2.0),
        ("sln", bytes(32_000), 2.0),
        ("g722", bytes(16_000), 2.0),
        ("gsm", bytes(3_300), 2.0),
        ("vox", bytes(8_000), 2.0),
    ],
)
def test_headerless_telephony_is_measured_when_its_name_declares_it(
    look: Look, extension: str, content: bytes, true_s: float
) -> None:
    found = look(content, f"call 1.{extension.upper()}")
    assert (found.source, found.duration_s, found.container) == ("declared", true_s, "raw")


@pytest.mark.parametrize("raw_format", ["", "mulaw", "sln@16000"])
@pytest.mark.parametrize(
    ("content", "container"),
    [
        (WAV, "wav"),
        (MP3, "mp3"),
        (MP3[MP3.index(b"\xff\xf3") :], "mp3"),  # without a tag: told by frames that follow
        (b"ID3\x04\0\0\0\0\0\0" + MP3[MP3.index(b"\xff\xf3") :], "mp3"),
        (HIGH_ADTS, "aac"),
        (OPUS, "ogg"),
    ],
    ids=["wav", "mp3", "mp3 without tag", "mp3 with tag", "adts", "ogg"],
)
def test_a_declaration_does_not_overrule_a_container(
    look: Look, content: bytes, container: str, raw_format: str
) -> None:
    assert look(content, "call.ulaw", raw_format=raw_format).container == container


@pytest.mark.parametrize("content", [WAV, MP3, FLAC, OPUS + OPUS], ids=["wav", "mp3", "flac", "2"])
def test_a_recording_over_the_limit_is_refused_by_every_source(look: Look, content: bytes) -> None:
    with pytest.raises(TooLong):
        look(content, max_duration_s=9.0)


def front_m4a() -> bytes:
    """Ten seconds whose index stands first, so that half of it can still be read."""
    path = Path(mkdtemp()) / "front.m4a"  # FFmpeg opens it again by its name to move the index
    with av.open(str(path), "w", format="ipod", options={"movflags": "faststart"}) as file:
        stream = file.add_stream("aac", rate=16_000)
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(noise(10)[None], format="s16", layout="mono")
        frame.sample_rate = 16_000
        resampler = av.AudioResampler(stream.format, "mono", 16_000, 1_024)
        for part in [*resampler.resample(frame), *resampler.resample(None), None]:
            file.mux(stream.encode(part))
    content = path.read_bytes()
    rmtree(path.parent)
    return content


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


@pytest.mark.parametrize(
    "content",
    [
        half(WAV),
        half(encoded(tone(10, rate=8_000), "wav", "adpcm_ima_wav", 8_000)),
        half(encoded(noise(10), "mp3", "libmp3lame")),
        half(front_m4a()),
        half(NOISY_FLAC),
        half(WEBM),
    ],
    ids=["wav", "adpcm wav", "mp3", "m4a", "flac", "webm"],
)
def test_a_recording_cut_in_half_is_measured_and_says_what_its_header_claims(
    look: Look, content: bytes
) -> None:
    found = look(content)
    assert found.duration_s == pytest.approx(5.0, abs=0.5)
    assert found.claimed_s == pytest.approx(10.0, abs=0.6)
    claimed = f"the header claims {found.claimed_s:.1f} s, {found.duration_s:.1f} s are there"
    assert found.cut_off == claimed


@pytest.mark.parametrize(
    "content",
    [
        WAV, MP3, M4A, OPUS, FLAC, WEBM, front_m4a(), HIGH_ADTS,
        with_data_size(WAV, 0),
        with_data_size(WAV, 0xFFFFFFFF),  # to a pipe
        with_data_size(WAV, 0x7FFFFFFF),
        with_data_size(WAV, 0x7FFFF000),
        with_data_size(WAV, 1_000),
        MP3 + MP3,
        WAV[: -len(WAV) // 20],  # a twentieth is missing
    ],
)  # fmt: skip
def test_a_header_that_claims_no_more_than_is_there_is_told_of_nothing(
    look: Look, content: bytes
) -> None:
    assert look(content).claimed_s is None
    assert look(content).cut_off is None


def silent_from_the_middle(gap_s: float) -> bytes:
    """Ten seconds of WebM, the second half of which plays so much later; its header knows it."""
    out = io.BytesIO()
    with av.open(io.BytesIO(WEBM)) as given, av.open(out, "w", format="webm") as file:
        stream = file.add_stream_from_template(given.streams.audio[0])
        for packet in given.demux(given.streams.audio[0]):
            if packet.pts is None or packet.time_base is None:
                continue
            if packet.pts * packet.time_base > 5:
                packet.pts = packet.dts = packet.pts + int(gap_s / packet.time_base)
            packet.stream = stream
            file.mux(packet)
    return out.getvalue()


def test_a_gap_that_is_filled_with_silence_cuts_nothing_off(look: Look) -> None:
    found = look(silent_from_the_middle(60))
    assert found.duration_s == pytest.approx(10, abs=0.1)
    assert "span 70" in found.reason
    assert found.cut_off is None
    # no silence is put in for longer than an hour: what the header claims is missing
    assert "claims 3710" in str(look(silent_from_the_middle(3_700)).cut_off)


def test_where_a_packet_does_not_decode_every_sample_is_counted(look: Look) -> None:
    """A header and a scan believe what packets say of themselves, so some must keep their word."""
    at = M4A.index(b"mdat") + 4 + 200  # in the second packet or the third
    found = look(M4A[:at] + b"\xa5" * 200 + M4A[at + 200 :])
    assert (found.source, found.exact) == ("decode", True)
    assert "does not decode" in found.reason
    assert 9.0 < found.duration_s < 10.2


@pytest.mark.parametrize(
    ("place", "form", "value"),
    [(24, "<I", 87_236_699), (24, "<I", 0xFFFFFFFF), (24, "<I", 1), (22, "<H", 65_535)],
    ids=["87 MHz", "4 GHz", "1 Hz", "65,535 channels"],
)
def test_a_form_no_recorder_writes_is_damage(look: Look, place: int, form: str, value: int) -> None:
    """A second of sound that claimed 87 MHz was 0.2 ms by its probe; resampling it took 3.5 s."""
    content = bytearray(wav(tone(20)))
    struct.pack_into(form, content, place, value)
    with pytest.raises(DamagedAudio):
        look(bytes(content))


def test_a_chunk_that_claims_4_gb_takes_no_memory(look: Look) -> None:
    content = bytearray(wav(tone(5)))
    struct.pack_into("<I", content, 16, 0xFFFFFFF0)
    tracemalloc.start()
    try:
        with pytest.raises(RecordingRefused):
            look(bytes(content))
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 10_000_000


def test_packets_without_a_length_are_not_a_recording_of_0_s() -> None:
    walk = _Walk(SimpleNamespace(time_base_s=1 / 8_000, container="wav"))
    for _ in range(2):
        walk.add(Packet(b"sound"))
    with pytest.raises(Unproven, match="how long"):
        walk.agreed_s()
