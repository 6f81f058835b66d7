"""What is asked of a recording beside its bytes: language, task, speakers, wishes, metadata.

Mistakes are found here, before anything is sent: a row of a table is refused by its line, an
option by its name. The API decides in the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pipeline.errors import BadRequest
from pipeline.job import AUTO, TASKS
from pipeline.transcript.languages import LANGUAGES
from pipeline.wishes import read_deadline, read_duration_hint_s, read_wait_budget_s

OPTIONS = ("language", "task", "speakers", "deadline", "wait_budget_s", "duration_hint_s")
"""Fields of the form that are one text."""


@dataclass(frozen=True)
class Asked:
    """What one recording is sent with; None: the installation's default."""

    language: str | None = None
    task: str | None = None
    speakers: str | None = None
    """Labels of the left and the right channel, joined by a comma."""
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
        return replace(
            self,
            language=self.language or other.language,
            task=self.task or other.task,
            speakers=self.speakers or other.speakers,
            deadline=self.deadline or other.deadline,
            wait_budget_s=self.wait_budget_s or other.wait_budget_s,
            duration_hint_s=self.duration_hint_s or other.duration_hint_s,
            metadata={**other.metadata, **self.metadata},
        )


def read_asked(
    language: str | None,
    task: str | None,
    speakers: str | None,
    metadata: Mapping[str, str],
    deadline: str | None = None,
    wait_budget_s: str | None = None,
    duration_hint_s: str | None = None,
) -> Asked:
    """What the words mean; empty ones say nothing. Raises `BadRequest` for an unknown one."""
    language, task = (language or "").strip(), (task or "").strip()
    if language and language not in LANGUAGES and language != AUTO:
        raise BadRequest(f"{language[:40]!r} is no language code such as en, es or auto.")
    if task and task not in TASKS:
        raise BadRequest(f"{task[:40]!r} is no task: {' or '.join(TASKS)}.")
    by = read_deadline((deadline or "").strip(), local=True)
    budget_s = (wait_budget_s or "").strip()
    read_wait_budget_s(budget_s)
    hint_s = (duration_hint_s or "").strip()
    read_duration_hint_s(hint_s)
    return Asked(
        language or None,
        task or None,
        _speakers(speakers),
        by.isoformat() if by else None,
        budget_s or None,
        hint_s or None,
        metadata,
    )


def _speakers(text: str | None) -> str | None:
    labels = [label.strip() for label in (text or "").split(",")]
    if labels == [""]:
        return None
    if len(labels) != 2 or not all(labels):
        raise BadRequest(
            f"speakers are two words such as agent,customer, not {(text or '')[:40]!r}."
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
