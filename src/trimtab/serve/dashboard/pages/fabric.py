"""Fabric: a host's uplinks and what they lead to, their states, and every failover."""

import contextlib
from collections.abc import Sequence
from typing import Any

from nicegui import ui

from trimtab.core import NotFoundError, format_duration
from trimtab.serve.dashboard.frame import Asked, Page
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.widgets import (
    Chart,
    Column,
    Rows,
    Table,
    Trace,
    bullets,
    chart_text,
    element,
    empty,
    figure,
    follow,
    heading,
    moment,
    reload_when,
    tiles,
)
from trimtab.serve.operations import Service

_STATE_COLORS = {"up": "#3ca951", "dead": "#e4463a", "gone": "#e4463a"}
_OTHER = "#e0a100"
_MOST_DESTINATIONS = 40  # destinations that are drawn
Point = tuple[float, float]


def topology(host: dict[str, Any]) -> Trace:
    """The host on the left, uplinks in the middle, destinations on the right, joined by the paths in use."""
    devices = [each["device"] for each in host["uplinks"]]
    ends = [*sorted(host["paths"]), *sorted(host["gone"])][:_MOST_DESTINATIONS]
    far = {f"to {end}": place for end, place in _column(ends, 2.0).items()}
    at = {"": (0.0, 0.5), **_column(devices, 1.0), **far}
    lines: dict[str, list[tuple[Point, Point]]] = {}
    for each in host["uplinks"]:
        color = _STATE_COLORS.get(each["state"], _OTHER)
        lines.setdefault(color, []).append((at[""], at[each["device"]]))
    for end in ends:
        for device in host["paths"].get(end, ()):
            if device in at:
                lines.setdefault("#8a93a0", []).append((at[device], at[f"to {end}"]))
    points = [(host["host"], at[""], "#4269d0")]
    points += [
        (f"{each['device']} ({each['state']})", at[each["device"]], _STATE_COLORS.get(each["state"], _OTHER))
        for each in host["uplinks"]
    ]
    points += [
        (end, at[f"to {end}"], _STATE_COLORS["gone"] if end in host["gone"] else "#4269d0") for end in ends
    ]
    hidden = {"visible": False, "fixedrange": True}
    height = 160 + 22 * max(len(devices), len(ends))
    traces = [*(_line(color, parts) for color, parts in lines.items()), _place_markers(points)]
    x, y = {**hidden, "range": [-0.4, 2.6]}, {**hidden, "range": [-0.1, 1.1]}
    return figure(traces, height, x, y, showlegend=False)


def _column(names: Sequence[str], x: float) -> dict[str, Point]:
    """Places one below the other."""
    return {name: (x, 1 - (place + 0.5) / len(names)) for place, name in enumerate(names)}


def _line(color: str, parts: Sequence[tuple[Point, Point]]) -> Trace:
    x = [value for begin, end in parts for value in (begin[0], end[0], None)]
    y = [value for begin, end in parts for value in (begin[1], end[1], None)]
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": {"color": color}, "hoverinfo": "skip"}


def _place_markers(points: Sequence[tuple[str, Point, str]]) -> Trace:
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


_AREAS = ("failover",)
_AGE = 5.0  # s; each look asks the routing daemons
_UPLINKS = (
    Column("id", "Uplink"),
    Column("peer", "Switch"),
    Column("state", "State", "state"),
    Column("since", "Since"),
    Column("held", "Held until"),
    Column("failures", "Failures", "number"),
    Column("echo", "Probes come back"),
)
_FAILOVERS = (
    Column("when", "When"),
    Column("uplink", "Uplink"),
    Column("peer", "Switch"),
    Column("cause", "Noticed by"),
    Column("seconds", "Took", "number"),
    Column("paths", "Uplinks left", "number"),
)
_SESSIONS = (Column("kind", "Session"), Column("peer", "Peer"), Column("state", "State", "state"))
Host = dict[str, Any]


def hosts(service: Service) -> tuple[Host, ...]:
    """All hosts whose agents have run on this machine."""
    found = []
    for name in service.fabric.names():
        with contextlib.suppress(NotFoundError):  # it was taken down meanwhile
            found.append(service.fabric.get(name))
    return tuple(found)


