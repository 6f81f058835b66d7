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
from pipeline.scheduling.workloads import FULL_WINDOW_S, call, in_windows

WINDOWS_LIMIT = 100_000
"""More windows than a job of a month has: such a number is a mistake."""
ALL_WINDOWS_LIMIT = 4_000_000
"""Of a whole trace: more than memory should be filled with, and days of simulating."""
SPEECH_LIMIT_S = WINDOWS_LIMIT * FULL_WINDOW_S
SPAN_LIMIT_S = 10 * 366 * 86400.0
"""From the first arrival to the last: longer is another unit, such as ms."""


def durations_s(lines: Iterable[str]) -> list[float]:
    r"""Read the column `duration_s`. Raises ValueError for no such column, or no number above 0.

    >>> durations_s(["# where from", "id\tduration_s", "a\t4.9"])
    [4.9]
    """
    rows = _table((line for line in lines if not line.startswith("#")), delimiter="\t")
    if not rows or "duration_s" not in rows[0]:
        raise ValueError("there is no column duration_s, tab-separated, with a line below it")
    return [_number(row, "duration_s", n, 1e-3, SPEECH_LIMIT_S) for n, row in enumerate(rows, 1)]


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
        rows = _table(text)
    if not rows:
        raise ValueError("there are no arrivals in it")
    read = [
        (
            _number(row, "arrived_s", n, -math.inf, math.inf),
            _number(row, "speech_s", n, 0.0, SPEECH_LIMIT_S),
            _windows(row, n),
        )
        for n, row in enumerate(rows, 1)
    ]
    first_s, last_s = (pick(arrived_s for arrived_s, *_ in read) for pick in (min, max))
    if not last_s - first_s <= SPAN_LIMIT_S:
        raise ValueError(f"{last_s - first_s:g} s lie between the first arrival and the last")
    # added up before any of them is laid out
    everything = sum(windows or speech_s / FULL_WINDOW_S for _, speech_s, windows in read)
    if everything > ALL_WINDOWS_LIMIT:
        raise ValueError(f"{everything:.0f} windows are more than {ALL_WINDOWS_LIMIT:,}")
    arrivals = [
        _arrival(f"{n:07d}", arrived_s - first_s, speech_s, windows, window_s)
        for n, (arrived_s, speech_s, windows) in enumerate(read, 1)
    ]
    return sorted(arrivals, key=lambda arrival: arrival.at_ms)


def _arrival(
    job_id: str, moment_s: float, speech_s: float, windows: int | None, window_s: float
) -> Arrival:
    """As `call`, but in as many windows as were planned, all alike, where that is known."""
    if windows is None:
        return call(job_id, moment_s, speech_s, window_s=window_s)
    return in_windows(job_id, moment_s, [speech_s / windows] * windows, window_s=window_s)


def _table(lines: Iterable[str], delimiter: str = ",") -> list[dict[str, Any]]:
    try:
        return list(csv.DictReader(lines, delimiter=delimiter))
    except csv.Error as wrong:
        raise ValueError(f"it is not a table: {wrong}") from None


def _object(line: str, n: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # ValueError: also more digits than are read
        raise ValueError(f"row {n} is not a JSON object") from None
    if not isinstance(row, dict):
        raise ValueError(f"row {n} is not a JSON object")
    return row


def _number(row: Mapping[str, Any], name: str, n: int, least: float, most: float) -> float:
    try:
        value = float(row[name])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ValueError(f"row {n} has no number in {name}") from None
    if not (least <= value <= most and math.isfinite(value)):
        raise ValueError(f"row {n}: {name} is {value:g}")
    return value


def _windows(row: Mapping[str, Any], n: int) -> int | None:
    if row.get("windows") in (None, ""):
        return None
    value = _number(row, "windows", n, 1, WINDOWS_LIMIT)
    if value != int(value):
        raise ValueError(f"row {n}: windows is {value:g}")
    return int(value)
