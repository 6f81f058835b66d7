"""docs/settings.md is what `fairscribe settings --markdown` writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline.cli.show import settings_page, shown_settings
from pipeline.errors import BadSetting
from pipeline.settings import Settings, read_settings, setting_rows

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"


def test_the_page_is_what_the_command_writes() -> None:
    page = PAGE.read_text("utf-8")
    written = settings_page(read_settings({}))
    assert page == written, "write it anew: fairscribe settings --markdown > docs/settings.md"


def test_every_setting_is_on_the_page_with_its_default_and_meaning() -> None:
    page = PAGE.read_text("utf-8")
    rows = {
        row[0].strip("`"): row[1:]
        for row in re.findall(r"^\| (`FAIRSCRIBE_\w+`) \| (.+?) \| (.+?) \| (.+) \|$", page, re.M)
    }
    for row in setting_rows(read_settings({})):
        default, unit, meaning = rows.pop(row.name)
        computed = row.name == "FAIRSCRIBE_HOME"
        assert computed or default == row.default
        assert unit, row.name
        assert meaning, row.name
        assert row.meaning.startswith(meaning)
    assert not rows, f"no such settings: {sorted(rows)}"


def test_the_page_does_not_depend_on_who_writes_it_or_on_the_values_in_force() -> None:
    other = read_settings({"FAIRSCRIBE_SLOTS": "7", "FAIRSCRIBE_HOME": "/elsewhere"})
    assert settings_page(other) == settings_page(read_settings({}))


def test_every_setting_says_its_unit() -> None:
    shown = shown_settings(read_settings({}))
    assert len(shown) == len(Settings.model_fields)
    assert [row.name for row in shown if not row.unit or "unit:" in row.meaning] == []


def test_a_refused_value_is_named_with_what_was_expected() -> None:
    with pytest.raises(BadSetting) as refused:
        read_settings({"FAIRSCRIBE_DATABASE_URL": "mysql://x"})
    assert refused.value.message.startswith(
        "FAIRSCRIBE_DATABASE_URL='mysql://x': a URL that begins with postgresql"
    )


def test_a_longest_wait_beyond_a_year_is_refused_before_it_overflows() -> None:
    with pytest.raises(BadSetting, match="FAIRSCRIBE_MAX_WAIT_S"):
        read_settings({"FAIRSCRIBE_MAX_WAIT_S": "1e306"})