async def draw(visit: Visit, asked: Asked) -> None:
    """The page: a part for each host."""
    found = await visit.ask("fabric", hosts, _AREAS, age=_AGE)
    if not found:
        empty(
            "No host with two uplinks is kept by this machine. Bring one up, or build a whole fabric to try:",
            ("trimtab fabric up host.yaml", "trimtab fabric lab"),
        )
        reload_when(visit, _AREAS, lambda: visit.ask("fabric", hosts, _AREAS, age=_AGE))
        return
    shown = {host["host"]: _Shown(host) for host in found}

    async def again() -> None:
        now = {host["host"]: host for host in await visit.ask("fabric", hosts, _AREAS, age=_AGE)}
        if now.keys() != shown.keys():
            ui.navigate.reload()
            return
        for name, parts in shown.items():
            parts.show(now[name])

    follow(visit, _AREAS, again, age=_AGE)


class _Shown:
    """A host's part of the page."""

    def __init__(self, host: Host) -> None:
        heading(f"Host {host['host']}")
        self._problems = element("div")
        self._values = tiles(figures(host))
        self._chart = Chart("Uplinks and what they lead to; the tables have the same", topology(host))
        self._uplinks = Table("Uplinks", _UPLINKS, uplink_rows(host), filtered=False)
        heading(f"Failovers of {host['host']}")
        self._failovers = Table("Failovers", _FAILOVERS, failover_rows(host))
        heading(f"Sessions of {host['host']}")
        self._sessions = Table("Sessions", _SESSIONS, session_rows(host))
        self.show(host)

    def show(self, host: Host) -> None:
        """As it is now."""
        for value, (_, now) in zip(self._values, figures(host), strict=True):
            value.set_text(now)
        self._problems.clear()
        if host["problems"]:
            with self._problems:
                bullets(host["problems"])
        self._chart.show(topology(host))
        self._uplinks.show(uplink_rows(host))
        self._failovers.show(failover_rows(host))
        self._sessions.show(session_rows(host))


def figures(host: Host) -> tuple[tuple[str, str], ...]:
    """A host in a few numbers."""
    up = sum(each["state"] == "up" for each in host["uplinks"])
    worst = max((each["seconds"] for each in host["failovers"]), default=None)
    return (
        ("its agent", "runs" if host["running"] else "does not run"),
        ("uplinks up", f"{up} of {len(host['uplinks'])}"),
        ("destinations", str(len(host["paths"]))),
        ("gone", str(len(host["gone"]))),
        ("failovers on file", str(len(host["failovers"]))),
        ("the slowest", format_duration(worst) if worst is not None else "none"),
    )


def uplink_rows(host: Host) -> Rows:
    """A row for each uplink."""
    echo = {True: "yes", False: "no", None: "never yet"}
    return [
        {
            "id": each["device"],
            "peer": each["peer"],
            "state": each["state"],
            "since": moment(each["since"]),
            "held": moment(each["held_until"]),
            "failures": str(each["failures"]),
            "failures#": each["failures"],
            "echo": echo[each["echo"]],
        }
        for each in host["uplinks"]
    ]


def failover_rows(host: Host) -> Rows:
    """A row for each failover, the newest first."""
    return [
        {
            "id": f"{each['time']} {each['uplink']}",
            "when": moment(each["time"]),
            "uplink": each["uplink"],
            "peer": each["peer"],
            "cause": str(each["cause"]),
            "seconds": format_duration(each["seconds"]),
            "seconds#": each["seconds"],
            "paths": str(each["paths"]),
            "paths#": each["paths"],
        }
        for each in sorted(host["failovers"], key=lambda each: -each["time"])
    ]


def session_rows(host: Host) -> Rows:
    """A row for each session of a routing daemon."""
    kinds = (("bfd", "BFD"), ("bgp", "BGP"), ("evpn", "EVPN"))
    return [
        {"id": f"{name} {peer}", "kind": name, "peer": peer, "state": state}
        for key, name in kinds
        for peer, state in host["sessions"][key].items()
    ]


PAGE = Page("Fabric", "/fabric", "hub", "n", "fabric", draw, fleet=True)
