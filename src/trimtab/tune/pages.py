"""Reports of tuning sessions and of rankings: HTML pages that need no other file."""

from collections.abc import Callable, Mapping, Sequence
from html import escape

import plotly.graph_objects as go

from trimtab.core import HOUR, Estimate, format_bytes, format_duration, format_money, format_price
from trimtab.page import COLORS, Cell, bullets, chart, page, table
from trimtab.predict import MODEL, RULE, TRIAL, DataSet, Importance, forest_importance, model_importance
from trimtab.tune.opinion import Opinion, span
from trimtab.tune.ranking import Ranking, compared, evidence_detail, explain_opinion, fits_words
from trimtab.tune.session import Tuned
from trimtab.tune.trials import Trial

_MARKERS = {RULE: ("circle-open", 8), MODEL: ("diamond", 8), TRIAL: ("star", 12)}
_LENGTH_NOTE = "the job's length stays the same in samples, whatever the batch and the number of workers"
_RANGE_NOTE = "ranges hold the truth in 90 % of cases"
_TUNED_ROWS, _RANKED_ROWS, _FEATURES = 20, 30, 12
_MODEL_PART, _GROUPS_PART, _FEATURES_PART = "What moves the model", "By group of features", "By feature"


def tuning_report(tuned: Tuned) -> str:
    """The page of a session: its trials, and estimates for all other configurations."""
    name, best = tuned.task.name, tuned.best
    kept = f" Decision {escape(tuned.decision)}." if tuned.decision else ""
    rows = [
        (str(rank), opinion.setup.name, span(opinion.time), span(opinion.cost), opinion.evidence)
        for rank, opinion in enumerate(tuned.opinions[:_TUNED_ROWS], start=1)
    ]
    considered = (
        f"{len(tuned.task.setups)} configurations were considered; the objective is {tuned.objective}"
    )
    body = (
        f"<p><b>Rent {escape(best.setup.name)}</b>: {escape(span(best.time))},"
        f" {escape(span(best.cost))}. It rests on {escape(tuned.rests_on)}.</p>"
        f"<p>{escape(tuned.stopped[:1].upper() + tuned.stopped[1:])}. Trials cost"
        f" {escape(format_money(tuned.spent))}.{kept}</p>"
        f"<h2>Cost against time</h2>{chart(_cost_against_time(tuned.opinions), 'Cost against time', True)}"
        f"<h2>Trials</h2>{_trials_table(tuned.trials)}<h2>Ranking</h2>"
        f"{table(('#', 'Configuration', 'Time', 'Cost', 'By'), rows, numbers=(0,), best_first=True)}"
        f"{bullets('To know', [considered, _RANGE_NOTE, *([_LENGTH_NOTE] if tuned.is_job else [])])}"
    )
    return page(f"Trimtab: {name}", f"Where to {'train' if tuned.is_job else 'run'} {name}", body)


def ranking_report(ranking: Ranking, tell: Callable[[str], None] = lambda news: None) -> str:
    """The page of a ranking: estimates, their evidence, and important features."""
    best, now = ranking.best, ranking.opinions
    kept = f" Decision {escape(ranking.decision.id)}." if ranking.decision.id else ""
    heads = ("#", "Configuration", "Time", "Cost", "Price", "Memory of a worker", "Evidence")
    shown = ranking.rows[: max(_RANKED_ROWS, ranking.goal.top)]
    rows = [_cells(ranking, number, row) for number, row in enumerate(shown, start=1)]
    notes = [
        f"prices as of {ranking.price_date}",
        _RANGE_NOTE,
        _LENGTH_NOTE,
        "a trial was measured; a model learned from other jobs how far the rule is off; the rule divides the"
        " CPU time that a step took in the local run by the CPUs of a machine",
    ]
    body = (
        f"<p><b>Rent {escape(best.setup.name)}</b>: {escape(span(best.time))}, {escape(span(best.cost))}."
        f" It rests on {escape(now.rests_on(best))}.</p>"
        f"<p>{len(ranking.space.setups)} configurations were considered; the objective is"
        f" {escape(ranking.goal.objective)}.{kept}</p>"
        f"<h2>Cost against time</h2>{chart(_cost_against_time(ranking.rows), 'Cost against time', True)}"
        f"<h2>Ranking</h2>{table(heads, rows, numbers=(0, 2, 3, 4, 5), best_first=True)}"
        f"{bullets('Why the first row', [line.strip() for line in explain_opinion(ranking, 1)[1:]])}"
        f"{bullets('Who answers', [ranking.forecast.note])}"
        f"{bullets('Left out', [f'{dropped.count:,}: {dropped.reason}' for dropped in ranking.dropped])}"
        f"<h2>Trials</h2>{_trials_table(now.trials)}"
    )
    tell("weighing the features of what was learned from other jobs")
    body += _importance(ranking.others, ranking.job, ranking.goal.objective) + bullets("To know", notes)
    return page(f"Trimtab: {ranking.job}", f"Where to train {ranking.job}", body)


