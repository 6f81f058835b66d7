"""A block of a page says what it is, for only what is named can be tried out.

`sh` and `python` blocks of README.md, docs/api.md and docs/cli.md are run by
tests/journey/test_documents.py, those of docs/deploy.md are held against compose.yaml by
test_compose.py; `text` is what a program prints.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
KINDS = {"sh", "python", "json", "yaml", "text", "caddy", "nginx"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_names_its_language_and_its_json_is_json(page: Path) -> None:
    text = page.read_text("utf-8")
    fences = re.findall(r"^```(.*)$", text, re.MULTILINE)
    assert len(fences) % 2 == 0, "a block does not end"
    opened, closed = fences[::2], fences[1::2]
    assert not any(closed)
    if page.name == "map.md":  # a drawing, not a program
        opened = [kind for kind in opened if kind]
    assert set(opened) <= KINDS, f"unknown: {sorted(set(opened) - KINDS)}"
    for block in re.findall(r"^```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        json.loads(block)
