"""A plan as SVG pictures: the graph by stage or by device, the schedule of a step, memory."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import takewhile

import numpy as np

from trimtab.core import format_bytes, format_duration, format_flop
from trimtab.page import COLORS
from trimtab.partition.devices import Devices
from trimtab.partition.explain import alike, device_names, module_paths, stage_labels
from trimtab.partition.forecast import Slot, StageTimes, timeline
from trimtab.partition.graph import Graph, Ints
from trimtab.partition.plan import DeviceUse, NodePlacement, Plan, PlanForecast, Solution
from trimtab.partition.problem import usable_memory

INK, SOFT = "#1b1e23", "#7a8088"


def drawing(width: float, height: float, name: str, parts: Sequence[str]) -> str:
    """An SVG figure that scrolls where it is wider than the page."""
    return (
        f'<figure class="chart scroll" aria-label="{escape(name)}">'
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(name)}"'
        f' width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
        f' font-family="system-ui, sans-serif" font-size="11">{"".join(parts)}</svg></figure>'
    )


def rectangle(
    x: float, y: float, width: float, height: float, fill: str, title: str = "", more: str = ""
) -> str:
    """A rectangle; `title` is shown under the mouse, `more` are further attributes."""
    shape = f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.2f}" height="{height:.1f}" fill="{fill}"'
    return f"{shape} {more}>{_title(title)}</rect>" if title else f"{shape} {more}/>"


def text(x: float, y: float, words: str, color: str = INK, anchor: str = "start", size: int = 11) -> str:

    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(words)}</text>"
    )


def curve(path: str, color: str, width: float = 1.0, title: str = "", dashed: bool = False) -> str:
    """A line along an SVG path."""
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    line = f'<path d="{path}" fill="none" stroke="{color}" stroke-width="{width:g}"{dashes}'
    return f"{line}>{_title(title)}</path>"


def shortened(words: str, most: int) -> str:
    """The end of a name longer than `most` characters: it tells more than the start."""
    return words if len(words) <= most else f"…{words[1 - most :]}"


def _title(words: str) -> str:
    return f"<title>{escape(words)}</title>" if words else ""


MOST_BOXES = 150
_LEAST_BOXES, _BOXES_TO_A_STAGE = 16, 3
WIDTH, HEIGHT, GAP_X, _STAGE_GAP_Y = 104, 26, 22, 12
COLUMNS = 7
_STAGE_LEFT, _BAND = 120, 26

Corner = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Boxes:
    """Groups of nodes, each drawn as one box: `of[node]` is its box; boxes are in topological order."""

    of: Ints
    names: tuple[str, ...]
    stage: tuple[int, ...]


def graph_picture(graph: Graph, stage_of: Sequence[int], labels: Sequence[str]) -> str:
    """The graph in one band per stage; `labels` names the devices of each stage."""
    boxes = boxed(graph, stage_of)
    edges = edges_between(graph, boxes)
    column = _levels(boxes, {e: s for e, s in edges.items() if boxes.stage[e[0]] == boxes.stage[e[1]]})
    place, bands, height = _places(boxes, column, len(labels))
    width = _STAGE_LEFT + COLUMNS * (WIDTH + GAP_X) + 20
    parts = []
    for stage, (top, bottom) in enumerate(bands):
        color, label = COLORS[stage % len(COLORS)], labels[stage]
        parts += [
            rectangle(4, top, width, bottom - top, color, label, 'fill-opacity="0.10" rx="6"'),
            text(12, top + 20, f"stage {stage + 1}", size=12),
            text(12, top + 35, shortened(label, 18), SOFT),
        ]
    parts += [_stage_edge(boxes, place, source, target, size) for (source, target), size in edges.items()]
    parts += [
        node_box(graph, boxes, place[number], number, f"stage {boxes.stage[number] + 1}")
        for number in range(len(boxes.names))
    ]
    return drawing(width + 20, height, "The model's graph, by stage", parts)


def boxed(graph: Graph, stage_of: Sequence[int], most: int = MOST_BOXES) -> Boxes:
    """One box for the nodes of a module in a stage, at a depth with few boxes to a stage, but not too few.

    A module that is left and entered again has a box for each visit, so that boxes have a running order.
    """
    paths = module_paths(graph)
    enough = max(_LEAST_BOXES, _BOXES_TO_A_STAGE * (max(stage_of) + 1))
    chosen: Boxes | None = None
    sources, targets, _ = graph.edges
    for depth in range(1, max(len(path) for path in paths) + 1):
        modules = [(stage, *path[:depth]) for stage, path in zip(stage_of, paths, strict=True)]
        # The most changes of module on any path to a node: equal for nodes of one visit.
        visits = [0] * len(graph)
        for use in np.argsort(targets, kind="stable").tolist():
            source, target = int(sources[use]), int(targets[use])
            visits[target] = max(visits[target], visits[source] + (modules[source] != modules[target]))
        boxes = _boxes(list(zip(modules, visits, strict=True)), paths, stage_of)
        if len(boxes.names) > most:
            break
        chosen = boxes
        if len(boxes.names) >= enough:
            break
    if chosen is not None:
        return chosen
    size = -(-len(graph) // most)
    return _boxes([(stage, node // size) for node, stage in enumerate(stage_of)], paths, stage_of)


def _boxes(keys: Sequence[Hashable], paths: Sequence[tuple[str, ...]], stage_of: Sequence[int]) -> Boxes:
    inside: dict[Hashable, list[int]] = {}
    for node, key in enumerate(keys):
        inside.setdefault(key, []).append(node)
    number = {key: index for index, key in enumerate(inside)}
    names = []
    for nodes in inside.values():
        # The longest common prefix of the nodes' paths, or the first path where there is none.
        lowest, highest = min(paths[node] for node in nodes), max(paths[node] for node in nodes)
        prefix = takewhile(lambda pair: pair[0] == pair[1], zip(lowest, highest, strict=False))
        names.append(".".join(one for one, _ in prefix) or f"{'.'.join(paths[nodes[0]])} …")
    stages = tuple(stage_of[nodes[0]] for nodes in inside.values())
    return Boxes(np.array([number[key] for key in keys], dtype=np.int64), tuple(names), stages)


def edges_between(graph: Graph, boxes: Boxes) -> dict[tuple[int, int], float]:
    """Bytes per sample between boxes, every tensor counted once."""
    sources, targets = boxes.of[graph.producer[graph.used]], boxes.of[graph.user]
    once = {(int(s), int(t), int(u)) for s, t, u in zip(sources, targets, graph.used, strict=True) if s != t}
    between: dict[tuple[int, int], float] = {}
    for source, target, tensor in sorted(once):
        between[source, target] = between.get((source, target), 0.0) + float(graph.size[tensor])
    return between


def _places(
    boxes: Boxes, column: Sequence[int], stages: int
) -> tuple[list[Corner], list[tuple[float, float]], float]:
    """The corner of every box, top and bottom of every stage's band, and the total height."""
    place: list[Corner] = [(0.0, 0.0)] * len(boxes.names)
    bands, top = [], 10.0
    for stage in range(stages):
        here = [b for b in range(len(boxes.names)) if boxes.stage[b] == stage]
        y = top + 14.0
        for line in range(max((column[b] for b in here), default=0) // COLUMNS + 1):
            stacked: dict[int, int] = {}
            for b in (b for b in here if column[b] // COLUMNS == line):
                level = stacked[column[b]] = stacked.get(column[b], -1) + 1
                x = _STAGE_LEFT + (column[b] % COLUMNS) * (WIDTH + GAP_X)
                place[b] = (x, y + level * (HEIGHT + _STAGE_GAP_Y))
            y += (max(stacked.values(), default=0) + 1) * (HEIGHT + _STAGE_GAP_Y) + 6
        bands.append((top, y))
        top = y + _BAND
    return place, bands, top


def node_box(graph: Graph, boxes: Boxes, corner: Corner, number: int, where: str) -> str:
    """One box in its stage's colour; `where` names the stage under the mouse."""
    inside = boxes.of == number
    x, y = corner
    stage = boxes.stage[number]
    title = (
        f"{boxes.names[number]} ({where}): {int(inside.sum())} operations,"
        f" {graph.parameters[inside].sum():,.0f} parameters, {format_flop(float(graph.flop[inside].sum()))}"
        " per sample"
    )
    frame = f'class="node" data-stage="{stage}" rx="4" stroke="{INK}" stroke-opacity="0.5"'
    return rectangle(x, y, WIDTH, HEIGHT, COLORS[stage % len(COLORS)], title, frame) + text(
        x + WIDTH / 2, y + 17, shortened(boxes.names[number], 17), "#000", "middle", 10
    )


def _stage_edge(boxes: Boxes, place: Sequence[Corner], source: int, target: int, size: float) -> str:
    """A line between boxes: straight if short, a bow over skipped boxes, heavy between stages."""
    (x1, y1), (x2, y2) = place[source], place[target]
    apart = boxes.stage[target] - boxes.stage[source]
    title = f"{boxes.names[source]} → {boxes.names[target]}: {format_bytes(size)} per sample"
    if apart == 0 and y1 == y2 and 0 < x2 - x1 <= WIDTH + GAP_X:
        return curve(f"M{x1 + WIDTH} {y1 + 13}L{x2} {y2 + 13}", SOFT, 1.2, title)
    if apart == 0 and y1 == y2:
        middle = (x1 + x2 + WIDTH) / 2
        return curve(f"M{x1 + WIDTH} {y1 + 6}Q{middle} {y1 - 22} {x2} {y2 + 6}", SOFT, 1.2, title)
    if apart == 0 and x1 < x2:
        path = f"M{x1 + WIDTH} {y1 + 13}C{x1 + WIDTH + 24} {y1 + 13} {x2 - 24} {y2 + 13} {x2} {y2 + 13}"
        return curve(path, SOFT, 1.2, title)
    a, b = x1 + WIDTH / 2, x2 + WIDTH / 2
    bend = 30 + 12 * min(abs(apart), 6)
    path = f"M{a} {y1 + HEIGHT}C{a} {y1 + HEIGHT + bend} {b} {y2 - bend} {b} {y2}"
    return curve(path, INK if apart else SOFT, 1.8 if apart else 1.2, title, dashed=apart > 1)


_DEVICE_LEFT, _TOP, _DEVICE_GAP_Y = 20, 12, 24
_DEVICE_LEGEND = 22


def placement_picture(placed: NodePlacement) -> str:
    """The graph by device, with the devices' colours at its top."""
    names = [placed.devices[device].name for device in placed.used]
    number_of = {device: number for number, device in enumerate(placed.used)}
    boxes = boxed(placed.graph, [number_of[device] for device in placed.device_of])
    edges = edges_between(placed.graph, boxes)
    parts = []
    for number, name in enumerate(names):
        line, column = divmod(number, COLUMNS)
        x, y = _DEVICE_LEFT + column * (WIDTH + GAP_X), _TOP + line * _DEVICE_LEGEND
        parts.append(rectangle(x, y, 11, 11, COLORS[number % len(COLORS)], name, 'class="device"'))
        parts.append(text(x + 16, y + 10, shortened(name, 16)))
    top = _TOP + (1 + (len(names) - 1) // COLUMNS) * _DEVICE_LEGEND + 8.0
    corners, height = _corners(_levels(boxes, edges), top)
    for (source, target), size in edges.items():
        (x1, y1), (x2, y2) = corners[source], corners[target]
        start, end = names[boxes.stage[source]], names[boxes.stage[target]]
        a, b, bend = x1 + WIDTH / 2, x2 + WIDTH / 2, _DEVICE_GAP_Y / 2
        path = f"M{a} {y1 + HEIGHT}C{a} {y1 + HEIGHT + bend} {b} {y2 - bend} {b} {y2}"
        title = f"{boxes.names[source]} ({start}) → {boxes.names[target]} ({end})"
        color, width = (SOFT, 1.2) if start == end else (INK, 1.8)
        parts.append(curve(path, color, width, f"{title}: {format_bytes(size)} per sample"))
    parts += [
        node_box(placed.graph, boxes, corner, number, names[boxes.stage[number]])
        for number, corner in enumerate(corners)
    ]
    total_width = 2 * _DEVICE_LEFT + COLUMNS * (WIDTH + GAP_X)
    return drawing(total_width, height, "The model's graph, by device", parts)


def _levels(boxes: Boxes, edges: dict[tuple[int, int], float]) -> list[int]:
    """The level of each box: one more than the highest level among the boxes it needs."""
    level = [0] * len(boxes.names)
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        if source < target:
            level[target] = max(level[target], level[source] + 1)
    return level


def _corners(level: Sequence[int], top: float) -> tuple[list[Corner], float]:
    """The corner of every box, with the boxes of a level centred in a row; and the total height."""
    corners: list[Corner] = [(0.0, 0.0)] * len(level)
    for here in range(max(level) + 1):
        row = [box for box, at in enumerate(level) if at == here]
        for first in range(0, len(row), COLUMNS):
            line = row[first : first + COLUMNS]
            left = _DEVICE_LEFT + (COLUMNS - len(line)) / 2 * (WIDTH + GAP_X)
            for place, box in enumerate(line):
                corners[box] = (left + place * (WIDTH + GAP_X), top)
            top += HEIGHT + _DEVICE_GAP_Y
    return corners, top


_CHART_LEFT, _CHART_WIDTH, _SLOT_HEIGHT, _CHART_GAP = 190, 900, 22, 5
_FORWARD = ("#4269d0", "#6f8fe0", "#97bbf5")
_BACKWARD = ("#efb118", "#f4c654", "#f8db94")
_ONCE = "#9498a0"
MOST_TITLED = 1500
"""Passes with a tooltip each; more are drawn in one stroke per line."""
MOST_DRAWN = 30_000


def schedule_picture(plan: Plan, forecast: PlanForecast, labels: Sequence[str], training: bool) -> str:
    """The schedule of one step; `labels` names the devices of each stage."""
    heads = [stage.ranks[0][0] for stage in plan.stages]
    times = StageTimes(forecast.stage_forward, forecast.stage_backward, forecast.transfers, heads)
    slots = timeline(times, plan.microbatches, plan.schedule, training)
    worked = max(slot.end for slot in slots)
    end = max(forecast.seconds, worked)
    scale = _CHART_WIDTH / end
    number_of: dict[tuple[int, ...], int] = {}
    lines = [number_of.setdefault(stage.ranks[0], len(number_of)) for stage in plan.stages]
    tops = [8.0 + line * (_SLOT_HEIGHT + _CHART_GAP) for line in lines]
    line_labels: dict[float, str] = {}
    for stage, top in enumerate(tops):
        first = f"{stage + 1}: {labels[stage]}"
        line_labels[top] = first if top not in line_labels else f"{line_labels[top]}, {stage + 1}"
    parts = []
    for top, label in line_labels.items():
        idle = f"{label}: idle where grey"
        parts.append(rectangle(_CHART_LEFT, top, _CHART_WIDTH, _SLOT_HEIGHT, "#f0f1f3", idle))
        parts.append(text(_CHART_LEFT - 8, top + 15, shortened(f"stage {label}", 30), anchor="end"))
    parts += _passes(slots[:MOST_DRAWN], tops, scale)
    height = (max(lines) + 1) * (_SLOT_HEIGHT + _CHART_GAP)
    if end > worked * 1.0001:
        once = "once per step: adding up gradients, updating weights, starting"
        title = f"{format_duration(end - worked)}: {once}"
        parts.append(rectangle(_CHART_LEFT + worked * scale, 8, (end - worked) * scale, height, _ONCE, title))
    parts.append(curve(f"M{_CHART_LEFT} {height + 8}h{_CHART_WIDTH}", SOFT))
    for quarter in range(5):
        x, tick = _CHART_LEFT + _CHART_WIDTH * quarter / 4, format_duration(end * quarter / 4)
        parts.append(text(x, height + 23, tick, SOFT, "middle"))
    named = {"forward": _FORWARD[0], **({"backward": _BACKWARD[0]} if training else {}), "once": _ONCE}
    more = len(slots) - MOST_DRAWN
    parts += _legend(named, 90, height + 42, f"{more:,} later passes are not drawn" if more > 0 else "")
    return drawing(_CHART_LEFT + _CHART_WIDTH + 40, height + 60, "The schedule of one step", parts)


def _passes(slots: Sequence[Slot], tops: Sequence[float], scale: float) -> list[str]:
    """A rectangle with a tooltip for each pass, or one stroke per line and colour where there are many."""
    parts: list[str] = []
    paths: dict[tuple[float, str, str], list[str]] = {}
    for slot in slots:
        color, top = (
            (_FORWARD if slot.phase == "forward" else _BACKWARD)[slot.microbatch % 3],
            tops[slot.stage],
        )
        x, width = _CHART_LEFT + slot.start * scale, (slot.end - slot.start) * scale
        if len(slots) > MOST_TITLED:
            stroke = f"M{x:.2f} {top:g}h{width:.2f}v{_SLOT_HEIGHT}h-{width:.2f}z"
            paths.setdefault((top, slot.phase, color), []).append(stroke)
            continue
        number = str(slot.microbatch + 1)
        title = (
            f"stage {slot.stage + 1}, {slot.phase} of micro-batch {number}:"
            f" {format_duration(slot.end - slot.start)}, from {format_duration(slot.start)}"
        )
        parts.append(rectangle(x, top, width, _SLOT_HEIGHT, color, title, f'class="{slot.phase}"'))
        if width > 7 * len(number) + 4:
            parts.append(text(x + width / 2, top + 15, number, "#000", "middle", 10))
    return parts + [f'<path class="{p}" fill="{c}" d="{"".join(d)}"/>' for (_, p, c), d in paths.items()]


def _legend(colors: Mapping[str, str], step: int, y: float, note: str) -> list[str]:
    parts = []
    for place, (name, color) in enumerate(colors.items()):
        parts.append(rectangle(_CHART_LEFT + place * step, y - 9, 11, 11, color))
        parts.append(text(_CHART_LEFT + place * step + 16, y, name))
    return [*parts, text(_CHART_LEFT + len(colors) * step + 30, y, note, SOFT)] if note else parts


PURPOSES = ("weights", "gradients", "optimizer", "activations", "workspace")
_FILL = dict(zip(PURPOSES, ("#4269d0", "#6cc5b0", "#a463f2", "#efb118", "#9c6b4e"), strict=True))
_FREE, _OVER = "#eceef0", "#d62728"
_BAR_HEIGHT = 20
MOST_BARS = 64


def memory_picture(forecast: PlanForecast, devices: Devices) -> str:
    """One bar per group of equal devices, on one scale; memory beyond the limit is marked red."""
    groups = alike(devices, forecast)
    shown = groups[:MOST_BARS]
    most = max(max(uses[0].memory, usable_memory(devices[uses[0].device])) for uses in shown)
    parts: list[str] = []
    for line, uses in enumerate(shown):
        name = device_names(devices, [use.device for use in uses])
        parts += _bar(name, uses[0], devices, 8 + line * (_BAR_HEIGHT + _CHART_GAP), most)
    height = 8 + len(shown) * (_BAR_HEIGHT + _CHART_GAP)
    more = len(groups) - len(shown)
    parts += _legend(
        {**_FILL, "free": _FREE},
        100,
        height + 16,
        f"{more} more groups of devices are not drawn" if more else "",
    )
    return drawing(_CHART_LEFT + _CHART_WIDTH + 40, height + 30, "Memory of each device", parts)


def _bar(name: str, use: DeviceUse, devices: Devices, top: float, most: float) -> Sequence[str]:
    scale, x = _CHART_WIDTH / most, float(_CHART_LEFT)
    limit = usable_memory(devices[use.device])
    parts = [text(_CHART_LEFT - 8, top + 14, shortened(name, 26), anchor="end")]
    for purpose in PURPOSES:
        size = getattr(use, purpose)
        title = f"{name}: {format_bytes(size)} of {purpose}"
        parts.append(
            rectangle(x, top, size * scale, _BAR_HEIGHT, _FILL[purpose], title, f'class="{purpose}"')
        )
        x += size * scale
    if use.memory < limit:
        free = limit - use.memory
        title = f"{name}: {format_bytes(free)} free of {format_bytes(limit)} that can be used"
        parts.append(rectangle(x, top, free * scale, _BAR_HEIGHT, _FREE, title, 'class="free"'))
    else:
        edge = _CHART_LEFT + limit * scale
        title = f"{name}: {format_bytes(use.memory - limit)} too much for {format_bytes(limit)}"
        parts.append(curve(f"M{edge:.1f} {top - 2:.1f}v{_BAR_HEIGHT + 4}", _OVER, 2.5, title))
    return parts


def plan_pictures(solution: Solution) -> tuple[str, str]:
    """The graph in its stages, and the schedule of one step, as two SVG documents."""
    plan, labels = solution.plan, stage_labels(solution.devices, solution.plan)
    graph = graph_picture(solution.graph, plan.stage_of(len(solution.graph)), labels)
    schedule = schedule_picture(plan, solution.forecast, labels, solution.recipe.training)
    inside = [picture[picture.index("<svg") : picture.rindex("</figure>")] for picture in (graph, schedule)]
    return inside[0], inside[1]
