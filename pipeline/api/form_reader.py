"""What a form holds, put together from what the multipart parser hears, event by event.

Pieces of a body go in, in whatever sizes they come. Out comes a `Form`: texts in memory, its files
one after the other in one file on disk. What is beyond the largest file accepted is dropped.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO

from python_multipart.multipart import MultipartParser, parse_options_header

from pipeline.errors import BadRequest, PartDown
from pipeline.settings import Settings
from pipeline.steps.accept import UNNAMED

CHUNK_BYTES = 1 << 20
"""Written to disk and read back in pieces of this size."""

FIELD_LIMIT_BYTES = 1 << 20
"""Longest text field."""

TEXT_LIMIT_BYTES = 32 << 20
"""All text fields of one form together: they are kept in memory."""

PARTS_BESIDE = 20_000
"""Parts of a form that are no files, at most: URLs, each its own part, and some room. Beyond it is
no form anybody sends, and reading it on would keep the others waiting."""


@dataclass(frozen=True)
class Limits:
    """How much a form may hold."""

    file_bytes: int
    """Of one file."""
    files: int
    idle_s: float
    """It may bring nothing for so long."""

    @classmethod
    def of(cls, settings: Settings, files: int | None = None) -> Limits:
        """As the settings say, of files too where no number is given."""
        return cls(
            settings.max_upload_bytes,
            settings.max_files if files is None else files,
            settings.upload_idle_s,
        )


@dataclass
class File:
    """One file of a form: where it lies in the form's file on disk."""

    name: str
    start: int
    size_bytes: int = 0


@dataclass
class Form:
    """What a form held."""

    on_disk: IO[bytes]
    fields: dict[str, str] = field(default_factory=dict)
    """Of a field that may come once: its last text."""
    repeated: dict[str, list[str]] = field(default_factory=dict)
    """Of a field that may come more often: all its texts, in their order."""
    files: list[File] = field(default_factory=list)

    def chunks(self, file: File) -> Iterator[bytes]:
        """The bytes of one file, CHUNK_BYTES at a time. Safe to use from any thread."""
        start, end = file.start, file.start + file.size_bytes
        while start < end:
            chunk = os.pread(self.on_disk.fileno(), min(CHUNK_BYTES, end - start), start)
            if not chunk:
                raise PartDown("Storage lost a part of the upload.")
            start += len(chunk)
            yield chunk


class FormReader:
    """Hears the parser's events and keeps what matters; one a request.

    A complaint about a part is kept and raised at the end, when the whole body was read: a client
    that is answered in the middle of its upload sees a broken connection, not the answer.
    """

    def __init__(
        self, form: Form, boundary: bytes, files: str, fields: tuple[str, ...], limits: Limits
    ) -> None:
        self.form = form
        self.unwritten_bytes = 0
        self._files, self._limits = files, limits
        self._parts = 0
        self._fields = (*fields, *form.repeated)
        self._text_bytes = 0
        self._unwritten: list[bytes] = []
        self._end = 0
        self._complaint: str | None = None
        self._header = self._value = self._disposition = b""
        self._file: File | None = None
        self._field: str | None = None
        self._text = bytearray()
        self._ended = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._part_begin,
                "on_header_field": self._header_field,
                "on_header_value": self._header_value,
                "on_header_end": self._header_end,
                "on_headers_finished": self._headers_finished,
                "on_part_data": self._part_data,
                "on_part_end": self._part_end,
                "on_end": self._body_end,
            },
        )

    def take(self, received: bytes) -> None:
        """Parse a piece of the body."""
        self._parser.write(received)

    def write_out(self) -> None:
        """Write what is kept to disk. Blocks; call it in a thread."""
        pieces, self._unwritten, self.unwritten_bytes = self._unwritten, [], 0
        rest = memoryview(b"".join(pieces))
        try:
            while rest:
                rest = rest[self.form.on_disk.write(rest) :]
        except OSError as error:
            raise storage_error(error) from error

    def finish(self) -> None:
        """Raise `BadRequest` unless the body was a whole form of known parts."""
        self._parser.finalize()
        if self._complaint:
            raise BadRequest(self._complaint)
        if not self._ended:
            raise BadRequest("The multipart body ends before its last boundary.")

    # -- the parser's events ----------------------------------------------------------------

    def _part_begin(self) -> None:
        self._parts += 1
        if self._parts > self._limits.files + PARTS_BESIDE:
            raise BadRequest("The form has too many parts.")
        self._disposition = b""
        self._file = self._field = None
        self._text.clear()

    def _header_field(self, raw: bytes, start: int, end: int) -> None:
        self._header += raw[start:end]

    def _header_value(self, raw: bytes, start: int, end: int) -> None:
        self._value += raw[start:end]

    def _header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header = self._value = b""

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        name = _text_of(options.get(b"name", b""))
        if b"filename" in options and name == self._files:
            if len(self.form.files) < self._limits.files:
                self._file = File(given_name(options[b"filename"]), self._end)
            else:
                self._complain(f"A request holds at most {self._limits.files:,} files.")
        elif b"filename" not in options and name in self._fields:
            self._field = name
        elif name == self._files:
            self._complain(f"A part named `{name}` has no file name: send it as a file.")
        else:
            what = "files" if b"filename" in options else "fields"
            known = self._files if what == "files" else ", ".join(self._fields)
            self._complain(f"There is no part {name[:100]!r} here; the {what} are: {known}.")

    def _part_data(self, raw: bytes, start: int, end: int) -> None:
        if self._file is not None:
            # one byte more than allowed tells the store that the file is too large
            room = self._limits.file_bytes + 1 - self._file.size_bytes
            self._keep(raw[start : min(end, start + room)])
        elif self._field is not None:
            self._text_bytes += end - start
            if self._text_bytes > TEXT_LIMIT_BYTES:
                self._complain("The text fields are too long, all together.")
            elif len(self._text) + end - start > FIELD_LIMIT_BYTES:
                self._complain(f"The field {self._field!r} is too long.")
            else:
                self._text += raw[start:end]

    def _keep(self, piece: bytes) -> None:
        assert self._file is not None
        self._unwritten.append(piece)
        self.unwritten_bytes += len(piece)
        self._file.size_bytes += len(piece)
        self._end += len(piece)

    def _part_end(self) -> None:
        # browsers send a file field that was left empty as a file without name and content
        if self._file is not None and (self._file.name or self._file.size_bytes):
            self._file.name = self._file.name or UNNAMED
            self.form.files.append(self._file)
        elif self._field is not None:
            text = _text_of(bytes(self._text))
            if self._field in self.form.repeated:
                self.form.repeated[self._field].append(text)
            else:
                self.form.fields[self._field] = text

    def _body_end(self) -> None:
        self._ended = True

    def _complain(self, sentence: str) -> None:
        self._complaint = self._complaint or sentence


def given_name(raw: bytes) -> str:
    """A file's name as its sender knows it; never a path to us.

    Browsers, curl and httpx write a quote and line ends as %22, %0D and %0A, and nothing else.
    A NUL cannot be kept in Postgres.

    >>> given_name(b'say %22hi%22, 50%25.wav')
    'say "hi", 50%25.wav'
    """
    name = _text_of(raw)
    for written, meant in (("%22", '"'), ("%0D", "\r"), ("%0A", "\n"), ("\0", "�")):
        name = name.replace(written, meant)
    return name


def _text_of(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def storage_error(error: OSError) -> PartDown:
    """What it means that the disk refused."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return PartDown("Storage is full." if full else f"Storage does not answer: {error}")
