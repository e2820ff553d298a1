"""The graph as a picture: boxes of operations, a band for each stage, and what is handed on between them."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from trimtab.core import format_bytes, format_flop
from trimtab.page import COLORS
from trimtab.partition import svg
from trimtab.partition.graph import Graph, Ints
from trimtab.partition.layer_names import module_paths

MOST_BOXES = 150
_LEAST_BOXES, _BOXES_TO_A_STAGE = 16, 3
WIDTH, HEIGHT, GAP_X, _GAP_Y = 104, 26, 22, 12
COLUMNS = 7
_LEFT, _BAND = 120, 26


@dataclass(frozen=True, slots=True)
class Boxes:
    """Nodes drawn as one: `of[node]` is its box; columns over boxes, in an order that can be run."""

    of: Ints
    names: tuple[str, ...]
    stage: tuple[int, ...]


def graph_picture(graph: Graph, stage_of: Sequence[int], labels: Sequence[str]) -> str:
    """The whole picture; `labels` says for each stage who runs it."""
    boxes = boxed(graph, stage_of)
    edges = edges_between(graph, boxes)
    column = _columns(boxes, edges)
    place, bands, height = _places(boxes, column, len(labels))
    parts = [_band(top, bottom, stage, labels[stage]) for stage, (top, bottom) in enumerate(bands)]
    parts += [_edge(boxes, place, source, target, size) for (source, target), size in edges.items()]
    parts += [
        node_box(graph, boxes, place[number], number, f"stage {boxes.stage[number] + 1}")
        for number in range(len(boxes.names))
    ]
    width = _LEFT + COLUMNS * (WIDTH + GAP_X) + 40
    return svg.drawing(width, height, "The model's graph, by stage", parts)


def boxed(graph: Graph, stage_of: Sequence[int], most: int = MOST_BOXES) -> Boxes:
    """Nodes of one module and stage as one box, at a depth with few boxes to a stage, but not too few.

    A module that is left and entered again has a box for each time, so that boxes can be run in order.
    """
    paths = module_paths(graph)
    enough = max(_LEAST_BOXES, _BOXES_TO_A_STAGE * (max(stage_of) + 1))
    chosen: Boxes | None = None
    for depth in range(1, max(len(path) for path in paths) + 1):
        modules = [(stage, *path[:depth]) for stage, path in zip(stage_of, paths, strict=True)]
        boxes = _boxes(list(zip(modules, _visits(graph, modules), strict=True)), paths, stage_of)
        if len(boxes.names) > most:
            break
        chosen = boxes
        if len(boxes.names) >= enough:
            break
    if chosen is not None:
        return chosen
    size = -(-len(graph) // most)
    return _boxes([(stage, node // size) for node, stage in enumerate(stage_of)], paths, stage_of)


def _visits(graph: Graph, modules: Sequence[Hashable]) -> list[int]:
    """How often the way to each node changed modules, at most: the same for what is run in one go."""
    changes = [0] * len(graph)
    sources, targets, _ = graph.edges
    for use in np.argsort(targets, kind="stable").tolist():
        source, target = int(sources[use]), int(targets[use])
        changes[target] = max(changes[target], changes[source] + (modules[source] != modules[target]))
    return changes


def _boxes(keys: Sequence[Hashable], paths: Sequence[tuple[str, ...]], stage_of: Sequence[int]) -> Boxes:
    inside: dict[Hashable, list[int]] = {}
    for node, key in enumerate(keys):
        inside.setdefault(key, []).append(node)
    number = {key: index for index, key in enumerate(inside)}
    return Boxes(
        np.array([number[key] for key in keys], dtype=np.int64),
        tuple(_shared(paths, nodes) for nodes in inside.values()),
        tuple(stage_of[nodes[0]] for nodes in inside.values()),
    )


def _shared(paths: Sequence[tuple[str, ...]], nodes: Sequence[int]) -> str:
    """What the paths of some nodes have in common, or the first of them where that is nothing."""
    lowest, highest = min(paths[node] for node in nodes), max(paths[node] for node in nodes)
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(lowest, highest, strict=False))
    return ".".join(one for one, _ in alike) or f"{'.'.join(paths[nodes[0]])} …"


def edges_between(graph: Graph, boxes: Boxes) -> dict[tuple[int, int], float]:
    """Bytes per sample between boxes, every tensor counted once."""
    sources, targets = boxes.of[graph.producer[graph.used]], boxes.of[graph.user]
    once = {(int(s), int(t), int(u)) for s, t, u in zip(sources, targets, graph.used, strict=True) if s != t}
    between: dict[tuple[int, int], float] = {}
    for source, target, tensor in sorted(once):
        between[source, target] = between.get((source, target), 0.0) + float(graph.size[tensor])
    return between


def _columns(boxes: Boxes, edges: dict[tuple[int, int], float]) -> list[int]:
    """How far into its stage each box stands: behind all of the stage that it needs."""
    column = [0] * len(boxes.names)
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        if source < target and boxes.stage[source] == boxes.stage[target]:
            column[target] = max(column[target], column[source] + 1)
    return column


def _places(
    boxes: Boxes, column: Sequence[int], stages: int
) -> tuple[list[tuple[float, float]], list[tuple[float, float]], float]:
    """The corner of every box, top and bottom of every stage's band, and the height of it all."""
    place: list[tuple[float, float]] = [(0.0, 0.0)] * len(boxes.names)
    bands, top = [], 10.0
    for stage in range(stages):
        here = [b for b in range(len(boxes.names)) if boxes.stage[b] == stage]
        y = top + 14.0
        for line in range(max((column[b] for b in here), default=0) // COLUMNS + 1):
            stacked: dict[int, int] = {}
            for b in (b for b in here if column[b] // COLUMNS == line):
                level = stacked[column[b]] = stacked.get(column[b], -1) + 1
                x = _LEFT + (column[b] % COLUMNS) * (WIDTH + GAP_X)
                place[b] = (x, y + level * (HEIGHT + _GAP_Y))
            y += (max(stacked.values(), default=0) + 1) * (HEIGHT + _GAP_Y) + 6
        bands.append((top, y))
        top = y + _BAND
    return place, bands, top


def _band(top: float, bottom: float, stage: int, label: str) -> str:
    width = _LEFT + COLUMNS * (WIDTH + GAP_X) + 20
    color = COLORS[stage % len(COLORS)]
    return (
        svg.box(4, top, width, bottom - top, color, label, 'fill-opacity="0.10" rx="6"')
        + svg.text(12, top + 20, f"stage {stage + 1}", size=12)
        + svg.text(12, top + 35, svg.shortened(label, 18), svg.SOFT)
    )


def node_box(graph: Graph, boxes: Boxes, corner: tuple[float, float], number: int, where: str) -> str:
    """One box in its stage's colour; `where` says under the mouse which that is."""
    inside = boxes.of == number
    x, y = corner
    stage = boxes.stage[number]
    title = (
        f"{boxes.names[number]} ({where}): {int(inside.sum())} operations,"
        f" {graph.parameters[inside].sum():,.0f} parameters, {format_flop(float(graph.flop[inside].sum()))}"
        " per sample"
    )
    frame = f'class="node" data-stage="{stage}" rx="4" stroke="{svg.INK}" stroke-opacity="0.5"'
    return svg.box(x, y, WIDTH, HEIGHT, COLORS[stage % len(COLORS)], title, frame) + svg.text(
        x + WIDTH / 2, y + 17, svg.shortened(boxes.names[number], 17), "#000", "middle", 10
    )


def _edge(boxes: Boxes, place: Sequence[tuple[float, float]], source: int, target: int, size: float) -> str:
    """A line between boxes: short ones straight, skips in a bow, those between stages heavy."""
    (x1, y1), (x2, y2) = place[source], place[target]
    apart = boxes.stage[target] - boxes.stage[source]
    title = f"{boxes.names[source]} → {boxes.names[target]}: {format_bytes(size)} per sample"
    if apart == 0 and y1 == y2 and 0 < x2 - x1 <= WIDTH + GAP_X:
        return svg.curve(f"M{x1 + WIDTH} {y1 + 13}L{x2} {y2 + 13}", svg.SOFT, 1.2, title)
    if apart == 0 and y1 == y2:
        middle = (x1 + x2 + WIDTH) / 2
        return svg.curve(f"M{x1 + WIDTH} {y1 + 6}Q{middle} {y1 - 22} {x2} {y2 + 6}", svg.SOFT, 1.2, title)
    if apart == 0 and x1 < x2:
        return svg.curve(
            f"M{x1 + WIDTH} {y1 + 13}C{x1 + WIDTH + 24} {y1 + 13} {x2 - 24} {y2 + 13} {x2} {y2 + 13}",
            svg.SOFT,
            1.2,
            title,
        )
    a, b = x1 + WIDTH / 2, x2 + WIDTH / 2
    bend = 30 + 12 * min(abs(apart), 6)
    path = f"M{a} {y1 + HEIGHT}C{a} {y1 + HEIGHT + bend} {b} {y2 - bend} {b} {y2}"
    return svg.curve(path, svg.INK if apart else svg.SOFT, 1.8 if apart else 1.2, title, dashed=apart > 1)
