"""Models: versions of learned weights, their errors on held-out data, and drift since then."""

from collections.abc import Sequence
from typing import Any

from nicegui import ui

from trimtab.serve.dashboard import widgets
from trimtab.serve.dashboard.frame import DashboardPage, Parameters
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.widgets import Chart, Column, Table, Trace, axis, chart_text, moment
from trimtab.serve.operations import ModelVersion
from trimtab.store import Role

_AREAS = ("model", "drift")
_AGE = 30.0
_MOST_EVENTS = 100
_VERSIONS = (
    Column("Version", lambda version: version.name),
    Column("State", lambda version: "current" if version.current else "kept", kind="state"),
    Column("Made", lambda version: moment(version.made) or "with Trimtab"),
    Column("Comes from", lambda version: version.parent),
    Column("Outcomes learned", lambda version: version.outcomes, str),
    Column("Against its parent", lambda version: "; ".join(map(_comparison, version.comparisons))),
    Column("Problem", lambda version: version.problem),
)
_ERRORS = (
    Column("Data", lambda row: row["data"]),
    Column("Who answers", lambda row: row["who"]),
    Column("Known runs", lambda row: int(row["runs"]), str),
    Column("Mean error", lambda row: row["error"], "{:.1%}".format),
)
_DRIFT = (
    Column("When", lambda event: moment(event.time)),
    Column("About", lambda event: event.subject),
    Column("What", lambda event: str(event.detail.get("sentence", ""))),
)


def _comparison(comparison: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {f'{value:.3g}' if isinstance(value, float) else value}"
        for name, value in comparison.items()
    )


async def draw(visit: Visit, parameters: Parameters) -> None:
    versions = await visit.ask("models", lambda service: service.models.list(), _AREAS, age=_AGE)
    widgets.heading("Versions")
    table = Table("Versions", _VERSIONS, versions[::-1], filtered=False)
    if visit.principal.may("models", "write", Role.OPERATOR, fleet=True):
        _rollback_form(visit, versions, table)
    current = next((version for version in versions if version.current), None)
    if current is not None and current.errors:
        widgets.heading(f"Backtests of {current.name}")
        widgets.text(
            "p", "Mean errors on applications left out of learning, by the number of their known runs."
        )
        for data, errors in current.errors.items():
            Chart(f"Errors on {data}; the table below has the numbers", errors_chart(data, errors))
        rows = [
            {"data": data, "who": who, "runs": runs, "error": error}
            for data, errors in current.errors.items()
            for who, by_runs in errors.items()
            for runs, error in by_runs.items()
        ]
        Table("Backtests", _ERRORS, rows)
    widgets.heading("Drift")
    drift = await visit.ask(
        "drift", lambda service: service.events.page(_MOST_EVENTS, kind="drift").items, _AREAS, age=_AGE
    )
    if drift:
        Table("Drift", _DRIFT, drift)
    else:
        widgets.empty(
            "No drift was found. It is looked for when outcomes of predictions are recorded:",
            ("trimtab models drift",),
        )


def _rollback_form(visit: Visit, versions: Sequence[ModelVersion], table: Table) -> None:
    earlier = others(versions)
    if not earlier:
        return
    with widgets.element("div", "row-of-buttons"):
        chosen = ui.select(earlier, value=earlier[-1], label="Another version").props("outlined dense")
        use = widgets.button("Let it answer")
    status = widgets.notice()

    async def change() -> None:
        with widgets.errors_shown(status):
            now = await visit.do(lambda service: service.models.rollback(chosen.value))
            after = await visit.do(lambda service: service.models.list())
            status.set_text(f"{now.name} answers now.")
            table.show(after[::-1])
            remaining = others(after)
            chosen.set_options(remaining, value=remaining[-1] if remaining else None)

    use.on("click", change)


def others(versions: Sequence[ModelVersion]) -> list[str]:
    """Names of usable versions that are not current, oldest first."""
    return [version.name for version in versions if not version.current and not version.problem]


def errors_chart(data: str, errors: dict[str, dict[str, float]]) -> Trace:
    lines = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": chart_text(who),
            "x": [int(runs) for runs in by_runs],
            "y": list(by_runs.values()),
            "hovertemplate": "%{y:.1%} with %{x} runs<extra>" + chart_text(who) + "</extra>",
        }
        for who, by_runs in errors.items()
    ]
    x = axis("known runs", dtick=1)
    return widgets.figure(lines, 320, x, axis(f"mean error, {data}", tickformat=".0%", rangemode="tozero"))


PAGE = DashboardPage("Models", "/models", "model_training", "m", "models", draw)
