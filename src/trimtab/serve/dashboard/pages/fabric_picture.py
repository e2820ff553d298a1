"""A host, its uplinks and what they lead to, as a picture."""

from collections.abc import Sequence
from typing import Any

from trimtab.serve.dashboard.chart import Trace, chart_text, figure

_COLORS = {"up": "#3ca951", "dead": "#e4463a", "gone": "#e4463a"}
_OTHER = "#e0a100"
_MOST = 40  # destinations that are drawn
Point = tuple[float, float]


def topology(host: dict[str, Any]) -> Trace:
    """The host on the left, uplinks in the middle, destinations on the right, joined by the paths in use."""
    devices = [each["device"] for each in host["uplinks"]]
    ends = [*sorted(host["paths"]), *sorted(host["gone"])][:_MOST]
    far = {f"to {end}": place for end, place in _column(ends, 2.0).items()}
    at = {"": (0.0, 0.5), **_column(devices, 1.0), **far}
    lines: dict[str, list[tuple[Point, Point]]] = {}
    for each in host["uplinks"]:
        color = _COLORS.get(each["state"], _OTHER)
        lines.setdefault(color, []).append((at[""], at[each["device"]]))
    for end in ends:
        for device in host["paths"].get(end, ()):
            if device in at:
                lines.setdefault("#8a93a0", []).append((at[device], at[f"to {end}"]))
    points = [(host["host"], at[""], "#4269d0")]
    points += [
        (f"{each['device']} ({each['state']})", at[each["device"]], _COLORS.get(each["state"], _OTHER))
        for each in host["uplinks"]
    ]
    points += [(end, at[f"to {end}"], _COLORS["gone"] if end in host["gone"] else "#4269d0") for end in ends]
    hidden = {"visible": False, "fixedrange": True}
    height = 160 + 22 * max(len(devices), len(ends))
    traces = [*(_line(color, parts) for color, parts in lines.items()), _points(points)]
    x, y = {**hidden, "range": [-0.4, 2.6]}, {**hidden, "range": [-0.1, 1.1]}
    return figure(traces, height, x, y, showlegend=False)


def _column(names: Sequence[str], x: float) -> dict[str, Point]:
    """Places one below the other."""
    return {name: (x, 1 - (place + 0.5) / len(names)) for place, name in enumerate(names)}


def _line(color: str, parts: Sequence[tuple[Point, Point]]) -> Trace:
    x = [value for begin, end in parts for value in (begin[0], end[0], None)]
    y = [value for begin, end in parts for value in (begin[1], end[1], None)]
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": {"color": color}, "hoverinfo": "skip"}


def _points(points: Sequence[tuple[str, Point, str]]) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [place[0] for _, place, _ in points],
        "y": [place[1] for _, place, _ in points],
        "text": [chart_text(name) for name, _, _ in points],
        "textposition": "top center",
        "hoverinfo": "text",
        "marker": {"size": 12, "color": [color for _, _, color in points]},
    }