def _cells(ranking: Ranking, number: int, row: Opinion) -> tuple[Cell, ...]:
    time, cost, (need, limit) = row.time, row.cost, ranking.memory(row)
    detail = evidence_detail(ranking, row)
    if row.why not in ranking.forecast.note:  # the same reason for all rows is given once
        detail = f"{detail}: {row.why}"
    return (
        str(number),
        (row.setup.name, compared(ranking, row)),
        (format_duration(time.value), f"{format_duration(time.low)} to {format_duration(time.high)}"),
        (format_money(cost.value), f"{format_money(cost.low)} to {format_money(cost.high)}"),
        format_price(row.setup.price_per_second),
        (f"{format_bytes(need)} of {format_bytes(limit)}", fits_words(row)),
        (row.evidence, detail),
    )


def _cost_against_time(opinions: Sequence[Opinion]) -> go.Figure:
    """Every configuration with both its ranges, marked by its evidence; the first is the best."""
    figure, best = go.Figure(), opinions[0]
    for color, (evidence, (symbol, size)) in zip(COLORS, _MARKERS.items(), strict=False):
        shown = [opinion for opinion in opinions if opinion.evidence == evidence]
        if not shown:
            continue
        figure.add_trace(
            go.Scatter(
                x=[opinion.time.value / HOUR for opinion in shown],
                y=[opinion.cost.value for opinion in shown],
                error_x=_ranges([opinion.time for opinion in shown], HOUR, color),
                error_y=_ranges([opinion.cost for opinion in shown], 1.0, color),
                mode="markers",
                name=f"by {evidence}",
                text=[opinion.setup.name for opinion in shown],
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
        "array": [(estimate.high - estimate.value) / unit for estimate in estimates],
        "arrayminus": [(estimate.value - estimate.low) / unit for estimate in estimates],
        "thickness": 0.7,
        "width": 0,
        "color": color,
    }


def _trials_table(trials: Sequence[Trial]) -> str:
    if not trials:
        return "<p>None.</p>"
    rows = [
        (
            str(number),
            trial.setup,
            format_duration(trial.step_seconds) if trial.step_seconds else "–",
            format_duration(trial.seconds),
            format_money(trial.price),
            trial.reason or trial.extent,
        )
        for number, trial in enumerate(trials, start=1)
    ]
    return table(("#", "Configuration", "Step", "Took", "Price", "Found"), rows, numbers=(0, 2, 3, 4))


def _importance(others: DataSet, job: str, objective: str) -> str:
    """Which features estimates rest on (thesis, figure 4.8), by other jobs; "" where there are none."""
    points = others.points.without(job)
    if not points.ok.any():
        return ""
    targets = (objective,) if objective in ("cost", "time") else ("cost", "time")
    forests = {target: forest_importance(points, others.local, target) for target in targets}
    model = model_importance(points, others.local) if len(points.jobs) > 1 else None
    return f"<h2>Which features count</h2>{_model_part(model) if model else ''}{_forest_part(forests)}"


def _model_part(importance: Importance) -> str:
    series = {"the model": importance.features}
    figure = _bars(series, list(importance.features), "percentage points of error")
    rows = [(name, f"{value:+.2f}") for name, value in importance.features.items()]
    return (
        f"<h3>{_MODEL_PART}</h3><p>By how many percentage points the model's error for a step's time grows,"
        " on held-out jobs, when a feature is shuffled among their configurations. Below zero, the model does"
        f" not need it.</p>{chart(figure, _MODEL_PART, False)}"
        f"{table(('Feature', 'Points'), rows, numbers=(1,))}"
    )


def _forest_part(forests: Mapping[str, Importance]) -> str:
    first = next(iter(forests.values()))
    most = {name: max(forest.features[name] for forest in forests.values()) for name in first.features}
    names = sorted(most, key=lambda name: -most[name])[:_FEATURES]
    by_group = _bars(
        {f"for {t}": forest.groups for t, forest in forests.items()}, list(first.groups), "share"
    )
    by_name = _bars({f"for {t}": forest.features for t, forest in forests.items()}, names, "share")
    heads = ("Feature", *(f"Share for {target}" for target in forests))
    rows = [(g, *(f"{forest.groups[g]:.1%}" for forest in forests.values())) for g in first.groups]
    rows += [(n, *(f"{forest.features[n]:.1%}" for forest in forests.values())) for n in names]
    return (
        "<p>How much each feature lowers the error inside the trees of a random forest that was taught the"
        " same points. Local features are series of the local run: CPU, memory, bytes received and sent.</p>"
        f"<h3>{_GROUPS_PART}</h3>{chart(by_group, _GROUPS_PART, False)}"
        f"<h3>{_FEATURES_PART}</h3>{chart(by_name, _FEATURES_PART, False)}"
        f"{table(heads, rows, numbers=range(1, len(heads)))}"
    )


def _bars(series: Mapping[str, Mapping[str, float]], names: list[str], title: str) -> go.Figure:
    figure = go.Figure()
    for color, (called, values) in zip(COLORS, series.items(), strict=False):
        figure.add_trace(
            go.Bar(
                y=names[::-1],
                x=[values[name] for name in names][::-1],
                name=called,
                orientation="h",
                marker={"color": color},
                hovertemplate="%{y}: %{x:.3g}<extra></extra>",
            )
        )
    figure.update_xaxes(title=title)
    figure.update_yaxes(automargin=True)
    figure.update_layout(
        template="plotly_white", height=120 + 28 * len(names), margin={"t": 20, "r": 10}, showlegend=True
    )
    return figure
