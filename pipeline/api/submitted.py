"""A submission as it was sent, form or JSON: its files, its URLs, what is said of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.requests import Request

from pipeline.api.arriving import arriving
from pipeline.api.form import read_form
from pipeline.api.form_reader import File, Form, Limits
from pipeline.api.said import TEXTS, said
from pipeline.errors import BadRequest
from pipeline.fetch.urls import checked_url

URLS_LIMIT = 10_000
"""URLs in one request."""

JSON_LIMIT_BYTES = 32 << 20
"""Longest JSON body: as many URLs as are taken, each as long as one may be, and some room."""


@dataclass(frozen=True)
class Submitted:
    """What was asked for."""

    said: dict[str, Any]
    """batch_id, language, metadata, options, wishes, duration_hint_s: of every recording."""
    given: dict[str, Any]
    """The fields as sent: what tells one request from another."""
    urls: list[Any] = field(default_factory=list)
    form: Form | None = None

    @property
    def files(self) -> list[File]:
        """The files of its form."""
        return self.form.files if self.form else []

    def chunks(self, file: File) -> Iterator[bytes]:
        """The bytes of one file. Any thread."""
        assert self.form is not None
        return self.form.chunks(file)

    def checked_urls(self) -> list[str | BadRequest]:
        """Each URL as it is asked for, or what is wrong with it."""
        return [_checked(url) for url in self.urls]

    def fingerprint(self) -> str:
        """The same for the same request: its fields, and its files' names and sizes."""
        files = [(file.name, file.size_bytes) for file in self.files]
        asked = json.dumps([self.given, self.urls, files], sort_keys=True)
        return hashlib.sha256(asked.encode()).hexdigest()


@asynccontextmanager
async def read_submission(
    request: Request, folder: Path, limits: Limits, max_duration_s: float
) -> AsyncIterator[Submitted]:
    """The submission `request` carries. Files that are too long are cut one byte beyond
    their limit; no recording is said to last longer than `max_duration_s`.

    Raises `BadRequest` for one that cannot be understood or holds nothing, `UploadTooSlow`,
    `PartDown` when the disk takes no more.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        yield _from_json(await _body(request, limits.idle_s), max_duration_s)
        return
    texts = tuple(TEXTS)
    async with read_form(
        request, folder, files="files", fields=texts, repeated=("urls",), limits=limits
    ) as form:
        urls = [url.strip() for url in form.repeated["urls"] if url.strip()]
        given = dict(form.fields)
        yield _complete(Submitted(said(given, max_duration_s), given, urls, form))


def _from_json(body: bytes, max_duration_s: float) -> Submitted:
    try:
        given = json.loads(body)
        # as Postgres keeps it: an answer must be able to carry every text of it
        json.dumps(given, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        raise BadRequest("The body is not JSON.") from None
    if not isinstance(given, dict):
        raise BadRequest("The body is not a JSON object.")
    if unknown := sorted(set(given) - set(TEXTS) - {"urls"}):
        known = ", ".join(("urls", *TEXTS))
        raise BadRequest(f"There is no field {unknown[0][:100]!r} here; the fields are: {known}.")
    urls = given.pop("urls", [])
    if not isinstance(urls, list):
        raise BadRequest("urls is a list of URLs.")
    return _complete(Submitted(said(given, max_duration_s), given, urls))


def _complete(submitted: Submitted) -> Submitted:
    if len(submitted.urls) > URLS_LIMIT:
        raise BadRequest(f"A request holds at most {URLS_LIMIT} URLs, this one more.")
    if not submitted.files and not submitted.urls:
        raise BadRequest(
            "There is no recording: send each in a part named `files`, or its URL in `urls`."
        )
    return submitted


async def _body(request: Request, idle_s: float) -> bytes:
    """All of it, even what is too much: who is answered while still sending does not listen."""
    body = bytearray()
    async for received in arriving(request, idle_s):
        if len(body) <= JSON_LIMIT_BYTES:
            body += received
    if len(body) > JSON_LIMIT_BYTES:
        raise BadRequest(f"A JSON body has at most {JSON_LIMIT_BYTES} bytes.")
    return bytes(body)


def _checked(url: Any) -> str | BadRequest:
    try:
        return checked_url(url)
    except BadRequest as refused:
        return refused
