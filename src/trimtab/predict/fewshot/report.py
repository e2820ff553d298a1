"""A prediction as one HTML page: time and cost under every configuration, and the parts of each time."""

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from trimtab.core import Estimate, format_duration, format_money
from trimtab.page import COLORS, bullets, chart, page
from trimtab.predict.fewshot.prediction import (
    PredictedConfiguration,
    Prediction,
    cost_scale,
    cost_words,
    likeness,
    price_note,
    signed,
)

_MODEL, _RULE, _KNOWN, _LESS, _MORE = COLORS[0], COLORS[2], "#111", COLORS[4], COLORS[1]
_UNITS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0), ("milliseconds", 1e-3), ("µs", 1e-6))
# The list needs the chart, so the script shows it.
_CHOOSING = """
<p id="choosing" hidden><label>Configuration <select id="where">{options}</select></label></p>{chart}
<script>
const where = document.getElementById("where");
where.addEventListener("change", () => {{
  const parts = document.querySelector("[aria-label='{name}'] .js-plotly-plot");
  Plotly.restyle(parts, {{visible: parts.data.map((_, number) => number === where.selectedIndex)}});
}});
document.getElementById("choosing").hidden = false;
</script>
"""
_PARTS = "Parts of the answer"


def prediction_report(answer: Prediction, decision_id: str = "") -> str:
    """The complete page; `decision_id` is empty if no decision was recorded."""
    unit, scale = _unit([line.time.value for line in answer.lines])
    shown = [line for line in answer.ordered if not line.known]
    body = (
        f"{_summary(answer, decision_id)}"
        f"<h2>Time</h2>{chart(_times(answer, unit, scale), 'Time', True)}"
        f"{_costs(answer)}"
        f"<h2>{_PARTS}</h2>{_choosing(answer, shown, unit, scale)}"
        f'<h2>Every configuration</h2><div class="scroll">{_table(answer)}</div>'
        f"{bullets('Assumptions', _assumptions(answer))}"
    )
    name = answer.application
    return page(f"Trimtab: {name}", f"What {name} takes elsewhere", body)


def _summary(answer: Prediction, decision_id: str) -> str:
    best, runs = answer.best, len(answer.request.known)
    cost = f", {cost_words(best.cost.value, answer)}" if best.cost else ""
    range_ = "measured" if best.known else _range(best.time)
    decision = f" Decision {escape(decision_id)}." if decision_id else ""
    return (
        f"<p><b>{escape(best.configuration)} is the {answer.best_is}</b> of {len(answer.lines)}: "
        f"{format_duration(best.time.value)} ({range_}){cost}.</p>"
        f"<p>From {runs} run{'s' if runs > 1 else ''} in {escape(answer.environment)}. "
        f"The {answer.chosen_by} answers: {escape(answer.reason)}. "
        f"The rule is {escape(answer.rule_name)}. {escape(likeness(answer))}{decision}</p>"
    )


def _times(answer: Prediction, unit: str, scale: float) -> go.Figure:
    lines, coverage = answer.ordered, f"{answer.request.fitted.coverage:.0%} range"
    figure = _against(answer, lines, [line.time for line in lines], scale, f"chosen answer, {coverage}")
    predicted = [line for line in lines if not line.known]
    mode = "lines+markers" if answer.request.of_function else "markers"
    for name, color, seconds in (
        ("model", _MODEL, [line.model_seconds for line in predicted]),
        (f"rule: {answer.rule_name}", _RULE, [line.rule_seconds for line in predicted]),
    ):
        figure.add_trace(
            go.Scatter(
                x=_x(answer, predicted),
                y=[value / scale for value in seconds],
                name=name,
                mode=mode,
                line={"color": color, "dash": "dot"},
                marker={"color": color, "symbol": "circle-open", "size": 9},
                text=[format_duration(value) for value in seconds],
                hovertemplate="%{x}: %{text}<extra>" + escape(name) + "</extra>",
            )
        )
    return _finished(answer, figure, f"time of a run ({unit})")


def _costs(answer: Prediction) -> str:
    lines = [line for line in answer.ordered if line.cost]
    if not lines:
        return "<h2>Cost</h2><p>Nothing is charged here, or the price is not known.</p>"
    runs, name = cost_scale(answer)
    figure = _against(answer, lines, [line.cost for line in lines if line.cost], 1 / runs, "cost, with range")
    return f"<h2>Cost</h2>{chart(_finished(answer, figure, f'cost of {name} ($)'), 'Cost', False)}"


def _against(
    answer: Prediction,
    lines: Sequence[PredictedConfiguration],
    values: Sequence[Estimate],
    scale: float,
    name: str,
) -> go.Figure:
    """Estimates with their intervals over the configurations; measured ones are marked."""
    figure = go.Figure()
    for known, label, symbol, color in (
        (False, name, "circle", _MODEL),
        (True, "measured", "diamond", _KNOWN),
    ):
        some = [(line, value) for line, value in zip(lines, values, strict=True) if line.known == known]
        figure.add_trace(
            go.Scatter(
                x=_x(answer, [line for line, _ in some]),
                y=[value.value / scale for _, value in some],
                name=label,
                mode="markers",
                marker={"symbol": symbol, "color": color, "size": 11 if known else 8},
                error_y=None
                if known
                else {
                    "type": "data",
                    "symmetric": False,
                    "array": [(value.high - value.value) / scale for _, value in some],
                    "arrayminus": [(value.value - value.low) / scale for _, value in some],
                    "color": _MODEL,
                    "thickness": 1.5,
                },
                text=[_words(value, scale) for _, value in some],
                hovertemplate="%{x}: %{text}<extra></extra>",
            )
        )
    return figure


