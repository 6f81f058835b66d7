"""SECURITY.md leads somewhere: its links, and the settings it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "SECURITY.md").read_text("utf-8")


def anchors(page: Path) -> set[str]:
    """How a forge names the headings of `page`."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)]+)\)", PAGE))))
def test_a_link_leads_to_a_page_and_a_heading_that_are_there(link: str) -> None:
    path, _, anchor = link.partition("#")
    assert (ROOT / path).is_file()
    assert not anchor or anchor in anchors(ROOT / path)


def test_the_settings_it_names_exist() -> None:
    named = set(re.findall(r"FAIRSCRIBE_([A-Z_]+)", PAGE))
    assert {name.lower() for name in named} <= set(Settings.model_fields)
