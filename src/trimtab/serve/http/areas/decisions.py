"""/v1/decisions: the ledger, outcomes, and who was right."""

from typing import Annotated

from fastapi import Query
from pydantic import Field

from trimtab.core import BadInputError, Decision, Outcome
from trimtab.serve.http.answer import Answer, json_answer, page_answer, text_answer
from trimtab.serve.http.areas.owned import OwnedDecision
from trimtab.serve.http.query import Asked
from trimtab.serve.http.route import Effect, slow
from trimtab.serve.http.router import Caller, PageAsked, PageOf, Router, Told
from trimtab.serve.operations import Calibration
from trimtab.store import WantedDecisions

router = Router("decisions")


class DecisionsAsked(PageAsked):
    """Which decisions."""

    kind: str | None = Field(None, max_length=100)
    subject: str | None = Field(None, max_length=200)
    tenant: str | None = Field(None, max_length=100)
    since: float | None = Field(None, description="Made at or after, in seconds since 1970.")
    until: float | None = Field(None, description="Made before, in seconds since 1970.")


class DecisionGiven(Told):
    """A decision made elsewhere. Its id is given anew unless the token is for all tenants."""

    decision: Decision
    tenant: str | None = None


class OutcomeGiven(Told):
    """What was measured, under the names of the decision's estimates: seconds, dollars, bytes."""

    measured: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(min_length=1, max_length=100)
    note: str = Field("", max_length=10_000)


class OutcomeList(Told):
    """Outcomes, oldest first."""

    items: list[Outcome]


class CalibrationAsked(Asked):
    """Of which decisions: all of a kind, among the newest so many."""

    kind: str | None = Field(None, max_length=100)
    newest: int = Field(500, ge=1, le=2000)


class CalibrationList(Told):
    """By kind and quantity."""

    items: list[Calibration]


@router.reads("/decisions", PageOf[OwnedDecision])
def list_decisions(call: Caller, query: Annotated[DecisionsAsked, Query()]) -> Answer:
    """Decisions, newest first."""
    tenants = None if query.tenant is None else (query.tenant,)
    wanted = WantedDecisions(query.kind, query.subject, query.since, query.until, tenants)
    return page_answer(call.scope, call.service.decisions.page_text(query.limit, wanted, query.after))


@router.makes("/decisions", Decision)
def record_decision(call: Caller, body: DecisionGiven) -> Effect:
    """Keep a decision that was made elsewhere."""
    decisions = call.service.decisions
    return lambda: json_answer(decisions.record(body.decision, body.tenant), 201)


@router.reads("/decisions/calibration", CalibrationList)
@slow
def get_calibration(call: Caller, query: Annotated[CalibrationAsked, Query()]) -> Answer:
    """Rule against model, and how often ranges held, over the newest decisions with outcomes."""
    return json_answer({"items": call.service.calibration.by_kind(query.kind, query.newest)})


@router.reads("/decisions/{id}", OwnedDecision, tagged=True)
def get_decision(call: Caller, id: str) -> Answer:
    """One decision, by its id or the start of it."""
    return text_answer(call.service.decisions.text(id))


@router.reads("/decisions/{id}/outcomes", OutcomeList)
def list_outcomes(call: Caller, id: str) -> Answer:
    """What happened after it."""
    return json_answer({"items": call.service.decisions.outcomes(id)})


@router.makes("/decisions/{id}/outcomes", Outcome)
def record_outcome(call: Caller, id: str, body: OutcomeGiven) -> Effect:
    """Record what happened after a decision."""
    if any("\n" in name or len(name) > 200 for name in body.measured):
        raise BadInputError("body.measured: a quantity's name is one line of at most 200 characters")
    decisions = call.service.decisions
    return lambda: json_answer(decisions.record_outcome(id, dict(body.measured), body.note), 201)
