"""What the pages of tuning sessions and of rankings share: cost against time, and the table of trials."""

from collections.abc import Sequence

import plotly.graph_objects as go

from trimtab.core import HOUR, Estimate, format_duration, format_money
from trimtab.page import COLORS, table
from trimtab.predict import MODEL, RULE, TRIAL
from trimtab.tune.opinion import Opinion
from trimtab.tune.trials import Trial

_MARKERS = {RULE: ("circle-open", 8), MODEL: ("diamond", 8), TRIAL: ("star", 12)}
LENGTH_NOTE = "the job's length stays the same in samples, whatever the batch and the number of workers"
RANGE_NOTE = "ranges hold the truth in 90 % of cases"


def cost_against_time(opinions: Sequence[Opinion]) -> go.Figure:
    """Every configuration with both its ranges, by shape and colour what it rests on; the first is best."""
    figure, best = go.Figure(), opinions[0]
    for color, (evidence, (symbol, size)) in zip(COLORS, _MARKERS.items(), strict=False):
        shown = [each for each in opinions if each.evidence == evidence]
        if not shown:
            continue
        figure.add_trace(
            go.Scatter(
                x=[each.time.value / HOUR for each in shown],
                y=[each.cost.value for each in shown],
                error_x=_ranges([each.time for each in shown], HOUR, color),
                error_y=_ranges([each.cost for each in shown], 1.0, color),
                mode="markers",
                name=f"by {evidence}",
                text=[each.setup.name for each in shown],
                marker={"size": size, "symbol": symbol, "color": color},
                hovertemplate="%{text}<br>%{x:.3g} h, $%{y:.3g}<extra></extra>",
            )
        )
    figure.add_trace(
        go.Scatter(
            x=[best.time.value / HOUR],
            y=[best.cost.value],
            mode="markers",
            name="recommended",
            hoverinfo="skip",
            marker={"size": 20, "symbol": "circle-open", "color": "#111", "line": {"width": 2}},
        )
    )
    figure.update_xaxes(type="log", title="time of the whole job (hours)")
    figure.update_yaxes(type="log", title="its cost ($)")
    figure.update_layout(template="plotly_white", height=520, margin={"t": 20, "r": 10}, showlegend=True)
    return figure


def _ranges(estimates: Sequence[Estimate], unit: float, color: str) -> dict[str, object]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [(each.high - each.value) / unit for each in estimates],
        "arrayminus": [(each.value - each.low) / unit for each in estimates],
        "thickness": 0.7,
        "width": 0,
        "color": color,
    }


def trials_table(trials: Sequence[Trial]) -> str:
    """What was tried, in order."""
    if not trials:
        return "<p>None.</p>"
    rows = [
        (
            str(number),
            trial.setup,
            format_duration(trial.step_seconds) if trial.step_seconds else "–",
            format_duration(trial.seconds),
            format_money(trial.price),
            trial.reason or f"{trial.steps} steps, {trial.fidelity:.0%} of the window",
        )
        for number, trial in enumerate(trials, start=1)
    ]
    return table(("#", "Configuration", "Step", "Took", "Price", "Found"), rows, numbers=(0, 2, 3, 4))
