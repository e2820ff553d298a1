"""Which features answers about training jobs rest on, as a part of a page (thesis, figure 4.8's kind)."""

from collections.abc import Mapping

import plotly.graph_objects as go

from trimtab.page import COLORS, chart, table
from trimtab.predict import DataSet, Importance, forest_importance, our_importance

_FEATURES = 12
_OURS, _GROUPS, _SINGLE = "What moves the model", "By group of features", "By feature"


def importance_part(others: DataSet, job: str, objective: str) -> str:
    """By what is known of the other jobs; nothing where there is nothing to weigh."""
    points = others.points.without(job)
    if not points.ok.any():
        return ""
    targets = (objective,) if objective in ("cost", "time") else ("cost", "time")
    forests = {target: forest_importance(points, others.local, target) for target in targets}
    ours = our_importance(points, others.local) if len(points.jobs) > 1 else None
    return f"<h2>Which features count</h2>{_our_part(ours) if ours else ''}{_forest_part(forests)}"


def _our_part(ours: Importance) -> str:
    figure = _bars({"the model": ours.features}, list(ours.features), "percentage points of error")
    rows = [(name, f"{value:+.2f}") for name, value in ours.features.items()]
    return (
        f"<h3>{_OURS}</h3><p>By how many percentage points the model's error for a step's time grows, on jobs"
        " it was not told of, when a feature is shuffled among their configurations. Below zero, it would do"
        f" without.</p>{chart(figure, _OURS, False)}{table(('Feature', 'Points'), rows, numbers=(1,))}"
    )


def _forest_part(forests: Mapping[str, Importance]) -> str:
    groups = list(next(iter(forests.values())).groups)
    most = {
        name: max(each.features[name] for each in forests.values())
        for name in next(iter(forests.values())).features
    }
    names = sorted(most, key=lambda name: -most[name])[:_FEATURES]
    by_group = _bars({f"for {t}": each.groups for t, each in forests.items()}, groups, "share")
    by_name = _bars({f"for {t}": each.features for t, each in forests.items()}, names, "share")
    heads = ("Feature", *(f"Share for {target}" for target in forests))
    rows = [(g, *(f"{each.groups[g]:.1%}" for each in forests.values())) for g in groups]
    rows += [(n, *(f"{each.features[n]:.1%}" for each in forests.values())) for n in names]
    return (
        "<p>How much each feature lowers the error inside the trees of a random forest that was taught the"
        " same points. Local features are series of the local run: CPU, memory, bytes received and sent.</p>"
        f"<h3>{_GROUPS}</h3>{chart(by_group, _GROUPS, False)}"
        f"<h3>{_SINGLE}</h3>{chart(by_name, _SINGLE, False)}"
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
