"""Subtitles: cues that fit a screen, times that only go on, and every word once and in order."""

from __future__ import annotations

import io
import re
import unicodedata
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.transcript.columns import width
from pipeline.transcript.subtitles import fold, to_srt, to_vtt

TIME = r"(\d{2,}):([0-5]\d):([0-5]\d)[.,](\d{3})"
TIMES = re.compile(f"{TIME} --> {TIME}")
LONG = "Thank you for calling, how can I help you with your account on this lovely morning? " * 6


def said(text: str, start_s: float = 0.0, end_s: float = 4.0, speaker: str | None = None) -> Any:
    return {"text": text, "start_s": start_s, "end_s": end_s, "speaker": speaker, "channel": 0}


def read(file: str) -> list[tuple[int, int, str | None, list[str]]]:
    """(start ms, end ms, speaker, lines) of each cue, read as players do."""
    assert file.endswith("\n") or not file
    cues = []
    blocks = [block for block in file.removeprefix("WEBVTT\n").split("\n\n") if block.strip("\n")]
    for number, block in enumerate(blocks, 1):
        lines = block.strip("\n").split("\n")
        if not file.startswith("WEBVTT"):
            assert lines.pop(0) == str(number)
        times = TIMES.fullmatch(lines[0])
        assert times, lines
        h, m, s, ms, *end = map(int, times.groups())
        text = "\n".join(lines[1:])
        voice = re.match(r"<v ([^>\n]*)>" if file.startswith("WEBVTT") else r"(left|right): ", text)
        speaker = voice[1] if voice else None
        text = text[voice.end() :] if voice else text
        if file.startswith("WEBVTT"):
            assert "-->" not in text
            assert "<" not in text
            text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        end_ms = ((end[0] * 60 + end[1]) * 60 + end[2]) * 1000 + end[3]
        cues.append((((h * 60 + m) * 60 + s) * 1000 + ms, end_ms, speaker, text.split("\n")))
    return cues


