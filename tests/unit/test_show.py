"""Tables on terminals that are wide enough, and on those that are not."""

from __future__ import annotations

import io
import re
import sys

import pytest

from pipeline.cli import show

ID = "01a22d68-26b0-724f-94d8-6f155c63b250"
COLUMNS = ("id", "file", "status", "stage", "done", "length", "waited", "ran", "error")
ROW = (ID, "a_call_with_a_long_name.wav", "completed", "completed", 1, "16.4 s", "1.3 s", None, "")


class Terminal(io.StringIO):
    """What stands for stdout is said to be one."""

    def isatty(self) -> bool:
        return True


def printed(monkeypatch: pytest.MonkeyPatch, width: int, columns: tuple[str, ...]) -> str:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    show.print_table("Jobs", columns, [ROW[: len(columns)]] * 2)
    return re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())


@pytest.mark.parametrize("width", [40, 80, 100, 110, 120, 160])
@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS[:3], ("id",)])
def test_on_no_terminal_an_id_or_a_state_loses_its_end(
    monkeypatch: pytest.MonkeyPatch, width: int, columns: tuple[str, ...]
) -> None:
    out = printed(monkeypatch, width, columns)
    assert max(map(len, out.splitlines())) <= width
    assert out.count(ID) == 2
    if "status" in columns:
        assert out.count("completed") == 2 * sum(
            cell == "completed" for cell in ROW[: len(columns)]
        )


def test_where_a_row_does_not_fit_it_goes_on_by_name_without_what_is_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = printed(monkeypatch, 80, COLUMNS).splitlines()
    assert lines[:2] == ["Jobs".ljust(len(lines[0])), f"  {ID}".ljust(len(lines[1]))]
    assert lines[2].strip().startswith("file a_call_with_a_long_name.wav · status completed")
    assert "ran" not in "".join(lines)
    assert "error" not in "".join(lines)
