"""A recommendation as a self-contained HTML page: chart, table, reasons, assumptions."""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go

from trimtab.core import (
    KWH,
    Estimate,
    format_bytes,
    format_duration,
    format_energy,
    format_money,
    format_price,
)
from trimtab.page import COLORS, Cell, bullets, chart, page, table
from trimtab.recommend.explain import PART_NAMES, both_answers, bound, evidence, reason
from trimtab.recommend.search import PARTS, Recommendation, Row

_MOST_POINTS = 1500


def html_report(result: Recommendation, decision_id: str) -> str:
    best, name = result.rows[0], result.profile.workload.name
    kept = f" Decision {escape(decision_id)}." if decision_id else ""
    time, cost = best.time, best.cost
    span = (
        f"{format_duration(time.value)} ({format_duration(time.low)} to {format_duration(time.high)})"
        f" for {format_money(cost.value)} ({format_money(cost.low)} to {format_money(cost.high)})"
    )
    summary = (
        f"<p><b>Rent {escape(best.configuration.key)}</b>: {escape(span)}. "
        f"{escape(reason(best, best).capitalize())}.</p>"
        f"<p>For {escape(result.work.source)}. {result.considered:,} configurations were considered;"
        f" the objective is {escape(result.request.objective)}.{kept}</p>"
    )
    body = (
        f"{summary}<h2>Cost against time</h2>{chart(_pareto(result), 'Cost against time', True)}"
        f"<h2>Energy against time</h2>{chart(_energy(result), 'Energy against time', False)}"
        f"<h2>Where a step goes</h2>{chart(_breakdown(result.rows), 'Where a step goes', False)}"
        f"<h2>Ranking</h2>{_table(result)}"
        f"{bullets('Rule and model on the first row', both_answers(best))}"
        f"{bullets('Left out', [f'{d.count:,} configurations: {d.reason}' for d in result.dropped])}"
        f"{bullets('Notes', result.notes)}"
        f"{bullets('Assumptions', _assumptions(result))}"
    )
    return page(f"Trimtab: {name}", f"Where to run {name}", body)


def _pareto(result: Recommendation) -> go.Figure:
    candidates, figure, shown = result.candidates, go.Figure(), result.feasible
    if len(shown) > _MOST_POINTS:  # thinned evenly over the ranking by time times cost
        ranked = shown[np.argsort(candidates.time[shown] * candidates.cost[shown], kind="stable")]
        shown = ranked[np.linspace(0, len(ranked) - 1, _MOST_POINTS).astype(np.intp)]
    names = np.array([word or "CPU" for word in candidates.offers.accelerator.vocabulary])
    device = names[candidates.offers.accelerator.codes[candidates.offer[shown]]]
    # The accelerators with the cheapest candidates get a colour of their own; the rest share grey.
    cheapest = sorted(
        {str(n) for n in device}, key=lambda n: float(candidates.cost[shown][device == n].min())
    )
    groups = [(name, device == name, color) for name, color in zip(cheapest, COLORS, strict=False)]
    groups.append(("others", np.isin(device, cheapest[len(COLORS) :]), "#999"))
    for name, members, color in groups:
        points = shown[members]
        figure.add_trace(
            go.Scattergl(
                x=candidates.time[points] / 3600,
                y=candidates.cost[points],
                mode="markers",
                name=name,
                marker={"size": 5, "opacity": 0.55, "color": color},
                text=[candidates.configuration(int(point)).key for point in points],
                hovertemplate="%{text}<br>%{x:.3g} h, $%{y:.2f}<extra></extra>",
            )
        )
    figure.add_trace(
        go.Scatter(
            x=candidates.time[result.frontier] / 3600,
            y=candidates.cost[result.frontier],
            mode="lines",
            name="no other is faster and cheaper",
            line={"shape": "hv", "color": "#444", "width": 1},
            hoverinfo="skip",
        )
    )
    rows = result.rows
    figure.add_trace(
        go.Scatter(
            x=[r.time.value / 3600 for r in rows],
            y=[r.cost.value for r in rows],
            mode="markers+text",
            name="recommended",
            text=[str(r.rank) for r in rows],
            textposition="top center",
            customdata=[r.configuration.key for r in rows],
            hovertemplate="%{text}. %{customdata}<br>%{x:.3g} h, $%{y:.2f}<extra></extra>",
            marker={"size": 11, "symbol": "star", "color": "#111"},
            error_x=_error_bars([row.time for row in rows], 3600) | {"color": "#1114"},
        )
    )
    return _against_time(figure, "cost ($)", 560)