def _words(value: Estimate, scale: float) -> str:
    if value.unit == "s":
        return f"{format_duration(value.value)} ({_range(value)})"
    shown = value.scaled(1 / scale)
    return f"{format_money(shown.value)} ({format_money(shown.low)} to {format_money(shown.high)})"


def _finished(answer: Prediction, figure: go.Figure, title: str) -> go.Figure:
    """Axes: sizes and times as logarithms, configurations by name in the order of the table."""
    if answer.request.of_function:
        sizes = _x(answer, answer.ordered)
        names = [line.configuration for line in answer.ordered]
        figure.update_xaxes(type="log", title="memory", tickvals=sizes, ticktext=names)
    else:
        order = [line.configuration for line in answer.ordered]
        figure.update_xaxes(type="category", categoryorder="array", categoryarray=order, tickangle=-60)
    figure.update_yaxes(type="log", title=title, exponentformat="none")
    figure.update_layout(
        template="plotly_white", height=480, margin={"t": 20, "r": 10}, legend={"orientation": "h", "y": 1.12}
    )
    return figure


def _x(answer: Prediction, lines: Sequence[PredictedConfiguration]) -> list[float] | list[str]:
    """Megabytes of a function's sizes; names of configurations."""
    if answer.request.of_function:
        return [float(line.configuration.removesuffix("MB")) for line in lines]
    return [line.configuration for line in lines]


def _choosing(answer: Prediction, shown: Sequence[PredictedConfiguration], unit: str, scale: float) -> str:
    """A list of configurations with a waterfall chart for each; the best is shown first."""
    names = [line.configuration for line in shown]
    first = names.index(answer.best.configuration) if answer.best.configuration in names else 0
    options, figure = "", go.Figure()
    for number, line in enumerate(shown):
        options += f"<option{' selected' if number == first else ''}>{escape(line.configuration)}</option>"
        parts = answer.contributions(line.configuration)
        seconds = [*(part.value for part in parts), line.time.value]
        texts = [
            signed(value) if 0 < i < len(parts) else format_duration(value) for i, value in enumerate(seconds)
        ]
        figure.add_trace(
            go.Waterfall(
                x=[*(part.name for part in parts), f"{line.configuration} in all"],
                y=[value / scale for value in seconds],
                measure=["absolute", *["relative"] * (len(parts) - 1), "total"],
                text=texts,
                textposition="outside",
                name=line.configuration,
                visible=number == first,
                increasing={"marker": {"color": _MORE}},
                decreasing={"marker": {"color": _LESS}},
                totals={"marker": {"color": _MODEL}},
                hovertemplate="%{x}: %{text}<extra></extra>",
            )
        )
    figure.update_yaxes(title=unit, rangemode="tozero")
    figure.update_layout(template="plotly_white", height=420, margin={"t": 20, "r": 10}, showlegend=False)
    return _CHOOSING.format(options=options, chart=chart(figure, _PARTS, False), name=_PARTS)


def _table(answer: Prediction) -> str:
    runs, name = cost_scale(answer)
    heads = ("Configuration", "Time", f"Cost of {name}", "Rule", "Model", "Parts")
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    body = ""
    for line in answer.ordered:
        cost, details = "", ""
        if line.cost:
            many = line.cost.scaled(runs)
            range_ = "" if line.known else f"{format_money(many.low)} to {format_money(many.high)}"
            cost = f"{format_money(many.value)}<br><small>{range_}</small>"
        both = [] if line.known else [line.rule_seconds, line.model_seconds]
        answers = "".join(f"<td class=number>{format_duration(value)}</td>" for value in both)
        parts = answer.contributions(line.configuration)
        if parts:
            items = "".join(f"<li>{escape(part.name)}: {signed(part.value)}</li>" for part in parts)
            details = f"<details><summary>{len(parts)} parts</summary><ul>{items}</ul></details>"
        body += (
            f"<tr{' class=first' if line is answer.best else ''}>"
            f'<th scope="row">{escape(line.configuration)}</th>'
            f"<td class=number>{format_duration(line.time.value)}<br>"
            f"<small>{'measured' if line.known else _range(line.time)}</small></td>"
            f"<td class=number>{cost}</td>{answers or '<td></td>' * 2}<td>{details}</td></tr>"
        )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _assumptions(answer: Prediction) -> list[str]:
    lines = [
        f"ranges hold the true time of {answer.request.fitted.coverage:.0%} of similar applications",
        "the parts of an answer start with the nearest run and add up to the predicted time",
    ]
    return [*lines, f"costs are at {price_note(answer.environment)}"] if answer.best.cost else lines


def _range(time: Estimate) -> str:
    return f"{format_duration(time.low)} to {format_duration(time.high)}"


def _unit(seconds: Sequence[float]) -> tuple[str, float]:
    """The largest unit in which the median of these is at least one."""
    middle = sorted(seconds)[len(seconds) // 2]
    return next(((name, size) for name, size in _UNITS if middle >= size), _UNITS[-1])
