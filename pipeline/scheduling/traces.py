"""Recorded lengths and arrivals: the text of a file comes in, numbers come out.

Durations: tab-separated with a column `duration_s`, lines that begin with # left out.
Traces: CSV with a head, or JSON objects one a line, with `arrived_s` (seconds, any start),
`speech_s` (seconds of speech) and, if known, `windows`.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from pipeline.scheduling.scenario import Arrival
from pipeline.scheduling.workloads import call, in_windows

WINDOWS_LIMIT = 100_000
"""More windows than a job of a month has: such a number is a mistake."""


def durations_s(lines: Iterable[str]) -> list[float]:
    r"""Read the column `duration_s`. Raises ValueError for no such column, or no number above 0.

    >>> durations_s(["# where from", "id\tduration_s", "a\t4.9"])
    [4.9]
    """
    rows = list(csv.DictReader((li for li in lines if not li.startswith("#")), delimiter="\t"))
    if not rows or "duration_s" not in rows[0]:
        raise ValueError("there is no column duration_s, tab-separated, with a line below it")
    return [_number(row, "duration_s", n, least=1e-3) for n, row in enumerate(rows, 1)]


def recorded(lines: Iterable[str], *, window_s: float = 1.0) -> list[Arrival]:
    """Read a trace, CSV or JSON lines, into arrivals in order of time, the first one at 0.

    Raises ValueError with the number of the row that cannot be used.

    >>> [(a.at_ms, len(a.units)) for a in recorded(["arrived_s,speech_s", "100,20", "101.5,70"])]
    [(0, 1), (1500, 3)]
    """
    text = [line for line in lines if line.strip() and not line.startswith("#")]
    if text and text[0].lstrip().startswith("{"):
        rows = [_object(line, n) for n, line in enumerate(text, 1)]
    else:
        rows = list(csv.DictReader(text))
    if not rows:
        raise ValueError("there are no arrivals in it")
    read = [
        (_number(row, "arrived_s", n, least=-math.inf), _number(row, "speech_s", n, 0.0), row, n)
        for n, row in enumerate(rows, 1)
    ]
    first_s = min(arrived_s for arrived_s, *_ in read)
    arrivals = [
        _arrival(f"{n:07d}", arrived_s - first_s, speech_s, _windows(row, n), window_s)
        for arrived_s, speech_s, row, n in read
    ]
    return sorted(arrivals, key=lambda arrival: arrival.at_ms)


def _arrival(
    job_id: str, moment_s: float, speech_s: float, windows: int | None, window_s: float
) -> Arrival:
    """As `call`, but in as many windows as were planned, all alike, where that is known."""
    if windows is None:
        return call(job_id, moment_s, speech_s, window_s=window_s)
    return in_windows(job_id, moment_s, [speech_s / windows] * windows, window_s=window_s)


def _object(line: str, n: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError:
        raise ValueError(f"row {n} is not a JSON object") from None
    if not isinstance(row, dict):
        raise ValueError(f"row {n} is not a JSON object")
    return row


def _number(row: Mapping[str, Any], name: str, n: int, least: float) -> float:
    try:
        value = float(row[name])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"row {n} has no number in {name}") from None
    if not least <= value < math.inf:
        raise ValueError(f"row {n}: {name} is {value:g}")
    return value


def _windows(row: Mapping[str, Any], n: int) -> int | None:
    if row.get("windows") in (None, ""):
        return None
    value = _number(row, "windows", n, least=1)
    if value != int(value) or value > WINDOWS_LIMIT:
        raise ValueError(f"row {n}: windows is {value:g}")
    return int(value)