TEXTS = st.text(max_size=130) | st.text(
    st.sampled_from(
        "abc é 日本語。「」 ไทย नमस्ते 한국 👩‍👩‍👧👍🏽 שלום العربية -->&<>&amp; \r\n\t\u2028\u200b\0"
    ),
    max_size=130,
)
SECONDS = st.floats(0, 500_000, allow_nan=False)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Segments of one or two speakers in order of their start, as a merge leaves them."""
    segments = [
        said(draw(TEXTS), start_s, start_s + draw(st.floats(0, 60)), draw(st.sampled_from(names)))
        for names in [draw(st.sampled_from([[None], ["left", "right"]]))]
        for start_s in sorted(draw(st.lists(SECONDS, max_size=4)))
    ]
    return {"segments": segments}


@pytest.mark.parametrize("write", [to_srt, to_vtt])
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents())
def test_any_text_becomes_cues_that_fit_and_times_that_go_on(
    write: Any, body: dict[str, Any]
) -> None:
    file = write(body)
    file.encode("utf-8")
    cues = read(file)
    starts = [start for start, _, _, _ in cues]
    assert starts == sorted(starts)
    for start, end, speaker, lines in cues:
        assert 0 <= start < end
        assert 1 <= len(lines) <= 2
        label = len(f"{speaker}: ") if speaker and write is to_srt else 0
        assert label + width(lines[0]) <= 42
        assert all(line and line == line.strip() and width(line) <= 42 for line in lines)
        kinds = {unicodedata.category(letter) for line in lines for letter in line}
        assert not kinds & {"Cc", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize("write", [to_srt, to_vtt])
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents())
def test_every_word_is_there_once_and_in_order(write: Any, body: dict[str, Any]) -> None:
    cues = read(write(body))
    for speaker in {segment["speaker"] for segment in body["segments"]}:
        shown = "".join("".join(lines) for _, _, name, lines in cues if name == speaker)
        given_ = "".join(fold(s["text"]) for s in body["segments"] if s["speaker"] == speaker)
        assert shown.replace(" ", "") == given_.replace(" ", "")


@pytest.mark.parametrize("write", [to_srt, to_vtt])
def test_words_between_spaces_stay_whole(write: Any) -> None:
    body = {"segments": [said(LONG, 0, 30), said(LONG.upper(), 30, 60)]}
    shown = [
        word for _, _, _, lines in read(write(body)) for line in lines for word in line.split()
    ]
    assert shown == (LONG + LONG.upper()).split()


def test_nobody_speaks_is_a_valid_file() -> None:
    for segments in ([], [said("")], [said(" \r\n\u200b")]):
        assert to_vtt({"segments": segments}) == "WEBVTT\n"
        assert to_srt({"segments": segments}) == ""


def test_a_call_reads_as_players_expect_it() -> None:
    body = {
        "segments": [
            said("Good morning & welcome.", 0.4, 1.3, "left"),
            said("<i>Hello</i> --> you", 1.6, 2.1, "right"),
        ]
    }
    assert to_srt(body) == (
        "1\n00:00:00,400 --> 00:00:01,300\nleft: Good morning & welcome.\n\n"
        "2\n00:00:01,600 --> 00:00:02,100\nright: <i>Hello</i> --> you\n"
    )
    assert to_vtt(body) == (
        "WEBVTT\n\n00:00:00.400 --> 00:00:01.300\n<v left>Good morning &amp; welcome.\n\n"
        "00:00:01.600 --> 00:00:02.100\n<v right>&lt;i&gt;Hello&lt;/i&gt; --&gt; you\n"
    )


def test_a_long_segment_is_divided_evenly_and_its_time_by_the_length_of_the_text() -> None:
    cues = read(to_vtt({"segments": [said(LONG, 10, 40)]}))
    assert (cues[0][0], cues[-1][1]) == (10_000, 40_000)
    assert [end for _, end, _, _ in cues[:-1]] == [start for start, _, _, _ in cues[1:]]
    pace = [(end - start) / len(" ".join(lines)) for start, end, _, lines in cues]
    assert max(pace) / min(pace) < 1.02
    widths = [width(line) for _, _, _, lines in cues for line in lines]
    assert min(widths[:-1]) >= 28, "lines are about as wide as each other"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one\r\ntwo\u2028three", ["one two three"]),
        ("日本語" * 14, ["日本語" * 7, "日本語" * 7]),
        ("שלום, מה שלומך?", ["שלום, מה שלומך?"]),
        ("a" * 60, ["a" * 42, "a" * 18]),
        ("half \ud800 pair", ["half \ufffd pair"]),
        ("the bell\a\0 rings", ["the bell rings"]),
        ("x" * 30 + " " + "y" * 30, ["x" * 30, "y" * 30]),
    ],
)
def test_a_text_on_two_lines(text: str, lines: list[str]) -> None:
    ((_, _, _, shown),) = read(to_srt({"segments": [said(text)]}))
    assert shown == lines


@pytest.mark.parametrize(
    ("start_s", "end_s", "times"),
    [
        (0, 1.0005, "00:00:00.000 --> 00:00:01.000"),
        (359_999.999, 360_000, "99:59:59.999 --> 100:00:00.000"),
        (-2, 1, "00:00:00.000 --> 00:00:01.000"),
        (5, 5, "00:00:05.000 --> 00:00:05.001"),
        (5, 2, "00:00:05.000 --> 00:00:05.001"),
    ],
)
def test_a_cue_never_lasts_nothing_and_never_begins_before_the_recording(
    start_s: float, end_s: float, times: str
) -> None:
    assert times in to_vtt({"segments": [said("word", start_s, end_s)]})


@pytest.mark.parametrize("text", [LONG, "日本語" * 99, "wide " * 99, "x" * 300])
def test_a_line_has_room_for_its_speaker(text: str) -> None:
    cues = read(to_srt({"segments": [said(text, 0, 30, "right")]}))
    shown = [width("right: ") + width(lines[0]) for _, _, _, lines in cues]
    assert max(shown) <= 42
    assert max(shown) >= 38, "and uses the rest of it"


def test_a_side_that_talks_into_a_long_answer_is_shown_when_it_talks() -> None:
    body = {"segments": [said(LONG, 0, 30, "left"), said("Yes.", 15, 16, "right")]}
    cues = read(to_vtt(body))
    at = next(n for n, cue in enumerate(cues) if cue[2] == "right")
    assert cues[at - 1][0] <= 15_000 <= cues[at + 1][0]


def test_words_in_doubt_begin_with_a_mark_and_still_fit() -> None:
    doubtful = {**said(LONG, 0, 30, "right"), "doubt": "words repeat"}
    for write in (to_srt, to_vtt):
        first, *rest = read(write({"segments": [doubtful, said("Yes.", 30, 31, "right")]}))
        assert first[3][0].startswith("[?] Thank you")
        assert not [line for _, _, _, lines in rest for line in lines if "[?]" in line]
        assert max(width(line) for line in first[3]) <= 42


def test_two_who_talk_at_once_have_cues_that_overlap_and_ffmpeg_reads_them_all() -> None:
    av = pytest.importorskip("av")
    body = {
        "segments": [
            said("Shall I book it?", 10, 14, "left"),
            said("No --> wait & see <i>", 12.5, 13.25, "right"),
            said("Good.", 12.5, 13.25, "left"),
        ]
    }
    for write, kind in ((to_srt, "srt"), (to_vtt, "webvtt")):
        with av.open(io.BytesIO(write(body).encode()), format=kind) as file:
            packets = [p for p in file.demux() if p.size]
            times = [(float(p.pts * p.time_base), float(p.duration * p.time_base)) for p in packets]
            texts = [bytes(p).decode() for p in packets]
        assert times == [(10, 4), (12.5, 0.75), (12.5, 0.75)]
        assert "wait" in texts[1]


@pytest.mark.parametrize("name", ["Dr. <b>\n-->", "a" * 80, "客服" * 30, "x&y", "\u200b"])
def test_a_speaker_with_any_name_breaks_no_file(name: str) -> None:
    body = {"segments": [said("Hello.", speaker=name)]}
    assert read(to_vtt(body))[0][3] == ["Hello."]
    (_, _, _, lines) = read(to_srt(body))[0]
    assert len(lines) == 1
    assert lines[0].endswith("Hello.")
    assert width(lines[0]) <= 42
    assert not any(unicodedata.category(letter) == "Cc" for letter in lines[0])


def test_a_very_long_text_is_written_in_good_time() -> None:
    body = {"segments": [said("word " * 50_000, 0, 3600)]}
    assert len(read(to_srt(body))) > 1000
