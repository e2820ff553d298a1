"""A recommendation: cost against time, the rows, why the first one, and what was left out."""

from typing import Any

from trimtab.core import format_bytes, format_duration, format_money
from trimtab.page import COLORS
from trimtab.serve.dashboard.chart import Chart, Trace, axis, chart_text, figure
from trimtab.serve.dashboard.parts import bullets, heading, link, text
from trimtab.serve.dashboard.table import Column, Rows, Table

_COLUMNS = (
    Column("rank", "#", "number"),
    Column("id", "Configuration"),
    Column("device", "Device"),
    Column("time", "Time", "number"),
    Column("cost", "Cost", "number"),
    Column("memory", "Memory", "number"),
    Column("bound", "Limited by"),
    Column("by", "Evidence"),
    Column("why", "Why here"),
)
Row = dict[str, Any]


def show_ranking(table: dict[str, Any]) -> None:
    """All of it."""
    rows = table["rows"]
    first = rows[0]
    heading(f"Rent {key_of(first)}")
    takes, costs = _span(first["time"], format_duration), _span(first["cost"], format_money)
    text("p", f"{takes}, {costs}. {_sentence(first['reason'])}")
    link("This decision in the ledger", f"/decisions/{table['decision']}")
    heading("Cost against time")
    Chart("Cost against time of the ranked configurations; the table below has the numbers", pareto(rows))
    heading("Ranking")
    Table("Configurations", _COLUMNS, ranking_rows(rows))
    heading("Why")
    bullets(explanation(first))
    if table["dropped"]:
        heading("Left out")
        bullets([f"{each['count']:,} configurations: {each['reason']}" for each in table["dropped"]])
    if table["notes"]:
        heading("Notes")
        bullets(table["notes"])


def key_of(row: Row) -> str:
    """A configuration's name."""
    configuration = row["configuration"]
    offer = configuration["offer"]
    spot = " spot" if configuration["spot"] else ""
    name = f"{offer['cloud']}/{offer['region']}/{offer['instance']}"
    return f"{name} x{configuration['nodes']} b{configuration['batch_size']}{spot}"


def ranking_rows(rows: list[Row]) -> Rows:
    """For the table."""
    return [
        {
            "id": key_of(row),
            "rank": str(row["rank"]),
            "rank#": row["rank"],
            "device": _device(row),
            "time": _span(row["time"], format_duration),
            "time#": row["time"]["value"],
            "cost": _span(row["cost"], format_money),
            "cost#": row["cost"]["value"],
            "memory": f"{format_bytes(row['memory'])} of {format_bytes(row['memory_limit'])}",
            "memory#": row["memory"],
            "bound": row["bound"],
            "by": row["evidence"]["time"],
            "why": row["reason"],
        }
        for row in rows
    ]


def explanation(row: Row) -> list[str]:
    """Why the first row is the first: where a step's time goes, and who of rule and model was believed."""
    parts = sorted(row["parts"].items(), key=lambda part: -part[1])
    told = ", ".join(
        f"{name.replace('_', ' ')} {format_duration(seconds)}" for name, seconds in parts if seconds > 0
    )
    sides = [
        f"{who}: {', '.join(f'{name} {_span(side[name], show)}' for name, show in _SHOWN if side[name])}"
        for who, side in (("the rule", row["rule"]), ("the model", row["model"]))
        if any(side[name] for name, _ in _SHOWN)
    ]
    return [
        f"one step takes {format_duration(row['step_seconds'])}: {told}",
        *sides,
        f"time: {row['time_choice']}",
        f"memory: {row['memory_choice']}",
    ]


_SHOWN = (("time", format_duration), ("cost", format_money), ("memory", format_bytes))


def pareto(rows: list[Row]) -> Trace:
    """The ranked configurations; those that nothing beats in both are joined."""
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        kinds.setdefault(row["configuration"]["offer"]["accelerator"] or "CPU", []).append(row)
    traces = [
        _points(kind, members, COLORS[place % len(COLORS)])
        for place, (kind, members) in enumerate(sorted(kinds.items()))
    ]
    efficient = sorted((row["time"]["value"], row["cost"]["value"]) for row in rows if row["efficient"])
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": "nothing is faster and cheaper",
        "x": [time / 3600 for time, _ in efficient],
        "y": [cost for _, cost in efficient],
        "line": {"shape": "hv", "width": 1, "color": "#8a93a0"},
        "hoverinfo": "skip",
    }
    return figure([*traces, line], 420, axis("time (hours)", type="log"), axis("cost ($)", type="log"))


def _points(kind: str, rows: list[Row], color: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": chart_text(kind),
        "x": [row["time"]["value"] / 3600 for row in rows],
        "y": [row["cost"]["value"] for row in rows],
        "text": [chart_text(f"{row['rank']}. {key_of(row)}") for row in rows],
        "customdata": [
            [chart_text(_span(row["time"], format_duration)), _span(row["cost"], format_money)]
            for row in rows
        ],
        "hovertemplate": "%{text}<br>%{customdata[0]}<br>%{customdata[1]}<extra></extra>",
        "marker": {"size": [14 if row["rank"] == 1 else 8 for row in rows], "color": color},
    }


def _span(guess: dict[str, float], show: Any) -> str:
    return f"{show(guess['value'])} ({show(guess['low'])} to {show(guess['high'])})"


def _device(row: Row) -> str:
    configuration = row["configuration"]
    offer = configuration["offer"]
    if not offer["accelerator"]:
        return f"{offer['vcpus']:g} vCPUs"
    return f"{configuration['nodes'] * max(1, offer['accelerators'])} × {offer['accelerator']}"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."
