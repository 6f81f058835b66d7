"""No recording ever gives the sound of another file, whatever it says and whatever lies beside it.

Each file here is true to its format and points at a real recording, where a reader that follows it
would find it: in the reader's own folder, by its whole path, and by a descriptor.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import av
import pytest

from pipeline.errors import NotAudio, RecordingRefused
from pipeline.intake.prober import Prober
from tests.sounds import mulaw_wav, tone, wav, write

NEIGHBOUR_S = 37.0
"""A length that nothing else here has."""

HLS = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:60\n#EXTINF:37,\n{}\n#EXT-X-ENDLIST\n"
SDP = "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n"
MPD = (
    '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" '
    'mediaPresentationDuration="PT37S"><Period><AdaptationSet mimeType="audio/mp4">'
    '<Representation id="1" bandwidth="1"><BaseURL>{}</BaseURL></Representation>'
    "</AdaptationSet></Period></MPD>"
)
POINTERS = {
    "ffconcat": "ffconcat version 1.0\nfile '{}'\n",
    "ffconcat with a length": "ffconcat version 1.0\nfile '{}'\nduration 37\noutpoint 37\n",
    "concat without a head": "file '{}'\n",
    "hls": HLS,
    "hls with a key": HLS.replace("#EXTINF", '#EXT-X-KEY:METHOD=AES-128,URI="{}"\n#EXTINF'),
    "hls with a map": HLS.replace("#EXTINF", '#EXT-X-MAP:URI="{}"\n#EXTINF'),
    "hls master": "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n{}\n",
    "m3u": "{}\n",
    "dash": MPD,
    "pls": "[playlist]\nFile1={}\nLength1=37\nNumberOfEntries=1\n",
    "cue": 'FILE "{}" WAVE\n  TRACK 01 AUDIO\n    INDEX 01 00:00:00\n',
    "asx": '<asx version="3.0"><entry><ref href="{}"/></entry></asx>',
    "quicktime link": '<?xml version="1.0"?><?quicktime type="x"?><embed src="{}" />',
    "svg": '<svg xmlns="http://www.w3.org/2000/svg"><image href="{}"/></svg>',
    "sdp": SDP,
}
PLACES = [
    "neighbour.wav",
    "./neighbour.wav",
    "../{folder}/neighbour.wav",
    "{path}",
    "file:{path}",
    "file://{path}",
    "subfile,,start,0,end,0,,:{path}",
    "concat:{path}",
    "crypto:{path}",
    "/proc/self/fd/{fd}",
    "pipe:{fd}",
    "fd:{fd}",
    "link.wav",
]
NAMES = ["call.wav", "call.m3u8", "call.ffconcat", "call.mpd", "call.sdp", "call"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the sandbox was started, and everything lies."""
    made = tmp_path_factory.mktemp("storage")
    neighbour = write(made, "neighbour.wav", mulaw_wav(tone(NEIGHBOUR_S, rate=8_000)))
    (made / "link.wav").symlink_to(neighbour)
    return made


@pytest.fixture(scope="module")
def prober(folder: Path) -> Iterator[Prober]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        made = Prober()
    yield made
    made.close()


def pointing(folder: Path, pointer: str, place: str, fd: int) -> bytes:
    """A file of a format that says where the sound is."""
    there = place.format(path=folder / "neighbour.wav", folder=folder.name, fd=fd)
    return POINTERS[pointer].replace("{}", there).encode()


def test_the_attack_is_real(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What PyAV does by itself with 44 bytes: it reads somebody else's call."""
    monkeypatch.chdir(folder)
    upload = write(folder, "upload.wav", pointing(folder, "ffconcat", "neighbour.wav", 0))
    with av.open(str(upload)) as opened:
        heard = sum(frame.samples / frame.sample_rate for frame in opened.decode(audio=0))
    assert heard == pytest.approx(NEIGHBOUR_S)


@pytest.mark.parametrize("pointer", POINTERS)
def test_a_file_that_points_at_another_is_no_audio(
    folder: Path, prober: Prober, tmp_path: Path, pointer: str
) -> None:
    beside = os.open(folder / "neighbour.wav", os.O_RDONLY)
    out = os.memfd_create("packed")
    for number, place in enumerate(PLACES):
        content = pointing(folder, pointer, place, beside)
        fd = os.open(write(tmp_path, "upload", content), os.O_RDONLY)
        name = NAMES[number % len(NAMES)]
        with pytest.raises(NotAudio):
            prober.probe(fd, name)
        with pytest.raises(NotAudio):
            prober.survey(fd, out, name)
        assert os.fstat(out).st_size == 0
        os.close(fd)
    os.close(out)
    os.close(beside)


@pytest.mark.parametrize("raw_format", ["mulaw", "sln@16000", "vox"])
def test_a_pointer_declared_as_raw_sound_is_only_its_own_bytes(
    folder: Path, prober: Prober, tmp_path: Path, raw_format: str
) -> None:
    content = pointing(folder, "hls", "{path}", 0)
    fd = os.open(write(tmp_path, "upload", content), os.O_RDONLY)
    assert prober.probe(fd, "call", raw_format).duration_s < 0.1
    os.close(fd)


@pytest.mark.parametrize("pointer", ["ffconcat", "hls", "dash"])
def test_a_pointer_behind_sound_or_inside_it_is_not_followed(
    folder: Path, prober: Prober, tmp_path: Path, pointer: str
) -> None:
    """Two readings of one file: a container, and what stands at its end or in its tags."""
    text = pointing(folder, pointer, "{path}", 0)
    text += b"\n" * (len(text) % 2)  # RIFF's chunks are even
    sound = wav(tone(2))
    tag = b"ID3\4\0\0\0\0\0\0"
    tagged = sound[:12] + b"LIST" + len(text).to_bytes(4, "little") + text + sound[12:]
    for content, found_s in (
        (sound + text, 2.0), (tagged, 2.0), (text + sound, None), (tag + text, None),
    ):  # fmt: skip
        fd = os.open(write(tmp_path, "upload", content), os.O_RDONLY)
        if found_s is None:
            with pytest.raises(RecordingRefused):
                prober.probe(fd, "call.wav")
        else:
            assert prober.probe(fd, "call.wav").duration_s == pytest.approx(found_s, abs=0.01)
        os.close(fd)
