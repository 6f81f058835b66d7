"""What a check is given and what it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.settings import Settings


@dataclass(frozen=True)
class Verdict:
    """How one thing stands."""

    check: str
    ok: bool
    said: str
    """What was found, in a sentence."""
    cure: str | None = None
    """What to do, in a sentence; None where nothing is to be done."""


def fine(check: str, said: str) -> Verdict:
    """Nothing to do."""
    return Verdict(check, True, said)


def problem(check: str, said: str, cure: str) -> Verdict:
    """Something to do."""
    return Verdict(check, False, said, cure)


@dataclass(frozen=True)
class Here:
    """An installation, as far as settings and a running `up` tell of it."""

    settings: Settings
    environ: Mapping[str, str]
    up: Mapping[str, str]
    """What a running `up` left in home: api, flower, database_url, redis_url; else empty."""

    @property
    def database_url(self) -> str | None:
        """Postgres: as set, else as `up` brought it."""
        return self.settings.database_url or self.up.get("database_url")

    @property
    def redis_url(self) -> str | None:
        """Redis: as set, else as `up` brought it."""
        return self.settings.redis_url or self.up.get("redis_url")


def look_around(settings: Settings, environ: Mapping[str, str]) -> Here:
    """Find out what runs in home."""
    try:
        read = json.loads((settings.home / "run" / "up.json").read_text("utf-8"))
        up = {name: text for name, text in read.items() if isinstance(text, str)}
    except (OSError, ValueError, AttributeError):
        up = {}
    return Here(settings, environ, up)
