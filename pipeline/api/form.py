"""A multipart body, read as it comes: its files lie one after the other in one file on disk.

Neither memory nor open files grow with the number of files or with their size: that is why this
is not the framework's own form, which opens a file and keeps up to a megabyte for each. What is
beyond the largest file accepted is read and dropped.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from pipeline.api.arriving import arriving
from pipeline.api.form_reader import (
    CHUNK_BYTES,
    TEXT_LIMIT_BYTES,
    Form,
    FormReader,
    Limits,
    storage_error,
)
from pipeline.errors import BadRequest


@asynccontextmanager
async def read_form(
    request: Request,
    folder: Path,
    *,
    files: str,
    fields: tuple[str, ...],
    limits: Limits,
    repeated: tuple[str, ...] = (),
) -> AsyncIterator[Form]:
    """The form `request` carries; its file in `folder` is gone at the end of the context.

    `files` names the parts that are files, `fields` those that are text, `repeated` those that are
    text and may come more than once; a file that is too long is cut one byte beyond its limit.
    Raises `BadRequest` for any other part and for what is not a form, `UploadTooSlow`, `PartDown`
    when the disk takes no more.
    """
    if asks_first(request) and not _may_be(request, limits):
        raise BadRequest("The body is larger than any that is taken here.")
    boundary = _boundary(request.headers.get("content-type", ""), files)
    with _open_unnamed(folder) as on_disk:
        try:
            form = Form(on_disk, repeated={name: [] for name in repeated})
            reader = FormReader(form, boundary, files, fields, limits)
            async for received in arriving(request, limits.idle_s):
                reader.take(received)
                if reader.unwritten_bytes >= CHUNK_BYTES:
                    await run_in_threadpool(reader.write_out)
            await run_in_threadpool(reader.write_out)
            reader.finish()
        except FormParserError:
            raise BadRequest("The multipart body is malformed.") from None
        yield reader.form


def asks_first(request: Request) -> bool:
    """Whether its client waits to hear that its body is wanted (curl does, for large ones).

    Only such a request may be refused before it was read: any other client that is answered in the
    middle of its upload sees a broken connection.
    """
    return request.headers.get("expect", "").lower() == "100-continue"


def _may_be(request: Request, limits: Limits) -> bool:
    """Whether a body as long as this one says it is could be taken."""
    said = request.headers.get("content-length", "0")
    most = limits.files * (limits.file_bytes + CHUNK_BYTES) + 2 * TEXT_LIMIT_BYTES
    return not said.isdecimal() or int(said) <= most


def _boundary(content_type: str, files: str) -> bytes:
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data" or not options.get(b"boundary"):
        raise BadRequest(f"Send multipart/form-data, with the recording in a part named `{files}`.")
    return options[b"boundary"]


def _open_unnamed(folder: Path) -> IO[bytes]:
    """A file without a name: the kernel removes it whatever happens to this process."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=folder, buffering=0)
    except OSError as error:
        raise storage_error(error) from error
