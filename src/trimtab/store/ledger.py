"""Decisions and what became of them. Rows are added, never changed: the database itself refuses."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, Text, bindparam, cast, select

from trimtab.core import Decision, Outcome, to_plain
from trimtab.store import json_text
from trimtab.store.database import Database
from trimtab.store.faults import ConflictError
from trimtab.store.listing import Asked
from trimtab.store.page import Page
from trimtab.store.records import Records, from_kept, is_storable, require_storable, seen_by
from trimtab.store.tables import EVERYBODY, decisions, outcomes
from trimtab.store.wanted import WantedDecisions


class Ledger:
    """Who decided what for whom, and how it turned out."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._decisions = Records(database, decisions, Decision, "decision")

    def record(self, decision: Decision, tenant: str = EVERYBODY) -> None:
        """Keep a decision of a tenant; recording the same one again does nothing."""
        columns = {"created": decision.created, "kind": decision.kind, "subject": decision.subject}
        self._decisions.add(decision.id, decision, columns, tenant)

    def get(self, id: str, tenants: Sequence[str] | None = None) -> Decision:
        """The decision whose id is, or alone starts with, `id`, of those that `tenants` may see."""
        return self._decisions.get(id, tenants)

    def text(self, id: str, tenants: Sequence[str] | None = None) -> str:
        """The same as JSON, with its tenant."""
        return self._decisions.text(id, tenants)

    def list(
        self,
        limit: int = 20,
        kind: str | None = None,
        subject: str | None = None,
        tenants: Sequence[str] | None = None,
    ) -> tuple[Decision, ...]:
        """At most `limit` decisions, newest first, of one kind or about one subject where given."""
        return self.page(limit, WantedDecisions(kind, subject, tenants=tenants)).items

    def page(
        self, limit: int = 20, wanted: WantedDecisions | None = None, after: str | None = None
    ) -> Page[Decision]:
        """A page of at most `limit` decisions, newest first, from where the page before said `next`."""
        return self._decisions.records(_asked(wanted), limit, after)

    def page_text(
        self, limit: int = 20, wanted: WantedDecisions | None = None, after: str | None = None
    ) -> Page[str]:
        """The same as JSON, with their tenants."""
        return self._decisions.texts(_asked(wanted), limit, after)

    def record_outcome(self, outcome: Outcome, tenants: Sequence[str] | None = None) -> None:
        """Keep what happened after a decision that `tenants` may see; there may be several outcomes."""
        if not is_storable(outcome.decision_id):
            raise self._decisions.missing(outcome.decision_id, tenants)
        id = outcome.decision_id
        if tenants is not None and self._decisions.whole_id(id, tenants) != id:
            raise self._decisions.missing(outcome.decision_id, tenants)
        try:
            self._database.write(lambda connection: add_outcome(self._database, outcome))
        except ConflictError:
            raise self._decisions.missing(outcome.decision_id, tenants) from None

    def outcomes(self, decision_id: str, tenants: Sequence[str] | None = None) -> tuple[Outcome, ...]:
        """What happened after the decision whose id is, or alone starts with, `decision_id`; oldest first."""
        whole = self._decisions.whole_id(decision_id, tenants)
        rows = self._database.fetch("outcomes", _outcomes_of, {"decision": whole})
        where = f"an outcome of decision {whole} in {self._database.name}"
        return tuple(from_kept(Outcome, json_text.loads(body), where) for (body,) in rows)


def add_decision(database: Database, decision: Decision, tenant: str) -> None:
    """Keep a decision that is new as a part of a transaction."""
    columns = {name: getattr(decision, name) for name in ("id", "created", "kind", "subject")}
    for name, value in columns.items():
        require_storable(value, f"the decision's {name}")
    database.add(decisions, {**columns, "tenant": tenant, "body": to_plain(decision)})


def add_outcome(database: Database, outcome: Outcome) -> None:
    """Keep an outcome as a part of a transaction."""
    row: dict[str, Any] = {"decision_id": outcome.decision_id, "recorded": outcome.recorded}
    database.add(outcomes, {**row, "body": to_plain(outcome)})


def _outcomes_of() -> Select[Any]:
    same = outcomes.c.decision_id == bindparam("decision", type_=Text())
    return select(cast(outcomes.c.body, Text)).where(same).order_by(outcomes.c.sequence)


def _asked(wanted: WantedDecisions | None) -> Asked:
    wanted = wanted or WantedDecisions()
    alike: dict[str, Sequence[str]] = {**seen_by(wanted.tenants)}
    beside = {}
    # A subject has far fewer decisions than a kind has, so its index is the one to walk where both are given.
    if wanted.subject is not None:
        alike["subject"] = (wanted.subject,)
        if wanted.kind is not None:
            beside["kind"] = wanted.kind
    elif wanted.kind is not None:
        alike["kind"] = (wanted.kind,)
    return Asked(alike, beside, wanted.since, wanted.until)
