"""Models: versions of learned weights, how each did on what it had not seen, and drift since then."""

from collections.abc import Sequence

from nicegui import ui

from trimtab.core import TrimtabError
from trimtab.serve.dashboard.frame import Asked, Page
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.widgets import (
    Chart,
    Column,
    Rows,
    Table,
    Trace,
    axis,
    button,
    chart_text,
    element,
    empty,
    figure,
    heading,
    moment,
    notice,
    text,
)
from trimtab.serve.operations import ModelVersion
from trimtab.serve.problems import problem_of
from trimtab.store import Event, Role

_AREAS = ("model", "drift")
_AGE = 30.0
_MOST = 100
_VERSIONS = (
    Column("id", "Version"),
    Column("state", "State", "state"),
    Column("made", "Made"),
    Column("parent", "Comes from"),
    Column("outcomes", "Outcomes learned", "number"),
    Column("compared", "Against its parent"),
    Column("problem", "Problem"),
)
_ERRORS = (
    Column("data", "Data"),
    Column("who", "Who answers"),
    Column("runs", "Known runs", "number"),
    Column("error", "Mean error", "number"),
)
_DRIFT = (Column("when", "When"), Column("subject", "About"), Column("said", "What"))


async def draw(visit: Visit, asked: Asked) -> None:
    """The page."""
    versions = await visit.ask("models", lambda s: s.models.list(), _AREAS, age=_AGE)
    heading("Versions")
    table = Table("Versions", _VERSIONS, version_rows(versions), filtered=False)
    _going_back(visit, versions, table)
    current = next((each for each in versions if each.current), None)
    if current is not None and current.errors:
        heading(f"Backtests of {current.name}")
        text(
            "p",
            "Mean errors on applications left out of learning, by how many of their runs are known.",
        )
        for data, errors in current.errors.items():
            Chart(f"Errors on {data}; the table below has the numbers", errors_chart(data, errors))
        Table("Backtests", _ERRORS, error_rows(current))
    heading("Drift")
    found = await visit.ask("drift", lambda s: s.events.page(_MOST, kind="drift").items, _AREAS, age=_AGE)
    if found:
        Table("Drift", _DRIFT, drift_rows(found))
    else:
        empty(
            "No drift has been seen. It is looked for when outcomes of predictions are recorded:",
            ("trimtab outcome DECISION --time 3h40m", "trimtab models drift"),
        )


def _going_back(visit: Visit, versions: Sequence[ModelVersion], table: Table) -> None:
    """For who may: let an earlier version answer again; the table then says so."""
    earlier = others(versions)
    if not earlier or not visit.principal.may("models", "write", Role.OPERATOR, fleet=True):
        return
    with element("div", "row-of-buttons"):
        chosen = ui.select(earlier, value=earlier[-1], label="Another version").props("outlined dense")
        use = button("Let it answer")
    said = notice()

    async def change() -> None:
        try:
            now = await visit.do(lambda s: s.models.rollback(chosen.value))
            after = await visit.do(lambda s: s.models.list())
        except TrimtabError as error:
            said.set_text(problem_of(error).detail)
            return
        said.set_text(f"{now.name} answers now.")
        table.show(version_rows(after))
        left = others(after)
        chosen.set_options(left, value=left[-1] if left else None)

    use.on("click", change)


def others(versions: Sequence[ModelVersion]) -> list[str]:
    """Names of those that could answer and do not, oldest first."""
    return [each.name for each in versions if not each.current and not each.problem]


def version_rows(versions: Sequence[ModelVersion]) -> Rows:
    """A row for each version, the newest first."""
    return [
        {
            "id": each.name,
            "state": "current" if each.current else "kept",
            "made": moment(each.made) or "with Trimtab",
            "parent": each.parent,
            "outcomes": str(each.outcomes),
            "outcomes#": each.outcomes,
            "compared": "; ".join(_compared(one) for one in each.comparisons),
            "problem": each.problem,
        }
        for each in reversed(versions)
    ]


def _compared(one: dict[str, object]) -> str:
    return ", ".join(f"{name} {f'{v:.3g}' if isinstance(v, float) else v}" for name, v in one.items())


def error_rows(version: ModelVersion) -> Rows:
    """A row for each data set, answerer and number of known runs."""
    return [
        {
            "id": f"{data} {who} {runs}",
            "data": data,
            "who": who,
            "runs": runs,
            "runs#": int(runs),
            "error": f"{error:.1%}",
            "error#": error,
        }
        for data, errors in version.errors.items()
        for who, by in errors.items()
        for runs, error in by.items()
    ]


def errors_chart(data: str, errors: dict[str, dict[str, float]]) -> Trace:
    """A line for each who answers."""
    lines = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": chart_text(who),
            "x": [int(runs) for runs in by],
            "y": list(by.values()),
            "hovertemplate": "%{y:.1%} with %{x} runs<extra>" + chart_text(who) + "</extra>",
        }
        for who, by in errors.items()
    ]
    x = axis("known runs", dtick=1)
    return figure(lines, 320, x, axis(f"mean error, {data}", tickformat=".0%", rangemode="tozero"))


def drift_rows(events: Sequence[Event]) -> Rows:
    """A row for each finding."""
    return [
        {
            "id": str(event.id),
            "when": moment(event.time),
            "subject": event.subject,
            "said": str(event.detail.get("sentence", "")),
        }
        for event in events
    ]


PAGE = Page("Models", "/models", "model_training", "m", "models", draw)
