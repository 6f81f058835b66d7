"""What people read: tables, lines, the page of settings. Pure but for printing and the clock."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pipeline.settings import BY_FILE, PREFIX, SECRETS, Settings, setting_rows, without_password

PIPE_WIDTH = 200
"""Columns of a table that goes to a file or a pipe, where nobody said how many fit."""


TIMES = ("length", "waited", "ran", "work", "done")
"""Columns that stand right though they are words."""

FOLDED = ("meaning", "value", "default")
"""Columns that go on in the next line where a terminal is narrow; a file's name is cut instead."""


NARROWEST = 14
"""Columns of the screen that a file's name, or what is folded, has at least."""

NOTHING = "–"
"""What stands where there is no value."""


def to_stdout() -> Console:
    """Where answers go."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def to_stderr() -> Console:
    """Where everything goes that is not the answer."""
    return Console(file=sys.stderr)


def print_json(value: Any) -> None:
    """JSON and nothing else on stdout."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table on stdout; numbers stand right, nothing is read as markup, only names are cut.

    On a terminal too narrow for a row each row goes on in lines of its own: an id that lost its end
    would be another id.
    """
    body = [list(row) for row in rows]
    cells = [[_cell(value) for value in row] for row in body]
    console = to_stdout()
    if sys.stdout.isatty() and _least_width(columns, cells) > console.width:
        _print_rows(console, title, columns, cells)
        return
    narrow = sys.stdout.isatty() and "file" in columns
    table = Table(title=Text(title), box=box.SIMPLE, title_justify="left", expand=narrow)
    for number, name in enumerate(columns):
        numeric = name in TIMES or all(isinstance(row[number], int | float) for row in body)
        table.add_column(
            name,
            justify="right" if numeric and body else "left",
            no_wrap=name not in FOLDED,
            overflow="ellipsis" if name == "file" else "fold",
            ratio=1 if narrow and name == "file" else None,
        )
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _least_width(columns: Sequence[str], cells: list[list[str]]) -> int:
    """Columns of the screen below which more would be cut than a file's name."""
    width = 1
    for number, name in enumerate(columns):
        widest = max(cell_len(text) for text in (name, *(row[number] for row in cells)))
        width += 3 + (min(widest, NARROWEST) if name == "file" or name in FOLDED else widest)
    return width


def _print_rows(
    console: Console, title: str, columns: Sequence[str], cells: list[list[str]]
) -> None:
    """Each row as its first cell, and below it what else it has, by name."""
    console.print(Text(title))
    for first, *rest in cells:
        console.print(Padding(Text(first), (0, 0, 0, 2)))
        told = [
            f"{name} {cell}"
            for name, cell in zip(columns[1:], rest, strict=True)
            if cell not in ("", NOTHING)
        ]
        console.print(Padding(Text(" · ".join(told)), (0, 0, 0, 6)))


def _cell(value: Any) -> str:
    if value is None:
        return NOTHING
    return f"{value:.1f}" if isinstance(value, float) else printable(str(value))


def printable(text: str, limit: int = 80) -> str:
    r"""A name on one line, without what a terminal would obey.

    >>> printable("a\n\x1b[31mb"), printable("abcdef", 4)
    ('a\\n\\x1b[31mb', 'abc…')
    """
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def clock(seconds: float | None) -> str:
    """A time people can compare.

    >>> clock(3.21), clock(83.0), clock(4000.0), clock(None)
    ('3.2 s', '1:23', '1:06:40', '–')
    """
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def moment(at: datetime | str | None) -> str | None:
    """A time on this machine's clock, to the second; None stays None."""
    if at is None:
        return None
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def done_by(eta_s: float | None, eta_p90_s: float | None) -> str:
    """When it will be done, on this machine's clock; empty while nobody can say."""
    if eta_s is None or eta_p90_s is None:
        return ""
    return f"by {_moment(eta_s)}, nine times in ten by {_moment(eta_p90_s)}"


def _moment(ahead_s: float) -> str:
    at = time.localtime(time.time() + ahead_s)
    today = at[:3] == time.localtime()[:3]
    return time.strftime("%H:%M:%S" if today else "%a %H:%M", at)


def ended_line(job: dict[str, Any]) -> str:
    """One line for a job that has ended."""
    name = printable(job["file_name"])
    if job["status"] == "completed":
        times = f"{clock(job['duration_s'])} long, waited {clock(job['wait_s'])}"
        words = ", nobody speaks" if job["no_speech"] else f", ran {clock(job['run_s'])}"
        return f"completed  {name}  {times}{words}"
    why = f": {job['error']['message']}" if job["error"] else ""
    return f"{job['status']:<9}  {name}{why}"


def print_jobs(jobs: list[dict[str, Any]], *, more: bool) -> None:
    """A table of jobs."""
    columns = ("id", "file", "status", "stage", "done", "length", "waited", "ran", "error")
    rows = [
        (
            *(job["id"], job["file_name"], job["status"], job["stage"], f"{job['progress']:.0%}"),
            *(clock(job["duration_s"]), clock(job["wait_s"]), clock(job["run_s"])),
            job["error"]["code"] if job["error"] else "",
        )
        for job in jobs
    ]
    print_table(f"{len(jobs)} jobs{', and more: see --limit' if more else ''}", columns, rows)


# -- settings -------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShownSetting:
    """One setting as shown: its unit apart from its meaning, no password in its value."""

    name: str
    value: str
    default: str
    unit: str
    meaning: str


def shown_settings(settings: Settings) -> list[ShownSetting]:
    """Every setting, in the order they are declared."""
    shown = []
    for name, row in zip(Settings.model_fields, setting_rows(settings), strict=True):
        meaning, unit, more = _split(row.meaning)
        computed = Settings.model_fields[name].default_factory is not None
        # a default that is computed depends on who asks; the description says how
        default = more.removeprefix("default: ") if computed else row.default
        unset = getattr(settings, name) is None
        secret = "***" if name in SECRETS else without_password(row.value)
        value = "unset" if unset else secret
        shown.append(ShownSetting(row.name, value, default, unit, meaning))
    return shown


def _split(description: str) -> tuple[str, str, str]:
    """(meaning, unit, what else the brackets say) of "Meaning (unit: u; more)"."""
    parts = re.fullmatch(r"(.*?)\s*\(unit: ([^;)]+)(?:; (.*))?\)", description, re.DOTALL)
    return (parts[1], parts[2], parts[3] or "") if parts else (description, "", "")


def settings_page(settings: Settings) -> str:
    """`docs/settings.md`: every setting with default, unit and meaning, without its value."""
    files = ", ".join(f"`{PREFIX}{name.upper()}_FILE`" for name in sorted(BY_FILE))
    lines = [
        "# Settings",
        "",
        "Every setting is an environment variable, read once at start. A value that cannot be",
        "used, and a `FAIRSCRIBE_` name nobody knows, is refused with its name, its value and what",
        "was expected. `fairscribe settings` shows the values in force, and no secret.",
        "",
        f"What is secret may stand in a file that `<NAME>_FILE` names: {files}.",
        "",
        "This page is written by `fairscribe settings --markdown > docs/settings.md`.",
        "",
        "| setting | default | unit | meaning |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{row.name}` | {row.default} | {row.unit} | {row.meaning.replace('|', '&#124;')} |"
        for row in shown_settings(settings)
    ]
    return "\n".join(lines) + "\n"
