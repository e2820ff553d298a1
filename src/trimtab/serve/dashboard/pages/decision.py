"""One decision: both answers, what it is made of, and what became of it."""

from nicegui import ui

from trimtab.core import BadInputError, Decision, Outcome, TrimtabError, parse_duration, parse_money
from trimtab.serve.dashboard.live import follow
from trimtab.serve.dashboard.parts import bullets, button, element, facts, heading, link, notice, text
from trimtab.serve.dashboard.registry import Asked
from trimtab.serve.dashboard.table import Column, Rows, Table
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.words import action_words, estimate_words, moment, quantity
from trimtab.serve.operations import Service
from trimtab.serve.problems import problem_of
from trimtab.store import Role, compare

_AREAS = ("audit", "job")  # whoever writes outcomes does so with one of these
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
    made, outcomes = await visit.ask(("decision", id), lambda s: _one(s, id), _AREAS)
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
        found = await visit.ask(("decision", id), lambda s: _one(s, id), _AREAS)
        told.clear()
        with told:
            _outcomes(*found)

    follow(visit, _AREAS, again)


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
