"""Headerless telephony: sound without a header, so that somebody has to say what it is.

A declaration comes in (the caller's `raw_format`, else the extension of the file's name), a
`RawForm` goes out. No codec is loaded here: doors read declarations by it, too. A declaration never
overrules bytes that show a container.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from pipeline.errors import BadRequest
from pipeline.intake import mpeg

RATES_HZ = (4_000, 192_000)
"""Lowest and highest rate that can be declared."""

HEAD_BYTES = 8_192
"""So much of a file's start tells whether it is declared wrongly: four MP3 frames, the longest."""

_CHAIN = 4
"""Frames in a row that are no accident."""


@dataclass(frozen=True)
class RawForm:
    """A headerless format; always one channel."""

    name: str
    """As it is declared."""
    codec: str
    """FFmpeg's decoder."""
    demuxer: str | None
    """FFmpeg's demuxer; None where it has none and the bytes are cut into packets by us."""
    sample_rate_hz: int
    unit_bytes: int
    """The least that can be decoded; what is left over at the end of a file is no sound."""
    unit_samples: int
    any_rate: bool = True
    """False: the format knows no other rate."""

    @property
    def bytes_per_s(self) -> float:
        """Bytes of a second of sound."""
        return self.sample_rate_hz / self.unit_samples * self.unit_bytes

    def whole_bytes(self, size: int) -> int:
        """Of a file of `size` bytes, those that make whole units."""
        return size - size % self.unit_bytes


_FORMS = {
    form.name: form
    for form in (
        RawForm("mulaw", "pcm_mulaw", "mulaw", 8_000, 1, 1),
        RawForm("alaw", "pcm_alaw", "alaw", 8_000, 1, 1),
        RawForm("sln", "pcm_s16le", "s16le", 8_000, 2, 1),
        RawForm("g722", "g722", "g722", 16_000, 1, 2, any_rate=False),
        RawForm("gsm", "gsm", "gsm", 8_000, 33, 160, any_rate=False),
        RawForm("vox", "adpcm_ima_oki", None, 8_000, 1, 2),
    )
}
NAMES = tuple(_FORMS)
"""What `raw_format` can say, each with @RATE behind it where the format has several rates."""

_SLN_RATES_HZ = {12: 12_000, 16: 16_000, 24: 24_000, 32: 32_000, 44: 44_100, 48: 48_000}
_SLN_RATES_HZ |= {96: 96_000, 192: 192_000}
EXTENSIONS = {
    **dict.fromkeys(("ulaw", "ul", "mu", "ulw", "mulaw"), _FORMS["mulaw"]),
    **dict.fromkeys(("alaw", "al", "alw"), _FORMS["alaw"]),
    **{name: _FORMS[name] for name in ("sln", "g722", "gsm", "vox")},
    **{f"sln{k}": replace(_FORMS["sln"], sample_rate_hz=hz) for k, hz in _SLN_RATES_HZ.items()},
}
"""By file name extension, as Asterisk writes them (main/format, formats/format_pcm.c and
format_sln.c) and SoX. Not `pcm`, `raw` and `sw`: u-law to one program and 16 bit samples of any
rate to the next, so they say nothing without a `raw_format`."""

_DECLARED = re.compile(r"([a-z0-9]+)(?:@([0-9]{1,6}))?", re.ASCII)


def read_raw_format(text: str) -> RawForm:
    """The format that `text` declares: a name of `NAMES`, or name@rate with the rate in Hz.

    Raises `BadRequest` for a name nobody knows, or a rate that the format cannot have.

    >>> read_raw_format("sln@16000").bytes_per_s
    32000.0
    """
    said = _DECLARED.fullmatch(text)
    form = _FORMS.get(said[1]) if said else None
    if said is None or form is None:
        known = ", ".join(NAMES)
        raise BadRequest(
            f"raw_format is one of {known}, or with a rate sln@16000, not {text!r:.60}."
        )
    if said[2] is None:
        return form
    rate_hz, (lowest, highest) = int(said[2]), RATES_HZ
    if not form.any_rate and rate_hz != form.sample_rate_hz:
        fixed_hz = form.sample_rate_hz
        raise BadRequest(f"raw_format {form.name} has {fixed_hz} samples a second, not {rate_hz}.")
    if not lowest <= rate_hz <= highest:
        raise BadRequest(f"raw_format takes {lowest} to {highest} samples a second, not {rate_hz}.")
    return replace(form, sample_rate_hz=rate_hz)


def declared_raw(head: bytes, kind: str | None, file_name: str, raw_format: str) -> RawForm | None:
    """The headerless format declared for a file that begins with `head` (up to `HEAD_BYTES`).

    None when none is declared, or when the bytes show a container; `kind` is what `opening.sniff`
    called it. `raw_format` wins over the extension of `file_name`. A frame sync alone shows
    nothing: u-law silence is FF FF, which looks like one. Raises as `read_raw_format`.
    """
    if raw_format:
        form: RawForm | None = read_raw_format(raw_format)
    else:
        form = EXTENSIONS.get(file_name.rpartition(".")[2].lower())
    by_sync = kind in ("mp3", "aac", "ac3") and not head.startswith(b"ID3")
    if kind is None or (by_sync and not _chained(head, kind)):
        return form
    return None


def _chained(head: bytes, kind: str | None) -> bool:
    """Whether the bytes are frames that follow one another, as in a real file of this kind."""
    at = 0
    for _ in range(_CHAIN):
        length = _frame_bytes(head, at, kind)
        if length is None:
            return False
        at += length
    return True


def _frame_bytes(head: bytes, at: int, kind: str | None) -> int | None:
    if kind == "mp3":
        frame = mpeg.frame_at(head, at)
        return frame.length_bytes if frame else None
    if kind == "aac" and at + 6 <= len(head) and head[at] == 0xFF and head[at + 1] & 0xF6 == 0xF0:
        length = (head[at + 3] & 3) << 11 | head[at + 4] << 3 | head[at + 5] >> 5
        return length if length > 7 else None  # an ADTS header alone is no frame
    return None
