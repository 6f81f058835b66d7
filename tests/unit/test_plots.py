"""The plots of the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import plots


def test_the_same_numbers_draw_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "FOLDER", tmp_path / "docs" / "plots")
    monkeypatch.setattr("sys.argv", ["plots", "--only", "frontier", "--seeds", "1"])
    drawn = []
    for _ in range(2):
        assert plots.main() == 0
        drawn.append((tmp_path / "docs" / "plots" / "frontier.svg").read_bytes())
    assert drawn[0] == drawn[1]
    assert b"hrrn(2.5)" in drawn[0]
