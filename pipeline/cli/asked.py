"""What is asked of a recording beside its bytes: language, speakers, terms, wishes and so on.

Mistakes are found here, before anything is sent: a row of a table is refused by its line, an
option by its name. The API decides in the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pipeline.errors import BadRequest
from pipeline.intake.raw import read_raw_format
from pipeline.job import AUTO, TASKS
from pipeline.transcript.languages import LANGUAGES
from pipeline.transcript.legs import read_place
from pipeline.transcript.sides import MOST
from pipeline.vocabulary import read_vocabulary
from pipeline.wishes import read_deadline, read_duration_hint_s, read_wait_budget_s

OPTIONS = (
    *("language", "task", "speakers", "vocabulary", "raw_format"),
    *("deadline", "wait_budget_s", "duration_hint_s"),
)
"""Fields of the form that are one text."""


@dataclass(frozen=True)
class Asked:
    """What one recording is sent with; None: the installation's default."""

    language: str | None = None
    task: str | None = None
    speakers: str | None = None
    """Labels of the channels, the left one first, joined by commas."""
    vocabulary: str | None = None
    """Names and terms likely to be said."""
    raw_format: str | None = None
    """What a recording without a header is."""
    deadline: str | None = None
    """RFC 3339 with its offset."""
    wait_budget_s: str | None = None
    """A number."""
    duration_hint_s: str | None = None
    """A number: how long it lasts, as far as its sender knows."""
    metadata: Mapping[str, str] = field(default_factory=dict)

    def fields(self, batch_id: str) -> dict[str, str]:
        """The text fields of the form."""
        fields = {"batch_id": batch_id}
        for name in OPTIONS:
            if value := getattr(self, name):
                fields[name] = value
        if self.metadata:
            fields["metadata"] = json.dumps(dict(self.metadata), ensure_ascii=False)
        return fields

    def or_else(self, other: Asked) -> Asked:
        """What is asked here, and what it leaves open from `other`.

        >>> asked = Asked(language="es").or_else(Asked("en", "translate", metadata={"k": "v"}))
        >>> asked.language, asked.task, asked.metadata
        ('es', 'translate', {'k': 'v'})
        """
        options = {name: getattr(self, name) or getattr(other, name) for name in OPTIONS}
        return Asked(**options, metadata={**other.metadata, **self.metadata})


def read_asked(words: Mapping[str, str | None], metadata: Mapping[str, str]) -> Asked:
    """What the words mean, by the names of OPTIONS; empty ones say nothing, other names are left.

    Raises `BadRequest` for a word nobody knows.
    """
    said = {name: (words.get(name) or "").strip() for name in OPTIONS}
    language, task = said["language"], said["task"]
    if language and language not in LANGUAGES and language != AUTO:
        raise BadRequest(f"{language[:40]!r} is no language code such as en, es or auto.")
    if task and task not in TASKS:
        raise BadRequest(f"{task[:40]!r} is no task: {' or '.join(TASKS)}.")
    said["speakers"] = _speakers(said["speakers"])
    said["vocabulary"] = read_vocabulary(said["vocabulary"])
    read_place(metadata)
    if said["raw_format"]:
        read_raw_format(said["raw_format"])
    by = read_deadline(said["deadline"], local=True)
    said["deadline"] = by.isoformat() if by else ""
    read_wait_budget_s(said["wait_budget_s"])
    read_duration_hint_s(said["duration_hint_s"])
    given = {name: word for name, word in said.items() if word}
    return Asked(**given, metadata=metadata)


def _speakers(text: str) -> str:
    labels = [label.strip() for label in text.split(",")]
    if labels != [""] and (not 2 <= len(labels) <= MOST or not all(labels)):
        raise BadRequest(
            f"speakers are two to {MOST} words such as agent,customer, not {text[:40]!r}."
        )
    return ",".join(labels)


def read_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """Metadata typed as key=value.

    >>> read_pairs(["agent=7", "note=a=b"])
    {'agent': '7', 'note': 'a=b'}
    """
    read = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise BadRequest(f"--metadata is key=value, not {pair[:40]!r}.")
        read[key] = value
    return read
