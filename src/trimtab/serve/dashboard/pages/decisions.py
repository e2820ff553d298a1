"""Decisions: the ledger, and whether rule or model was right; and one decision with its outcome."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from nicegui import ui

from trimtab.core import Answer, BadInputError, Decision, Outcome, parse_duration, parse_money
from trimtab.serve.dashboard import widgets
from trimtab.serve.dashboard.frame import DashboardPage, Parameters
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.widgets import (
    Chart,
    Column,
    Table,
    Trace,
    action_words,
    axis,
    chart_text,
    estimate_words,
    moment,
    quantity,
)
from trimtab.serve.operations import DecisionCalibration, Service
from trimtab.store import Role, compare

_AREAS = ("audit", "job")  # decisions and outcomes are written together with an event of one of these
_AT_ONCE = 100
_MOST_ALTERNATIVES = 20
ANSWERS = (
    Column("Who", lambda row: row[0]),
    Column("Name", lambda row: row[1].who),
    Column("Would do", lambda row: action_words(row[1])),
    Column(
        "Expects",
        lambda row: "; ".join(f"{name} {estimate_words(name, e)}" for name, e in row[1].estimates.items()),
    ),
)
LEDGER = (
    Column("When", lambda entry: moment(entry[0].created)),
    Column("Kind", lambda entry: entry[0].kind),
    Column("About", lambda entry: entry[0].subject, kind="link"),
    Column("Action", lambda entry: action_words(entry[0])),
    Column("Chosen by", lambda entry: entry[0].chosen_by),
    Column("Rule expects", lambda entry: _expected(entry[0].rule)),
    Column("Model expects", lambda entry: _expected(entry[0].model)),
    Column("Outcome", lambda entry: _measured(*entry)),
)
_CALIBRATION = (
    Column("Kind", lambda row: row.kind),
    Column("Quantity", lambda row: row.quantity),
    Column("Outcomes", lambda row: row.outcomes, str),
    Column("Ranges that held", lambda row: round(row.held / row.outcomes, 3), kind="share"),
    Column("Promised", lambda row: round(row.promised, 3), kind="share"),
    Column("Both answered", lambda row: row.duels, str),
    Column("Model nearer", lambda row: row.model_wins, str),
    Column("Rule nearer", lambda row: row.rule_wins, str),
)
Entry = tuple[Decision, Outcome | None]


def _expected(answer: Answer | None) -> str:
    estimates = answer.estimates if answer is not None else {}
    return ", ".join(f"{name} {quantity(name, e.value, e.unit)}" for name, e in estimates.items())


def _measured(decision: Decision, outcome: Outcome | None) -> str:
    units = {name: estimate.unit for name, estimate in decision.estimates.items()}
    measured = outcome.measured if outcome is not None else {}
    return ", ".join(f"{name} {quantity(name, v, units.get(name, ''))}" for name, v in measured.items())


def calibration_chart(calibrations: Sequence[DecisionCalibration]) -> Trace:
    """A point for each kind and quantity, larger with more outcomes; on the line, promises are kept."""
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": "as promised",
        "x": [0, 1],
        "y": [0, 1],
        "line": {"dash": "dot", "color": "#8a93a0"},
        "hoverinfo": "skip",
    }
    points = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": chart_text(f"{row.kind}: {row.quantity}"),
            "x": [row.promised],
            "y": [row.held / row.outcomes],
            "text": [f"{row.held} of {row.outcomes} held"],
            "hovertemplate": "%{text}<br>%{y:.0%} against %{x:.0%} promised<extra></extra>",
            "marker": {"size": 8 + 4 * min(5.0, row.outcomes**0.5)},
        }
        for row in calibrations
    ]
    share = {"range": [-0.05, 1.05], "tickformat": ".0%"}
    return widgets.figure([line, *points], 340, axis("promised", **share), axis("held", **share))


async def draw_one(visit: Visit, parameters: Parameters) -> None:
    def find(service: Service) -> tuple[Decision, tuple[Outcome, ...]]:
        made = service.decisions.get(parameters["id"])
        return made, service.decisions.outcomes(made.id)

    made, outcomes = await visit.ask(("decision", parameters["id"]), find, _AREAS)
    widgets.link("All decisions", "/decisions")
    widgets.text("h2", f"{made.kind}: {made.subject} ({made.id})")
    widgets.facts(
        (
            ("when", moment(made.created)),
            ("action", action_words(made)),
            ("chosen by", made.chosen_by),
            ("why", widgets.without_flags(made.reason)),
        )
    )
    widgets.heading("Rule and model")
    Table("Rule and model", ANSWERS, answer_rows(made), filtered=False)
    if made.contributions:
        widgets.heading("Contributions")
        name = "time" if "time" in made.estimates else next(iter(made.estimates), "")
        unit = made.estimates[name].unit if name else ""
        widgets.facts([(part.name, quantity(name, part.value, unit)) for part in made.contributions])
    widgets.heading("Outcome")
    with widgets.element("div") as section:
        _show_outcomes(made, outcomes)
    if visit.principal.may("decisions", "write", Role.USER):
        _outcome_form(visit, made)

    async def again() -> None:
        found = await visit.ask(("decision", parameters["id"]), find, _AREAS)
        section.clear()
        with section:
            _show_outcomes(*found)

    widgets.follow(visit, _AREAS, again)


def answer_rows(made: Decision) -> list[tuple[str, Answer]]:
    """The rule's answer, the model's if there is one, and the alternatives."""
    answers = [("rule", made.rule)]
    if made.model is not None:
        answers.append(("model", made.model))
    return answers + [("alternative", answer) for answer in made.alternatives[:_MOST_ALTERNATIVES]]


def _show_outcomes(made: Decision, outcomes: tuple[Outcome, ...]) -> None:
    if not outcomes:
        widgets.text("p", "No outcome has been recorded yet.")
    for outcome in outcomes:
        widgets.text("p", f"{moment(outcome.recorded)}{f': {outcome.note}' if outcome.note else ''}")
        widgets.bullets(outcome_words(made, outcome))


def outcome_words(made: Decision, outcome: Outcome) -> list[str]:
    """Every measured quantity, beside its estimate if there is one."""
    comparisons = {comparison.quantity: comparison for comparison in compare(made, outcome)}
    sentences = []
    for name, value in outcome.measured.items():
        sentence = f"{name} {quantity(name, value)}"
        if (comparison := comparisons.get(name)) is not None:
            held = "held" if comparison.held else "did not hold"
            sentence += (
                f"; expected {estimate_words(name, comparison.estimate)}, {comparison.error:+.0%} off; "
                f"the range {held}"
            )
        sentences.append(sentence)
    return sentences


def _outcome_form(visit: Visit, made: Decision) -> None:
    with widgets.element("div", "form"):
        time = ui.input(label="It took, like 3h40m").props("outlined dense")
        cost = ui.input(label="It cost, like $12.10").props("outlined dense")
        note = ui.input(label="Note").props("outlined dense")
    with widgets.element("div", "row-of-buttons"):
        record = widgets.button("Record outcome")
    status = widgets.notice()

    async def keep() -> None:
        with widgets.errors_shown(status):
            measured = measured_of(time.value or "", cost.value or "")
            await visit.do(
                lambda service: service.decisions.record_outcome(made.id, measured, note.value or "")
            )
            status.set_text("The outcome is recorded.")

    record.on("click", keep)


def measured_of(time: str, cost: str) -> dict[str, float]:
    """Typed values in seconds and dollars."""
    measured = {}
    if time.strip():
        measured["time"] = parse_duration(time)
    if cost.strip():
        measured["cost"] = parse_money(cost)
    if not measured or any(value <= 0 for value in measured.values()):
        raise BadInputError("an outcome needs a time, a cost or both, above zero")
    return measured


@dataclass(frozen=True, slots=True)
class LedgerPage:
    """Decisions, each with its last outcome if it has one, and where the list continues."""

    entries: tuple[Entry, ...]
    next: str | None


def ledger(service: Service, kind: str | None, after: str | None) -> LedgerPage:
    page = service.decisions.page(_AT_ONCE, after, kind)
    entries = ((made, next(iter(service.decisions.outcomes(made.id)[-1:]), None)) for made in page.items)
    return LedgerPage(tuple(entries), page.next)


async def draw(visit: Visit, parameters: Parameters) -> None:
    after, kind = parameters.get("after") or None, parameters.get("kind") or None
    calibrations = await visit.ask(
        "calibration", lambda service: service.calibration.by_kind(), _AREAS, age=30.0
    )

    def draw_ledger(page: LedgerPage) -> Callable[[LedgerPage], None]:
        widgets.heading("Rule against model")
        _draw_calibration(calibrations)
        widgets.heading("The ledger")
        table = Table("Decisions", LEDGER, page.entries, link_to=lambda entry: f"/decisions/{entry[0].id}")
        if page.next is not None:
            query = urlencode({"kind": kind or "", "after": page.next})
            widgets.link("Older decisions", f"/decisions?{query}")
        return lambda page: table.show(page.entries)

    await widgets.live(
        visit,
        ("decisions", kind, after),
        lambda service: ledger(service, kind, after),
        draw_ledger,
        lambda page: page.entries,
        (
            "No decisions yet. Every recommendation, prediction, plan and start of a job becomes one:",
            ("trimtab recommend", "trimtab demo"),
        ),
        _AREAS,
    )


def _draw_calibration(calibrations: tuple[DecisionCalibration, ...]) -> None:
    if not calibrations:
        widgets.empty(
            "No decision has an outcome yet. The end of a job records one; for a recommendation, open the "
            "decision below and type in how long the job took and what it cost."
        )
        return
    widgets.tiles(figures(calibrations))
    widgets.text("p", "The newest 500 decisions: how often the stated range held, and which was nearer.")
    Chart(
        "How often ranges held, against what was promised; the table below has the numbers",
        calibration_chart(calibrations),
    )
    Table("Outcomes by kind", _CALIBRATION, calibrations, filtered=False)


def figures(calibrations: tuple[DecisionCalibration, ...]) -> tuple[tuple[str, str], ...]:
    outcomes, held = sum(row.outcomes for row in calibrations), sum(row.held for row in calibrations)
    promised = sum(row.promised * row.outcomes for row in calibrations) / outcomes
    duels, wins = sum(row.duels for row in calibrations), sum(row.model_wins for row in calibrations)
    return (
        ("outcomes compared", str(outcomes)),
        ("ranges that held", f"{held / outcomes:.0%}"),
        ("promised", f"{promised:.0%}"),
        ("model nearer", f"{wins / duels:.0%} of {duels}" if duels else "never both answered"),
    )


PAGE = DashboardPage(
    "Decisions", "/decisions", "gavel", "d", "decisions", draw, below=(("/decisions/{id}", draw_one),)
)
