"""A placement as a picture: the graph from top to bottom, branches side by side, a colour for each device."""

from collections.abc import Sequence

from trimtab.core import format_bytes
from trimtab.page import COLORS
from trimtab.partition import svg
from trimtab.partition.graph_picture import (
    COLUMNS,
    GAP_X,
    HEIGHT,
    WIDTH,
    Boxes,
    boxed,
    edges_between,
    node_box,
)
from trimtab.partition.placement import Placement

_LEFT, _TOP, _GAP_Y = 20, 12, 24
_LEGEND = 22

Corner = tuple[float, float]


def placement_picture(placed: Placement) -> str:
    """The whole picture, with the devices' colours at its top."""
    names = [placed.devices[device].name for device in placed.used]
    number_of = {device: number for number, device in enumerate(placed.used)}
    boxes = boxed(placed.graph, [number_of[device] for device in placed.device_of])
    edges = edges_between(placed.graph, boxes)
    parts, top = _legend(names)
    corners, height = _corners(_levels(boxes, edges), top)
    parts += [_edge(boxes, names, corners, *ends, size) for ends, size in edges.items()]
    parts += [
        node_box(placed.graph, boxes, corner, number, names[boxes.stage[number]])
        for number, corner in enumerate(corners)
    ]
    width = 2 * _LEFT + COLUMNS * (WIDTH + GAP_X)
    return svg.drawing(width, height, "The model's graph, by device", parts)


def _levels(boxes: Boxes, edges: dict[tuple[int, int], float]) -> list[int]:
    """How far from the top each box stands: below all that it needs."""
    level = [0] * len(boxes.names)
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        if source < target:
            level[target] = max(level[target], level[source] + 1)
    return level


def _corners(level: Sequence[int], top: float) -> tuple[list[Corner], float]:
    """The corner of every box, those of a level side by side and in the middle; and the height of it all."""
    corners: list[Corner] = [(0.0, 0.0)] * len(level)
    for here in range(max(level) + 1):
        row = [box for box, at in enumerate(level) if at == here]
        for first in range(0, len(row), COLUMNS):
            line = row[first : first + COLUMNS]
            left = _LEFT + (COLUMNS - len(line)) / 2 * (WIDTH + GAP_X)
            for place, box in enumerate(line):
                corners[box] = (left + place * (WIDTH + GAP_X), top)
            top += HEIGHT + _GAP_Y
    return corners, top


def _edge(
    boxes: Boxes, names: Sequence[str], corners: Sequence[Corner], source: int, target: int, size: float
) -> str:
    """A line down to what needs it, heavy where it goes to another device."""
    (x1, y1), (x2, y2) = corners[source], corners[target]
    start, end = names[boxes.stage[source]], names[boxes.stage[target]]
    a, b, bend = x1 + WIDTH / 2, x2 + WIDTH / 2, _GAP_Y / 2
    path = f"M{a} {y1 + HEIGHT}C{a} {y1 + HEIGHT + bend} {b} {y2 - bend} {b} {y2}"
    title = (
        f"{boxes.names[source]} ({start}) → {boxes.names[target]} ({end}): {format_bytes(size)} per sample"
    )
    return svg.curve(path, *((svg.SOFT, 1.2) if start == end else (svg.INK, 1.8)), title)


def _legend(names: Sequence[str]) -> tuple[list[str], float]:
    """A line for every few devices, and where the picture goes on below."""
    parts = []
    for number, name in enumerate(names):
        line, place = divmod(number, COLUMNS)
        x, y = _LEFT + place * (WIDTH + GAP_X), _TOP + line * _LEGEND
        parts.append(svg.box(x, y, 11, 11, COLORS[number % len(COLORS)], name, 'class="device"'))
        parts.append(svg.text(x + 16, y + 10, svg.shortened(name, 16)))
    return parts, _TOP + (1 + (len(names) - 1) // COLUMNS) * _LEGEND + 8.0
