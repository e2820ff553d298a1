"""Which layers a stage has, in few words: whole modules by their path, and rows of them as ranges."""

import re
from collections.abc import Iterable, Sequence

from trimtab.partition.graph import Graph

_NUMBERED = re.compile(r"(.*?)(\d+)")
_RANGE = re.compile(r".*?(\d+)–(\d+)")
_ENDS = ("input", "output")
PART = " (part)"


def layers_by_stage(graph: Graph, stage_of: Sequence[int], stages: int) -> tuple[tuple[str, ...], ...]:
    """For each stage the largest modules that it has as a whole, in order; a layer that is cut is a part."""
    cut = _cut_modules(graph, stage_of)
    found: list[dict[str, None]] = [{} for _ in range(stages)]
    for node, path in enumerate(module_paths(graph)):
        if graph.kinds[node] not in _ENDS:
            found[stage_of[node]][_largest(path, cut)] = None
    return tuple(ranges(modules) for modules in found)


def ranges(names: Iterable[str]) -> tuple[str, ...]:
    """Names that only count up joined: h.0, h.1, h.2 as h.0–2."""
    found: list[list[str]] = []
    for name in names:
        if found and _follows(found[-1][-1], name):
            found[-1].append(name)
        else:
            found.append([name])
    return tuple(_joined(run) for run in found)


def row_length(name: str) -> int:
    """How many modules a name like h.0–2 stands for."""
    match = _RANGE.fullmatch(name)
    return int(match[2]) - int(match[1]) + 1 if match else 1


def module_paths(graph: Graph) -> list[tuple[str, ...]]:
    """The path of every node's module, or its own name where it belongs to none."""
    both = zip(graph.blocks, graph.names, strict=True)
    return [tuple(block.split(".")) if block else (name,) for block, name in both]


def _cut_modules(graph: Graph, stage_of: Sequence[int]) -> set[str]:
    """Modules that lie in more than one stage."""
    first: dict[str, int] = {}
    cut = set()
    for node, path in enumerate(module_paths(graph)):
        if graph.kinds[node] in _ENDS:
            continue
        for depth in range(len(path) + 1):
            module = ".".join(path[:depth])
            if first.setdefault(module, stage_of[node]) != stage_of[node]:
                cut.add(module)
    return cut


def _largest(path: tuple[str, ...], cut: set[str]) -> str:
    """The outermost module around a node that is not cut."""
    if "" not in cut:
        return "the whole model"
    modules = (".".join(path[:depth]) for depth in range(1, len(path) + 1))
    return next((module for module in modules if module not in cut), ".".join(path) + PART)


def _follows(before: str, name: str) -> bool:
    first, second = _NUMBERED.fullmatch(before), _NUMBERED.fullmatch(name)
    return bool(first and second and first[1] == second[1] and int(second[2]) == int(first[2]) + 1)


def _joined(run: Sequence[str]) -> str:
    if len(run) == 1:
        return run[0]
    last = _NUMBERED.fullmatch(run[-1])
    return f"{run[0]}–{last[2]}" if last else run[0]
