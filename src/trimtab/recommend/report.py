"""A recommendation as one HTML page that needs nothing else: chart, table, reasons, assumptions."""

from html import escape

import numpy as np
import plotly.graph_objects as go

from trimtab.core import format_bytes, format_duration, format_money, format_price
from trimtab.page import COLORS, Cell, bullets, chart, page, table
from trimtab.recommend.explain import PART_NAMES, both_answers, bound, evidence, reason
from trimtab.recommend.search import PARTS, Recommendation, Row

_MOST_POINTS = 1500


def html_report(result: Recommendation, decision_id: str) -> str:
    """The whole page."""
    best = result.rows[0]
    name = result.profile.workload.name
    kept = f" Decision {escape(decision_id)}." if decision_id else ""
    summary = (
        f"<p><b>Rent {escape(best.configuration.key)}</b>: {escape(_span(best))}. "
        f"{escape(reason(best, best).capitalize())}.</p>"
        f"<p>For {escape(result.work.source)}. {result.considered:,} configurations were considered;"
        f" the objective is {escape(result.request.objective)}.{kept}</p>"
    )
    body = (
        f"{summary}<h2>Cost against time</h2>{chart(_pareto(result), 'Cost against time', True)}"
        f"<h2>Where a step goes</h2>{chart(_breakdown(result.rows), 'Where a step goes', False)}"
        f"<h2>Ranking</h2>{_table(result)}"
        f"{bullets('Rule and model on the first row', both_answers(best))}"
        f"{bullets('Left out', [f'{d.count:,} configurations: {d.reason}' for d in result.dropped])}"
        f"{bullets('Notes', result.notes)}"
        f"{bullets('Assumptions', _assumptions(result))}"
    )
    return page(f"Trimtab: {name}", f"Where to run {name}", body)


def _pareto(result: Recommendation) -> go.Figure:
    found, figure = result.candidates, go.Figure()
    shown = _sample(result)
    names = np.array([word or "CPU" for word in found.offers.accelerator.vocabulary])
    device = names[found.offers.accelerator.codes[found.offer[shown]]]
    # The accelerators with the cheapest candidates get a colour of their own; the rest share grey.
    cheapest = sorted({str(n) for n in device}, key=lambda n: float(found.cost[shown][device == n].min()))
    groups = [(name, device == name, color) for name, color in zip(cheapest, COLORS, strict=False)]
    groups.append(("others", np.isin(device, cheapest[len(COLORS) :]), "#999"))
    for name, members, color in groups:
        rows = shown[members]
        figure.add_trace(
            go.Scattergl(
                x=found.time[rows] / 3600,
                y=found.cost[rows],
                mode="markers",
                name=name,
                marker={"size": 5, "opacity": 0.55, "color": color},
                text=[found.configuration(int(r)).key for r in rows],
                hovertemplate="%{text}<br>%{x:.3g} h, $%{y:.2f}<extra></extra>",
            )
        )
    figure.add_trace(
        go.Scatter(
            x=found.time[result.frontier] / 3600,
            y=found.cost[result.frontier],
            mode="lines",
            name="nothing is faster and cheaper",
            line={"shape": "hv", "color": "#444", "width": 1},
            hoverinfo="skip",
        )
    )
    figure.add_trace(_recommended(result.rows))
    figure.update_xaxes(type="log", title="time (hours)")
    figure.update_yaxes(type="log", title="cost ($)")
    figure.update_layout(
        template="plotly_white", height=560, margin={"t": 20, "r": 10}, legend={"itemsizing": "constant"}
    )
    return figure


