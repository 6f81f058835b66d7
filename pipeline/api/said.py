"""What a sender says of the recordings of a submission: fields of a form or of JSON, made sure of.

Everything here raises `BadRequest` with a sentence for what cannot be meant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

import uuid_utils.compat as uuid_utils

from pipeline.errors import BadRequest
from pipeline.intake.raw import read_raw_format
from pipeline.job import AUTO, TASKS
from pipeline.transcript.languages import LANGUAGES
from pipeline.transcript.legs import read_place
from pipeline.transcript.sides import MOST
from pipeline.vocabulary import LIMIT as VOCABULARY_LIMIT
from pipeline.vocabulary import read_vocabulary
from pipeline.wishes import read_deadline, read_duration_hint_s, read_wait_budget_s

BATCH_ID_LIMIT = 200
"""Longest batch id, characters."""

SPEAKER_LIMIT = 40
"""Longest label of a channel, characters."""

METADATA_DEPTH = 32
"""Levels of nesting; an answer's serialiser gives up at 255, and with it whole lists of jobs."""

TEXTS = {
    "batch_id": ("Groups jobs, also over several requests; chosen when absent", "monday"),
    "language": ("ISO 639-1 code such as en, or auto; absent: the installation's default", "en"),
    "task": ("transcribe (the default), or translate: the words in English", "transcribe"),
    "speakers": (
        "Who is on which channel, the left one first, such as agent,customer; two to eight labels",
        "agent,customer",
    ),
    "vocabulary": (
        f"Names and terms likely to be said, at most {VOCABULARY_LIMIT:,} characters",
        "Müller, Fairscribe",
    ),
    "raw_format": (
        "What recordings without a header are: mulaw, alaw, sln, g722, gsm or vox, with @RATE "
        "where it is not the usual one; those that have a header are read by it",
        "sln@16000",
    ),
    "duration_hint_s": (
        "How long each recording lasts, seconds, as far as known; not trusted, and forgotten once "
        "it is looked at",
        "214.6",
    ),
    "deadline": (
        "Wanted by then, RFC 3339 with offset; `auto` goes by it, nothing is promised",
        "2026-03-02T12:00:00+01:00",
    ),
    "wait_budget_s": (
        "Seconds it may wait for a speech engine, above 0; `auto` goes by it, nothing is promised",
        "600",
    ),
    "metadata": (
        "A JSON object, kept with each job; `call_id`, `leg` and `leg_offset_s` join the legs of "
        "one call",
        '{"agent": "7"}',
    ),
}
"""The text fields of a submission: what they are for, and an example."""


def said(fields: Mapping[str, Any], max_duration_s: float) -> dict[str, Any]:
    """batch_id, language, metadata, options, wishes and the hint of every job; `fields` holds
    texts, or what JSON makes of them. `max_duration_s`: the longest recording taken.
    """
    return {
        "batch_id": _batch_id(fields.get("batch_id")),
        "language": _language(fields.get("language")),
        "metadata": _metadata(fields.get("metadata")),
        "options": _options(fields),
        "duration_hint_s": read_duration_hint_s(fields.get("duration_hint_s"), max_duration_s),
        "deadline": read_deadline(fields.get("deadline")),
        "wait_budget_s": read_wait_budget_s(fields.get("wait_budget_s")),
    }


def _batch_id(given: Any) -> str:
    if given in (None, ""):
        return str(uuid_utils.uuid7())
    if not isinstance(given, str) or len(given) > BATCH_ID_LIMIT or not keepable(given):
        raise BadRequest(f"batch_id is a text of at most {BATCH_ID_LIMIT} characters.")
    return given


def _language(given: Any) -> str | None:
    if given in (None, ""):
        return None
    if not isinstance(given, str) or given not in (AUTO, *LANGUAGES):
        raise BadRequest(
            f"language is a code that Whisper knows, such as en, or {AUTO}, not {_short(given)}."
        )
    return given


def _options(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Only what was asked for: an option that is absent is the default."""
    task, speakers, raw_format = (fields.get(n) for n in ("task", "speakers", "raw_format"))
    options: dict[str, Any] = {}
    if task not in (None, "", *TASKS):
        raise BadRequest(f"task is one of {', '.join(TASKS)}, not {_short(task)}.")
    if task and task != TASKS[0]:
        options["task"] = task
    if speakers not in (None, ""):
        options["speakers"] = _speakers(speakers)
    if vocabulary := read_vocabulary(fields.get("vocabulary")):
        options["vocabulary"] = vocabulary
    if raw_format not in (None, ""):
        if not isinstance(raw_format, str):
            raise BadRequest(f"raw_format is a text such as sln@16000, not {_short(raw_format)}.")
        read_raw_format(raw_format)
        options["raw_format"] = raw_format
    return options


def _speakers(given: Any) -> list[str]:
    labels = given.split(",") if isinstance(given, str) else given
    if not isinstance(labels, list) or not 2 <= len(labels) <= MOST:
        raise BadRequest(f"speakers is two to {MOST} labels, of the channels in their order.")
    texts = [label.strip() if isinstance(label, str) else "" for label in labels]
    for label in texts:
        if not 1 <= len(label) <= SPEAKER_LIMIT or not label.isprintable():
            raise BadRequest(
                f"A label of speakers has 1 to {SPEAKER_LIMIT} characters and no control character."
            )
    return texts


def _metadata(given: Any) -> dict[str, Any]:
    """A JSON object Postgres can keep: finite numbers, no NUL, no half of a surrogate pair."""
    if given in (None, ""):
        return {}
    try:
        text = given if isinstance(given, str) else json.dumps(given, allow_nan=False)
        read = json.loads(text, parse_constant=_not_json)
        json.dumps(read, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (ValueError, RecursionError):
        raise BadRequest("metadata is not JSON.") from None
    if not isinstance(read, dict):
        raise BadRequest("metadata is not a JSON object.")
    _check_kept(read, METADATA_DEPTH)
    read_place(read)
    return read


def _check_kept(value: Any, depth_left: int) -> None:
    """Raise for what Postgres cannot keep or an answer cannot carry."""
    if depth_left < 0:
        raise BadRequest(f"metadata is nested deeper than {METADATA_DEPTH} levels.")
    if isinstance(value, str) and "\0" in value:
        raise BadRequest("metadata holds a NUL character, which cannot be kept.")
    inside = [*value, *value.values()] if isinstance(value, dict) else value
    for one in inside if isinstance(value, dict | list) else ():
        _check_kept(one, depth_left - 1)


def keepable(text: str) -> bool:
    """Whether Postgres can keep it: no NUL, no half of a surrogate pair."""
    try:
        return b"\0" not in text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair, by JSON
        return False


def _short(given: Any) -> str:
    simple = isinstance(given, str | int | float | None)
    return repr(given if simple else type(given).__name__)[:100]


def _not_json(constant: str) -> NoReturn:
    raise ValueError(constant)
