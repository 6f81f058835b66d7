"""What is asked of a recording beside its bytes: language, task, speakers, metadata.

Mistakes are found here, before anything is sent: a row of a table is refused by its line, an
option by its name. The API decides in the end.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pipeline.errors import BadRequest
from pipeline.job import AUTO, TASKS
from pipeline.transcript.languages import LANGUAGES


@dataclass(frozen=True)
class Asked:
    """What one recording is sent with; None: the installation's default."""

    language: str | None = None
    task: str | None = None
    speakers: str | None = None
    """Labels of the left and the right channel, joined by a comma."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    duration_hint_s: float | None = None
    """Seconds it lasts, as far as its sender knows."""

    def fields(self, batch_id: str) -> dict[str, str]:
        """The text fields of the form."""
        fields = {"batch_id": batch_id}
        for name in ("language", "task", "speakers"):
            if value := getattr(self, name):
                fields[name] = value
        if self.duration_hint_s is not None:
            fields["duration_hint_s"] = repr(self.duration_hint_s)
        if self.metadata:
            fields["metadata"] = json.dumps(dict(self.metadata), ensure_ascii=False)
        return fields

    def or_else(self, other: Asked) -> Asked:
        """What is asked here, and what it leaves open from `other`.

        >>> own = Asked(language="es", duration_hint_s=7)
        >>> own.or_else(Asked("en", "translate", metadata={"k": "v"})).fields("monday")
        ... # doctest: +NORMALIZE_WHITESPACE
        {'batch_id': 'monday', 'language': 'es', 'task': 'translate', 'duration_hint_s': '7',
         'metadata': '{"k": "v"}'}
        """
        return replace(
            self,
            language=self.language or other.language,
            task=self.task or other.task,
            speakers=self.speakers or other.speakers,
            metadata={**other.metadata, **self.metadata},
        )


def read_asked(
    language: str | None,
    task: str | None,
    speakers: str | None,
    metadata: Mapping[str, str],
    duration_hint_s: str | None = None,
) -> Asked:
    """What the words mean; empty ones say nothing. Raises `BadRequest` for an unknown one."""
    language, task = (language or "").strip(), (task or "").strip()
    if language and language not in LANGUAGES and language != AUTO:
        raise BadRequest(f"{language[:40]!r} is no language code such as en, es or auto.")
    if task and task not in TASKS:
        raise BadRequest(f"{task[:40]!r} is no task: {' or '.join(TASKS)}.")
    hint_s = _duration_hint_s((duration_hint_s or "").strip())
    return Asked(language or None, task or None, _speakers(speakers), metadata, hint_s)


def _duration_hint_s(text: str) -> float | None:
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise BadRequest(f"duration_hint_s is a number of seconds, not {text[:40]!r}.")
    return seconds


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
