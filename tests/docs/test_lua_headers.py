"""Each Lua script says what it takes and what it answers, and takes no key it does not say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline.queue.scripts import SCRIPTS

FOLDER = Path("pipeline/queue/lua")


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_header_lists_the_keys_the_script_uses(name: str) -> None:
    lines = (FOLDER / f"{name}.lua").read_text().splitlines()
    assert lines[0] == "#!lua"  # makes Redis refuse a key that is not declared
    comments = [line for line in lines[1:] if line.startswith("--")]
    header = "\n".join(comments)
    assert re.search(r"^-- KEYS  ", header, re.M)
    assert re.search(r"^-- ARGV  ", header, re.M)
    assert re.search(r"^-- Returns ", header, re.M)
    code = "\n".join(line for line in lines if not line.strip().startswith("--"))
    used = {int(n) for n in re.findall(r"KEYS\[(\d+)\]", code)}
    said = header.split("-- ARGV")[0].split("-- KEYS")[1]
    assert used == {int(n) for n in re.findall(r"(?:^|\s)(\d) \w+ (?:ZSET|HASH|STRING)", said)}


def test_every_script_in_the_folder_has_its_method() -> None:
    assert {path.stem for path in FOLDER.glob("*.lua")} == set(SCRIPTS)