def _error_bars(estimates: Sequence[Estimate], unit: float) -> dict[str, Any]:
    """Ranges of estimates for plotly, in that unit."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [(estimate.high - estimate.value) / unit for estimate in estimates],
        "arrayminus": [(estimate.value - estimate.low) / unit for estimate in estimates],
        "thickness": 1,
    }


def _against_time(figure: go.Figure, quantity: str, height: int) -> go.Figure:
    """The figure with logarithmic axes: time, and a quantity with its unit."""
    figure.update_xaxes(type="log", title="time (hours)")
    figure.update_yaxes(type="log", title=quantity)
    figure.update_layout(
        template="plotly_white", height=height, margin={"t": 20, "r": 10}, legend={"itemsizing": "constant"}
    )
    return figure


def _energy(result: Recommendation) -> go.Figure:
    """Energy and time of the ranked rows and of the candidates around them, with ranges."""
    figure, candidates = go.Figure(), result.candidates
    shown = result.feasible[~np.isnan(candidates.energy[result.feasible])]
    shown = shown[np.linspace(0, len(shown) - 1, min(len(shown), _MOST_POINTS)).astype(np.intp)]
    figure.add_trace(
        go.Scattergl(
            x=candidates.time[shown] / 3600,
            y=candidates.energy[shown] / KWH,
            mode="markers",
            name="candidates",
            marker={"size": 5, "opacity": 0.4, "color": "#999"},
            text=[candidates.configuration(int(point)).key for point in shown],
            hovertemplate="%{text}<br>%{x:.3g} h, %{y:.3g} kWh<extra></extra>",
        )
    )
    for place, row in enumerate(row for row in result.rows if row.energy):
        energy, time = row.energy, row.time
        assert energy is not None
        figure.add_trace(
            go.Scatter(
                x=[time.value / 3600],
                y=[energy.value / KWH],
                mode="markers+text",
                name=f"{row.rank}. {row.configuration.offer.instance}",
                text=[str(row.rank)],
                textposition="top center",
                hovertemplate="%{x:.3g} h, %{y:.3g} kWh<extra></extra>",
                marker={"size": 10, "color": COLORS[place % len(COLORS)]},
                error_y=_error_bars([energy], KWH),
            )
        )
    return _against_time(figure, "energy (kWh)", 460)


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
    heads = (
        *("#", "Configuration", "Device", "Time", "Cost", "Energy"),
        *("Price", "Memory", "Limited by", "Evidence"),
    )
    rows: list[tuple[Cell, ...]] = []
    for row in result.rows:
        c, time, cost, by = row.configuration, row.time, row.cost, evidence(row)
        cells = (
            str(row.rank),
            (c.key, reason(row, result.rows[0])),
            (
                f"{c.devices} × {c.offer.accelerator}" if c.offer.accelerator else f"{c.offer.vcpus:g} vCPUs",
                c.parallel.name,
            ),
            (format_duration(time.value), f"{format_duration(time.low)} to {format_duration(time.high)}"),
            (format_money(cost.value), f"{format_money(cost.low)} to {format_money(cost.high)}"),
            (
                format_energy(row.energy.value),
                f"{format_energy(row.energy.low)} to {format_energy(row.energy.high)}",
            )
            if row.energy
            else "unknown",
            format_price(c.price),
            (format_bytes(row.memory), f"of {format_bytes(row.memory_limit)}"),
            bound(row),
            (by.time, f"memory: {by.memory}"),
        )
        rows.append(cells)
    return table(heads, rows, numbers=(0, 3, 4, 5, 6, 7), best_first=True)


def _assumptions(result: Recommendation) -> list[str]:
    assume = result.request.assume
    dates = sorted({str(r.configuration.offer.price_date) for r in result.rows})
    lines = [
        f"prices as of {', '.join(dates)}",
        f"{format_duration(assume.startup)} from paying for a machine to the first step"
        f" ({format_duration(assume.startup_range[0])} to {format_duration(assume.startup_range[1])})",
        "intervals hold the outcome in 90 % of cases; they are wider for accelerators that were not measured",
        "energy is that of the rented machines (accelerators, CPUs, memory) from published power figures,"
        " without cooling and conversion",
        "epochs stay the same whatever the number of devices; the batch per device stays as configured",
    ]
    if result.request.spot:
        lines.append(
            f"a spot machine is lost {assume.interruptions_per_hour:g} times per hour; a restart takes"
            f" {format_duration(assume.restart)}, with a checkpoint every"
            f" {format_duration(assume.checkpoint_every)}"
        )
    return lines