def _recommended(rows: tuple[Row, ...]) -> go.Scatter:
    return go.Scatter(
        x=[r.time.value / 3600 for r in rows],
        y=[r.cost.value for r in rows],
        mode="markers+text",
        name="recommended",
        text=[str(r.rank) for r in rows],
        textposition="top center",
        customdata=[r.configuration.key for r in rows],
        hovertemplate="%{text}. %{customdata}<br>%{x:.3g} h, $%{y:.2f}<extra></extra>",
        marker={"size": 11, "symbol": "star", "color": "#111"},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [(r.time.high - r.time.value) / 3600 for r in rows],
            "arrayminus": [(r.time.value - r.time.low) / 3600 for r in rows],
            "color": "#1114",
            "thickness": 1,
        },
    )


def _sample(result: Recommendation) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Feasible rows for the chart, thinned evenly over the ranking by time times cost."""
    found, rows = result.candidates, result.feasible
    if len(rows) <= _MOST_POINTS:
        return rows
    ranked = rows[np.argsort(found.time[rows] * found.cost[rows], kind="stable")]
    return ranked[np.linspace(0, len(ranked) - 1, _MOST_POINTS).astype(np.intp)]


def _breakdown(rows: tuple[Row, ...]) -> go.Figure:
    figure = go.Figure()
    labels = [f"{r.rank}. {r.configuration.offer.instance} ×{r.configuration.nodes}" for r in rows][::-1]
    for name, color in zip(PARTS, COLORS, strict=False):
        figure.add_trace(
            go.Bar(
                y=labels,
                x=[r.parts[name] * 1e3 for r in rows][::-1],
                name=PART_NAMES[name],
                orientation="h",
                marker={"color": color},
                hovertemplate="%{x:.3g} ms<extra>" + PART_NAMES[name] + "</extra>",
            )
        )
    figure.update_layout(
        template="plotly_white", barmode="stack", height=140 + 32 * len(rows), margin={"t": 20, "r": 10}
    )
    figure.update_xaxes(title="milliseconds of one step")
    return figure


def _table(result: Recommendation) -> str:
    heads = ("#", "Configuration", "Device", "Time", "Cost", "Price", "Memory", "Limited by", "Evidence")
    rows = [_cells(row, result.rows[0]) for row in result.rows]
    return table(heads, rows, numbers=(0, 3, 4, 5, 6), best_first=True)


def _cells(row: Row, best: Row) -> tuple[Cell, ...]:
    c, time, cost, by = row.configuration, row.time, row.cost, evidence(row)
    return (
        str(row.rank),
        (c.key, reason(row, best)),
        f"{c.devices} × {c.offer.accelerator}" if c.offer.accelerator else f"{c.offer.vcpus:g} vCPUs",
        (format_duration(time.value), f"{format_duration(time.low)} to {format_duration(time.high)}"),
        (format_money(cost.value), f"{format_money(cost.low)} to {format_money(cost.high)}"),
        format_price(c.price),
        (format_bytes(row.memory), f"of {format_bytes(row.memory_limit)}"),
        bound(row),
        (by.time, f"memory: {by.memory}"),
    )


def _span(row: Row) -> str:
    return (
        f"{format_duration(row.time.value)} ({format_duration(row.time.low)} to"
        f" {format_duration(row.time.high)}) for {format_money(row.cost.value)}"
        f" ({format_money(row.cost.low)} to {format_money(row.cost.high)})"
    )


def _assumptions(result: Recommendation) -> list[str]:
    assume = result.request.assume
    dates = sorted({str(r.configuration.offer.price_date) for r in result.rows})
    lines = [
        f"prices as of {', '.join(dates)}",
        f"{format_duration(assume.startup)} from paying for a machine to the first step",
        "ranges hold the truth in 90 % of cases; for accelerators that were not measured they are wider",
        "epochs stay the same whatever the number of devices; the batch per device stays as configured",
    ]
    if result.request.spot:
        lines.append(
            f"a spot machine is lost {assume.interruptions_per_hour:g} times per hour; going on takes"
            f" {format_duration(assume.restart)}, with a checkpoint every"
            f" {format_duration(assume.checkpoint_every)}"
        )
    return lines
