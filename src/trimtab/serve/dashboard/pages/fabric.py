"""Fabric: a host's uplinks, the destinations they reach, their states, and every failover."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from nicegui import ui

from trimtab.core import NotFoundError, format_duration
from trimtab.serve.dashboard import widgets
from trimtab.serve.dashboard.frame import DashboardPage, Parameters
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.widgets import Chart, Column, Table, Trace, chart_text, moment
from trimtab.serve.operations import Service

_STATE_COLORS = {"up": "#3ca951", "dead": "#e4463a", "gone": "#e4463a"}
_OTHER = "#e0a100"
_MOST_DESTINATIONS = 40  # destinations that are drawn
Point = tuple[float, float]
Host = dict[str, Any]


def topology(host: Host) -> Trace:
    """The host on the left, uplinks in the middle, destinations on the right, joined by the paths in use."""
    devices = [uplink["device"] for uplink in host["uplinks"]]
    ends = [*sorted(host["paths"]), *sorted(host["gone"])][:_MOST_DESTINATIONS]
    far = {f"to {end}": place for end, place in _column(ends, 2.0).items()}
    at = {"": (0.0, 0.5), **_column(devices, 1.0), **far}
    lines: dict[str, list[tuple[Point, Point]]] = {}
    for uplink in host["uplinks"]:
        color = _STATE_COLORS.get(uplink["state"], _OTHER)
        lines.setdefault(color, []).append((at[""], at[uplink["device"]]))
    for end in ends:
        for device in host["paths"].get(end, ()):
            if device in at:
                lines.setdefault("#8a93a0", []).append((at[device], at[f"to {end}"]))
    points = [(host["host"], at[""], "#4269d0")]
    points += [
        (f"{link['device']} ({link['state']})", at[link["device"]], _STATE_COLORS.get(link["state"], _OTHER))
        for link in host["uplinks"]
    ]
    points += [
        (end, at[f"to {end}"], _STATE_COLORS["gone"] if end in host["gone"] else "#4269d0") for end in ends
    ]
    hidden = {"visible": False, "fixedrange": True}
    height = 160 + 22 * max(len(devices), len(ends))
    markers = {
        "type": "scatter",
        "mode": "markers+text",
        "x": [place[0] for _, place, _ in points],
        "y": [place[1] for _, place, _ in points],
        "text": [chart_text(name) for name, _, _ in points],
        "textposition": "top center",
        "hoverinfo": "text",
        "marker": {"size": 12, "color": [color for _, _, color in points]},
    }
    traces = [*(_line(color, parts) for color, parts in lines.items()), markers]
    x, y = {**hidden, "range": [-0.4, 2.6]}, {**hidden, "range": [-0.1, 1.1]}
    return widgets.figure(traces, height, x, y, showlegend=False)


def _column(names: Sequence[str], x: float) -> dict[str, Point]:
    """Points one below the other."""
    return {name: (x, 1 - (place + 0.5) / len(names)) for place, name in enumerate(names)}


def _line(color: str, parts: Sequence[tuple[Point, Point]]) -> Trace:
    x = [value for begin, end in parts for value in (begin[0], end[0], None)]
    y = [value for begin, end in parts for value in (begin[1], end[1], None)]
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": {"color": color}, "hoverinfo": "skip"}


_AREAS = ("failover",)
_AGE = 5.0  # s; each look asks the routing daemons
_ECHO = {True: "yes", False: "no", None: "never yet"}
UPLINKS = (
    Column("Uplink", lambda uplink: uplink["device"]),
    Column("Switch", lambda uplink: uplink["peer"]),
    Column("State", lambda uplink: uplink["state"], kind="state"),
    Column("Since", lambda uplink: moment(uplink["since"])),
    Column("Held until", lambda uplink: moment(uplink["held_until"])),
    Column("Failures", lambda uplink: uplink["failures"], str),
    Column("Probes come back", lambda uplink: _ECHO[uplink["echo"]]),
)
FAILOVERS = (
    Column("When", lambda failover: moment(failover["time"])),
    Column("Uplink", lambda failover: failover["uplink"]),
    Column("Switch", lambda failover: failover["peer"]),
    Column("Detected by", lambda failover: str(failover["cause"])),
    Column("Took", lambda failover: failover["seconds"], format_duration),
    Column("Uplinks left", lambda failover: failover["paths"], str),
)
SESSIONS = (
    Column("Session", lambda session: session["kind"]),
    Column("Peer", lambda session: session["peer"]),
    Column("State", lambda session: session["state"], kind="state"),
)


def hosts(service: Service) -> tuple[Host, ...]:
    """All hosts whose agents have run on this machine."""
    found = []
    for name in service.fabric.names():
        with contextlib.suppress(NotFoundError):  # it was taken down meanwhile
            found.append(service.fabric.get(name))
    return tuple(found)


async def draw(visit: Visit, parameters: Parameters) -> None:
    how_to_fill = (
        "This machine keeps no host with two uplinks. Bring one up, or build a fabric to try:",
        ("trimtab fabric up host.yaml", "trimtab fabric lab"),
    )
    await widgets.live(visit, "fabric", hosts, _draw, len, how_to_fill, _AREAS, _AGE)


def _draw(hosts: tuple[Host, ...]) -> Callable[[tuple[Host, ...]], None]:
    sections = {host["host"]: _HostSection(host) for host in hosts}

    def show(hosts: tuple[Host, ...]) -> None:
        if {host["host"] for host in hosts} != sections.keys():
            ui.navigate.reload()
            return
        for host in hosts:
            sections[host["host"]].show(host)

    return show


class _HostSection:
    def __init__(self, host: Host) -> None:
        widgets.heading(f"Host {host['host']}")
        self._problems = widgets.element("div")
        self._values = widgets.tiles(figures(host))
        self._chart = Chart("Uplinks and their destinations; the tables have the same", topology(host))
        self._uplinks = Table("Uplinks", UPLINKS, host["uplinks"], filtered=False)
        widgets.heading(f"Failovers of {host['host']}")
        self._failovers = Table("Failovers", FAILOVERS, failover_rows(host))
        widgets.heading(f"Sessions of {host['host']}")
        self._sessions = Table("Sessions", SESSIONS, session_rows(host))
        self.show(host)

    def show(self, host: Host) -> None:
        for value, (_, now) in zip(self._values, figures(host), strict=True):
            value.set_text(now)
        self._problems.clear()
        if host["problems"]:
            with self._problems:
                widgets.bullets(host["problems"])
        self._chart.show(topology(host))
        self._uplinks.show(host["uplinks"])
        self._failovers.show(failover_rows(host))
        self._sessions.show(session_rows(host))


def figures(host: Host) -> tuple[tuple[str, str], ...]:
    up = sum(uplink["state"] == "up" for uplink in host["uplinks"])
    worst = max((failover["seconds"] for failover in host["failovers"]), default=None)
    return (
        ("agent", "runs" if host["running"] else "does not run"),
        ("uplinks up", f"{up} of {len(host['uplinks'])}"),
        ("destinations", str(len(host["paths"]))),
        ("unreachable", str(len(host["gone"]))),
        ("failovers on record", str(len(host["failovers"]))),
        ("slowest failover", format_duration(worst) if worst is not None else "none"),
    )


def failover_rows(host: Host) -> list[Host]:
    return sorted(host["failovers"], key=lambda failover: -failover["time"])


def session_rows(host: Host) -> list[Host]:
    """Sessions of the routing daemons."""
    return [
        {"kind": key.upper(), "peer": peer, "state": state}
        for key in ("bfd", "bgp", "evpn")
        for peer, state in host["sessions"][key].items()
    ]


PAGE = DashboardPage("Fabric", "/fabric", "hub", "n", "fabric", draw, fleet=True)
