"""What a sender wishes of the order and says of a recording: from a form, JSON or the shell."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from pipeline.errors import BadRequest

YEARS = range(2000, 3000)
"""Of a deadline: at the calendar's ends a zone's offset leads to a year that is none."""

WAIT_BUDGET_LIMIT_S = 366 * 86400
"""Longest wait budget: a year says the same as none."""


def read_deadline(given: Any, *, local: bool = False) -> datetime | None:
    """A moment, in UTC; None when none is given. One that has passed is late, not wrong.

    `local`: a time without offset is one of this machine. Raises `BadRequest`.
    """
    if given in (None, ""):
        return None
    try:
        moment = datetime.fromisoformat(given) if isinstance(given, str) else None
        if moment and moment.year in YEARS and (moment.tzinfo or local):
            return moment.astimezone(UTC)
    except ValueError:
        pass
    raise BadRequest(
        "deadline is a time in RFC 3339 with its offset, such as 2026-03-02T12:00:00+01:00, not "
        f"{_short(given)}."
    )


def read_wait_budget_s(given: Any) -> float | None:
    """Seconds; None when none are given. Raises `BadRequest`."""
    return _seconds("wait_budget_s", given, WAIT_BUDGET_LIMIT_S)


def read_duration_hint_s(given: Any, limit_s: float = math.inf) -> float | None:
    """Seconds a recording lasts as its sender says, at most `limit_s`; None when none are given.

    Raises `BadRequest`.
    """
    return _seconds("duration_hint_s", given, limit_s)


def _seconds(name: str, given: Any, limit_s: float) -> float | None:
    if given in (None, ""):
        return None
    try:
        number = isinstance(given, str | int | float) and not isinstance(given, bool)
        seconds = float(given) if number else math.nan
    except (ValueError, OverflowError):
        seconds = math.nan
    if 0 < seconds <= limit_s and seconds < math.inf:  # what is no number is in no range
        return seconds
    most = f" and at most {limit_s:.0f}" if limit_s < math.inf else ""
    raise BadRequest(f"{name} is a number of seconds above 0{most}, not {_short(given)}.")


def _short(given: Any) -> str:
    simple = isinstance(given, str | int | float)
    return repr(given if simple else type(given).__name__)[:100]
