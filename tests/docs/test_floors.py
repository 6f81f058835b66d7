"""The floors of CONTRIBUTING.md, as far as import-linter does not see them.

import-linter (`make check`) holds the directions. What it cannot tell is the standard library from
the rest, and it judges cycles between packages; here each file counts, as does an import that a
function defers: a deferred import hides a knot, it does not untie it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORDS = ["recording.py", "job.py", "errors.py", "clock.py", "engine.py"]
RULES = ["scheduling/**/*.py", "transcript/**/*.py"]
LOW_FLOORS = sorted(path for pattern in WORDS + RULES for path in (ROOT / "pipeline").glob(pattern))


def imports(path: Path, module: str) -> Iterator[tuple[str, ...]]:
    """Yield, for each import anywhere in the file, the modules it may mean, likeliest first.

    `from a.b import c` means the module a.b.c if there is one, else a.b.
    """
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((alias.name,) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - (node.level - 1)]
            base = ".".join([*(above if node.level else []), *filter(None, [node.module])])
            yield from ((f"{base}.{alias.name}", base) for alias in node.names)


def modules_below(root: Path, *packages: str) -> dict[str, Path]:
    """Return each module of the packages by its dotted name."""
    found = {}
    for path in (path for package in packages for path in (root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def import_graph(modules: dict[str, Path]) -> dict[str, set[str]]:
    """Return, for each module, which of the others it imports."""
    return {
        module: {
            meant
            for names in imports(path, module)
            if (meant := next((name for name in names if name in modules), module)) != module
        }
        for module, path in modules.items()
    }


@pytest.mark.parametrize("path", LOW_FLOORS, ids=lambda path: str(path.relative_to(ROOT)))
def test_words_and_rules_import_only_the_standard_library(path: Path) -> None:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    outside = {
        names[-1]
        for names in imports(path, module)
        if names[-1].partition(".")[0] not in sys.stdlib_module_names | {"pipeline"}
    }
    assert not outside, f"{module} can no longer run in a simulator without {outside}"


def test_no_file_imports_itself_round_a_corner() -> None:
    try:
        TopologicalSorter(import_graph(modules_below(ROOT, "pipeline", "workers"))).prepare()
    except CycleError as error:
        pytest.fail("import cycle: " + " <- ".join(error.args[1]))


def test_a_cycle_through_deferred_and_relative_imports_is_seen(tmp_path: Path) -> None:
    # Given three files where only function bodies and relative imports close the circle
    (tmp_path / "p" / "q").mkdir(parents=True)
    (tmp_path / "p" / "__init__.py").touch()
    (tmp_path / "p" / "q" / "__init__.py").touch()
    (tmp_path / "p" / "a.py").write_text("def late():\n    from p.q import b\n")
    (tmp_path / "p" / "q" / "b.py").write_text("from .c import x\n")
    (tmp_path / "p" / "q" / "c.py").write_text("import json\nfrom ..a import late\n")
    # When the graph is read
    graph = import_graph(modules_below(tmp_path, "p"))
    # Then it has exactly that circle
    assert {module: others for module, others in graph.items() if others} == {
        "p.a": {"p.q.b"},
        "p.q.b": {"p.q.c"},
        "p.q.c": {"p.a"},
    }
    with pytest.raises(CycleError):
        TopologicalSorter(graph).prepare()
