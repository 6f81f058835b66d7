r"""A transcript as subtitles: its segments in cues that fit a screen, written as SRT or WebVTT.

A cue is at most two lines of 42 columns. A longer segment is divided, its lines as even as they
can be, and its time is shared out by the length of the text, for nobody knows word times. Cues come
in order of their start and each lasts at least a millisecond. What a screen cannot show is
folded: runs of white space and control characters are one space. A cue without text is left out.
Words in doubt begin with a mark. Two people who talk at once have cues that overlap: players put
one above the other, and a time that was cut would be made up.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from pipeline.transcript.columns import clusters, unbroken, width

LINE_COLUMNS = 42
"""Widest line: what broadcasters agree on."""

CUE_LINES = 2

LABEL_COLUMNS = 20
"""A speaker's name in SRT stands in the line itself and leaves this much of it to what is said."""

_VTT_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


@dataclass(frozen=True)
class Cue:
    """What stands on the screen from one moment to another."""

    start_ms: int
    end_ms: int
    speaker: str | None
    lines: tuple[str, ...]


def to_srt(body: Mapping[str, Any]) -> str:
    r"""SubRip; the speaker goes before the words.

    >>> to_srt({"segments": [{"start_s": 0.4, "end_s": 1.3, "speaker": "left", "text": "Hi."}]})
    '1\n00:00:00,400 --> 00:00:01,300\nleft: Hi.\n'
    """
    return "\n".join(
        f"{number}\n{_time(cue.start_ms, ',')} --> {_time(cue.end_ms, ',')}\n{_spoken(cue)}\n"
        for number, cue in enumerate(cues(body["segments"], labelled=True), 1)
    )


def to_vtt(body: Mapping[str, Any]) -> str:
    r"""WebVTT; the speaker is a voice.

    >>> to_vtt({"segments": [{"start_s": 0.4, "end_s": 1.3, "speaker": "left", "text": "1 < 2"}]})
    'WEBVTT\n\n00:00:00.400 --> 00:00:01.300\n<v left>1 &lt; 2\n'
    """
    return "\n".join(["WEBVTT\n", *map(_vtt_cue, cues(body["segments"]))])


def cues(segments: Iterable[Mapping[str, Any]], *, labelled: bool = False) -> list[Cue]:
    """The cues of all segments by their start. `labelled`: a line also has to hold the speaker."""
    made = [cue for segment in segments for cue in _cues_of(segment, labelled)]
    return sorted(made, key=lambda cue: cue.start_ms)  # stable: a segment's cues keep their order


DOUBTFUL = "[?] "
"""Stands before words that perhaps nobody said, where there is no field to say so."""


def marked(said: Mapping[str, Any]) -> str:
    """A segment's words on one line, with `DOUBTFUL` before those in doubt.

    >>> marked({"text": "Thank you.", "doubt": "perhaps nobody speaks"}), marked({"text": " Hi. "})
    ('[?] Thank you.', 'Hi.')
    """
    text = fold(said["text"])
    return DOUBTFUL + text if text and said.get("doubt") else text


def fold(text: str) -> str:
    r"""The text on one line; empty when there is nothing in it to see.

    Half a surrogate pair, which no file can hold, becomes U+FFFD.

    >>> fold(" one\r\ntwo\u2028three "), fold("\u200b\u200e")
    ('one two three', '')
    """
    kinds = [(letter, unicodedata.category(letter)) for letter in text]
    if all(kind[0] in "CZ" and kind != "Cs" for _, kind in kinds):
        return ""
    shown = (" " if k == "Cc" else "\ufffd" if k == "Cs" else letter for letter, k in kinds)
    return " ".join("".join(shown).split())


def _cues_of(segment: Mapping[str, Any], labelled: bool) -> Iterator[Cue]:
    speaker = fold(segment["speaker"] or "") or None
    if labelled and speaker:
        speaker = _short(speaker)
    screens = _screens(marked(segment), width(speaker) + 2 if labelled and speaker else 0)
    moments = _shared_out(segment["start_s"], segment["end_s"], [len(" ".join(s)) for s in screens])
    for lines, start_ms, end_ms in zip(screens, moments, moments[1:], strict=False):
        yield Cue(start_ms, end_ms, speaker, lines)


def _screens(text: str, label_columns: int) -> list[tuple[str, ...]]:
    """The text in cues' worth of lines; the first line of each begins after the label."""
    atoms = [
        (width(atom), atom, number == 0)
        for word in text.split()
        for number, atom in enumerate(unbroken(word, LINE_COLUMNS - label_columns))
    ]
    if not atoms:
        return []
    columns = LINE_COLUMNS
    lines = best = _lines(atoms, columns, label_columns)
    narrowest = max(wide for wide, _, _ in atoms) + label_columns
    while columns > narrowest and len(lines) == len(best):
        best, columns = lines, columns - 1
        lines = _lines(atoms, columns, label_columns)
    best = lines if len(lines) == len(best) else best
    return [tuple(best[n : n + CUE_LINES]) for n in range(0, len(best), CUE_LINES)]


def _lines(atoms: list[tuple[int, str, bool]], columns: int, label_columns: int) -> list[str]:
    """Each line as full as `columns` allow. An atom: its width, its text, whether a word begins."""
    lines: list[str] = []
    room = 0
    for wide, atom, begins_word in atoms:
        space = " " if begins_word else ""
        if lines and wide + len(space) <= room:
            lines[-1] += space + atom
            room -= wide + len(space)
        else:
            room = columns - wide - (0 if len(lines) % CUE_LINES else label_columns)
            lines.append(atom)
    return lines


def _shared_out(start_s: float, end_s: float, lengths: list[int]) -> list[int]:
    """Where each part begins and the last one ends, ms: one more than there are parts.

    >>> _shared_out(1.0, 4.0, [10, 20]), _shared_out(-1.0, -1.0, [1, 1])
    ([1000, 2000, 4000], [0, 1, 2])
    """
    start_ms = max(0, round(start_s * 1000))
    whole_ms = max(round(end_s * 1000) - start_ms, len(lengths))
    spare_ms = whole_ms - len(lengths)  # beyond the millisecond that every part gets
    before = accumulate(lengths, initial=0)
    total = max(1, sum(lengths))
    return [start_ms + part + spare_ms * done // total for part, done in enumerate(before)]


def _short(name: str) -> str:
    """The name in at most LABEL_COLUMNS, cut between two characters."""
    if width(name) <= LABEL_COLUMNS:
        return name
    kept = ""
    for cluster in clusters(name):
        if width(kept + cluster) > LABEL_COLUMNS - 1:
            break
        kept += cluster
    return kept.rstrip() + "…"


def _spoken(cue: Cue) -> str:
    said = "\n".join(cue.lines)
    return f"{cue.speaker}: {said}" if cue.speaker else said


def _vtt_cue(cue: Cue) -> str:
    voice = f"<v {cue.speaker.translate(_VTT_ESCAPES)}>" if cue.speaker else ""
    said = "\n".join(cue.lines).translate(_VTT_ESCAPES)
    return f"{_time(cue.start_ms, '.')} --> {_time(cue.end_ms, '.')}\n{voice}{said}\n"


def _time(ms: int, point: str) -> str:
    """Hours take as many digits as they need.

    >>> _time(3_723_004, ","), _time(360_000_000, ".")
    ('01:02:03,004', '100:00:00.000')
    """
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}{point}{ms:03d}"
