"""Decisions: the ledger, who was right, rule or model; and one decision with its outcome."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from nicegui import ui

from trimtab.core import Answer, BadInputError, Decision, Outcome, TrimtabError, parse_duration, parse_money
from trimtab.serve.dashboard.frame import Asked, Page
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.widgets import (
    Chart,
    Column,
    Rows,
    Table,
    Trace,
    action_words,
    axis,
    bullets,
    button,
    chart_text,
    element,
    empty,
    estimate_words,
    facts,
    figure,
    follow,
    heading,
    link,
    moment,
    notice,
    quantity,
    reload_when,
    text,
    tiles,
)
from trimtab.serve.operations import Calibration, Service
from trimtab.serve.problems import problem_of
from trimtab.store import Role, compare


def calibration_chart(judged: Sequence[Calibration]) -> Trace:
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
            "name": chart_text(f"{each.kind}: {each.quantity}"),
            "x": [each.promised],
            "y": [each.held / each.outcomes],
            "text": [f"{each.held} of {each.outcomes} held"],
            "hovertemplate": "%{text}<br>%{y:.0%} against %{x:.0%} promised<extra></extra>",
            "marker": {"size": 8 + 4 * min(5.0, each.outcomes**0.5)},
        }
        for each in judged
    ]
    share = {"range": [-0.05, 1.05], "tickformat": ".0%"}
    return figure([line, *points], 340, axis("promised", **share), axis("held", **share))


_OUTCOME_AREAS = ("audit", "job")  # whoever writes outcomes does so with one of these
_ANSWERS = (
    Column("role", "Who"),
    Column("id", "Name"),
    Column("action", "Would do"),
    Column("estimates", "Expects"),
)


def _one(service: Service, id: str) -> tuple[Decision, tuple[Outcome, ...]]:
    made = service.decisions.get(id)
    return made, service.decisions.outcomes(made.id)


async def draw_one(visit: Visit, asked: Asked) -> None:
    """One decision."""
    id = asked["id"]
    made, outcomes = await visit.ask(("decision", id), lambda s: _one(s, id), _OUTCOME_AREAS)
    link("All decisions", "/decisions")
    text("h2", f"{made.kind}: {made.subject} ({made.id})")
    facts(
        (
            ("when", moment(made.created)),
            ("done", action_words(made)),
            ("chosen by", made.chosen_by),
            ("why", made.reason),
        )
    )
    heading("Rule and model")
    Table("Rule and model", _ANSWERS, answer_rows(made), filtered=False)
    if made.contributions:
        heading("What it is made of")
        facts([(each.name, f"{each.value:.4g}") for each in made.contributions])
    heading("Outcome")
    with element("div") as told:
        _outcomes(made, outcomes)
    if visit.principal.may("decisions", "write", Role.USER):
        _outcome_form(visit, made)

    async def again() -> None:
        found = await visit.ask(("decision", id), lambda s: _one(s, id), _OUTCOME_AREAS)
        told.clear()
        with told:
            _outcomes(*found)

    follow(visit, _OUTCOME_AREAS, again)


def answer_rows(made: Decision) -> Rows:
    """The rule, the model where it spoke, and the alternatives."""
    answers = [("rule", made.rule)]
    answers += [("model", made.model)] if made.model is not None else []
    answers += [("alternative", each) for each in made.alternatives[:20]]
    return [
        {
            "id": f"{answer.who} ({place})" if place else answer.who,
            "role": role,
            "action": action_words(answer),
            "estimates": "; ".join(
                f"{name} {estimate_words(name, guess)}" for name, guess in answer.estimates.items()
            ),
        }
        for place, (role, answer) in enumerate(answers)
    ]


def _outcomes(made: Decision, outcomes: tuple[Outcome, ...]) -> None:
    if not outcomes:
        text("p", "Nothing has been recorded yet.")
    for each in outcomes:
        text("p", f"{moment(each.recorded)}{f': {each.note}' if each.note else ''}")
        bullets(outcome_words(made, each))


def outcome_words(made: Decision, outcome: Outcome) -> list[str]:
    """Every measured quantity, beside its estimate where there is one."""
    compared = {each.quantity: each for each in compare(made, outcome)}
    words = []
    for name, value in outcome.measured.items():
        told = f"{name} {quantity(name, value)}"
        if name in compared:
            one = compared[name]
            told += f"; expected {estimate_words(name, one.estimate)}, {one.error:+.0%} off; the range "
            told += "held" if one.held else "did not hold"
        words.append(told)
    return words


def _outcome_form(visit: Visit, made: Decision) -> None:
    with element("div", "form"):
        time = ui.input(label="It took, like 3h40m").props("outlined dense")
        cost = ui.input(label="It cost, like $12.10").props("outlined dense")
        note = ui.input(label="Note").props("outlined dense")
    with element("div", "row-of-buttons"):
        record = button("Record outcome")
    said = notice()

    async def keep() -> None:
        try:
            measured = measured_of(time.value or "", cost.value or "")
            told = note.value or ""
            await visit.do(lambda s: s.decisions.record_outcome(made.id, measured, told))
        except TrimtabError as error:
            said.set_text(problem_of(error).detail)
            return
        said.set_text("It is recorded.")

    record.on("click", keep)


def measured_of(time: str, cost: str) -> dict[str, float]:
    """What was typed, in seconds and dollars."""
    measured = {}
    if time.strip():
        measured["time"] = parse_duration(time)
    if cost.strip():
        measured["cost"] = parse_money(cost)
    if not measured or any(value <= 0 for value in measured.values()):
        raise BadInputError("an outcome needs a time, a cost or both, above zero")
    return measured


_AREAS = ("audit", "job")  # whoever writes decisions does so with one of these
_AT_ONCE = 100
_COLUMNS = (
    Column("when", "When"),
    Column("kind", "Kind"),
    Column("subject", "About", "link"),
    Column("action", "What was done"),
    Column("by", "Chosen by"),
    Column("rule", "Rule expects"),
    Column("model", "Model expects"),
    Column("outcome", "Outcome"),
)
_JUDGED = (
    Column("kind", "Kind"),
    Column("quantity", "Quantity"),
    Column("outcomes", "Outcomes", "number"),
    Column("held", "Ranges that held", "share"),
    Column("promised", "Promised", "share"),
    Column("duels", "Both spoke", "number"),
    Column("model", "Model nearer", "number"),
    Column("rule", "Rule nearer", "number"),
)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Decisions, each with its last outcome where it has one, and where the list goes on."""

    entries: tuple[tuple[Decision, Outcome | None], ...]
    next: str | None


