"""Decisions: the ledger, and who was right, rule or model."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from trimtab.core import Answer, Decision, Outcome
from trimtab.serve.dashboard.chart import Chart
from trimtab.serve.dashboard.live import follow, reload_when
from trimtab.serve.dashboard.pages.calibration_chart import calibration_chart
from trimtab.serve.dashboard.pages.decision import draw_one
from trimtab.serve.dashboard.parts import (
    empty,
    heading,
    link,
    text,
    tiles,
)
from trimtab.serve.dashboard.registry import Asked, Page
from trimtab.serve.dashboard.table import Column, Rows, Table
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.words import action_words, moment, quantity
from trimtab.serve.operations import Calibration, Service

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
