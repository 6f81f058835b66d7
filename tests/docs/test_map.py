"""docs/map.md and the tree agree: what the map names is there, what is there is on the map.

A path on the map is written from the root (`pipeline/steps/accept.py`); one with a star
(`pipeline/queue/lua/*.lua`) stands for all it matches.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAP = ROOT / "docs" / "map.md"

PATH = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*/?")
FILE_ENDINGS = (".py", ".lua", ".md", ".toml", ".yaml", ".sql", ".onnx", ".ini", ".txt")


def paths_in(text: str) -> set[str]:
    """Return what stands in single backticks and reads as a path of the tree.

    A word with a slash or a file's ending is one. `POST /v1/jobs` is not (a space, and a path of
    the tree does not start at a slash), nor is a fenced block, which holds the drawing.
    """
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    quoted = re.findall(r"`([^`\n]+)`", prose)
    return {q for q in quoted if PATH.fullmatch(q) and ("/" in q or q.endswith(FILE_ENDINGS))}


def test_every_path_on_the_map_is_in_the_tree() -> None:
    named = sorted(paths_in(MAP.read_text("utf-8")))
    missing = [path for path in named if not any(ROOT.glob(path.rstrip("/")))]
    assert not missing, f"docs/map.md names what is not there: {missing}"


@pytest.mark.parametrize("package", ["pipeline", "workers"])
def test_every_file_of_the_tree_is_on_the_map(package: str) -> None:
    named = {file for path in paths_in(MAP.read_text("utf-8")) for file in ROOT.glob(path)}
    files = [
        path
        for ending in ("*.py", "*.lua")
        for path in (ROOT / package).rglob(ending)
        if path.name != "__init__.py"
    ]
    lost = sorted(str(path.relative_to(ROOT)) for path in set(files) - named)
    assert not lost, f"docs/map.md does not name: {lost}"


def test_a_path_is_told_from_an_address_a_name_and_a_drawing() -> None:
    text = """
`pipeline/steps/accept.py` takes `POST /v1/jobs` under `/v1/jobs`, calls `Queue.enqueue`
and `pipeline/queue/lua/*.lua`, in `pipeline/queue/`; see `compose.yaml` and `queued`.

```
`drawn/only.py`
```
"""
    assert paths_in(text) == {
        "pipeline/steps/accept.py",
        "pipeline/queue/lua/*.lua",
        "pipeline/queue/",
        "compose.yaml",
    }