def ledger(service: Service, kind: str | None, after: str | None) -> Ledger:
    """A page of it, newest first."""
    found = service.decisions.page(_AT_ONCE, after, kind)
    last = ((made, service.decisions.outcomes(made.id)[-1:]) for made in found.items)
    return Ledger(tuple((made, happened[0] if happened else None) for made, happened in last), found.next)


async def draw(visit: Visit, asked: Asked) -> None:
    """The ledger, newest first."""
    after, kind = asked.get("after") or None, asked.get("kind") or None

    async def listed() -> Ledger:
        return await visit.ask(("decisions", kind, after), lambda s: ledger(s, kind, after), _AREAS)

    found = await listed()
    if not found.entries:
        empty(
            "No decisions yet. Every recommendation, prediction, plan and start of a job becomes one:",
            ("trimtab recommend", "trimtab demo"),
        )

        async def some() -> bool:
            return bool((await listed()).entries)

        reload_when(visit, _AREAS, some)
        return
    judged = await visit.ask("calibration", lambda s: s.calibration.by_kind(), _AREAS, age=30.0)
    _show_judged(judged)
    heading("The ledger")
    table = Table("Decisions", _COLUMNS, rows(found.entries))
    if found.next is not None:
        link("Older decisions", f"/decisions?{urlencode({'kind': kind or '', 'after': found.next})}")

    async def again() -> None:
        table.show(rows((await listed()).entries))

    follow(visit, _AREAS, again)


def _show_judged(judged: tuple[Calibration, ...]) -> None:
    heading("Who was right")
    if not judged:
        empty(
            "No decision has an outcome yet. A job's end brings one; for a recommendation, record it:",
            ("trimtab outcome DECISION --time 3h40m --cost 12.10",),
        )
        return
    tiles(figures(judged))
    text("p", "Of the newest 500 decisions: how often the truth lay in the stated range, and who was nearer.")
    Chart(
        "How often ranges held, against what was promised; the table below has the numbers",
        calibration_chart(judged),
    )
    Table("Outcomes by kind", _JUDGED, judged_rows(judged), filtered=False)


def figures(judged: tuple[Calibration, ...]) -> tuple[tuple[str, str], ...]:
    """All kinds together."""
    outcomes, held = sum(each.outcomes for each in judged), sum(each.held for each in judged)
    promised = sum(each.promised * each.outcomes for each in judged) / outcomes
    duels, wins = sum(each.duels for each in judged), sum(each.model_wins for each in judged)
    return (
        ("outcomes compared", str(outcomes)),
        ("ranges that held", f"{held / outcomes:.0%}"),
        ("promised", f"{promised:.0%}"),
        ("model's win rate", f"{wins / duels:.0%} of {duels}" if duels else "no duels"),
    )


def judged_rows(judged: tuple[Calibration, ...]) -> Rows:
    """A row for each kind and quantity."""
    return [
        {
            "id": f"{each.kind} {each.quantity}",
            "kind": each.kind,
            "quantity": each.quantity,
            "outcomes": str(each.outcomes),
            "outcomes#": each.outcomes,
            "held": round(each.held / each.outcomes, 3),
            "promised": round(each.promised, 3),
            "duels": str(each.duels),
            "duels#": each.duels,
            "model": str(each.model_wins),
            "model#": each.model_wins,
            "rule": str(each.rule_wins),
            "rule#": each.rule_wins,
        }
        for each in judged
    ]


def rows(entries: Sequence[tuple[Decision, Outcome | None]]) -> Rows:
    """A row for each decision: what rule and model said, and what happened."""
    return [
        {
            "id": made.id,
            "href": f"/decisions/{made.id}",
            "when": moment(made.created),
            "kind": made.kind,
            "subject": made.subject,
            "action": action_words(made),
            "by": made.chosen_by,
            "rule": _said(made.rule),
            "model": _said(made.model) if made.model is not None else "",
            "outcome": _happened(made, happened) if happened is not None else "",
        }
        for made, happened in entries
    ]


def _said(answer: Answer) -> str:
    return ", ".join(f"{name} {quantity(name, e.value, e.unit)}" for name, e in answer.estimates.items())


def _happened(made: Decision, outcome: Outcome) -> str:
    units = {name: guess.unit for name, guess in made.estimates.items()}
    return ", ".join(
        f"{name} {quantity(name, value, units.get(name, ''))}" for name, value in outcome.measured.items()
    )


PAGE = Page(
    "Decisions", "/decisions", "gavel", "d", "decisions", draw, below=(("/decisions/{id}", draw_one),)
)
