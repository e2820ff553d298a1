"""Docstrings stand alone, and one public class name means one thing."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEEDS_A_NEIGHBOUR = re.compile(r"(The same|And back|Who |What |Whether what|As many|Those |That which)")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def trees() -> Iterator[tuple[str, ast.Module]]:
    for folder in ("src", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def test_no_docstring_needs_its_neighbour():
    unclear = [
        f"{path}:{getattr(node, 'lineno', 1)}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, DOCUMENTED) and NEEDS_A_NEIGHBOUR.match(ast.get_docstring(node) or "")
    ]
    assert unclear == []


def test_a_public_class_name_is_used_once():
    places: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(path)
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}
