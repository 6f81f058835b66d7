"""The page of what is promised names every place where a process was made to die, in order."""

from __future__ import annotations

import re
from pathlib import Path

from pipeline.crash_points import POINTS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"


def test_every_crash_point_has_its_row() -> None:
    section = PAGE.read_text().partition("## Where a process may die")[2].partition("Time from")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(POINTS)
