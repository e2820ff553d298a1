"""Decisions: what was decided, and what became of it."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from trimtab.core import Decision, Outcome
from trimtab.serve.operations.desk import Area
from trimtab.serve.operations.noting import PREDICTION, note
from trimtab.store import Page, Role, WantedDecisions

if TYPE_CHECKING:
    from trimtab.predict import Finding

AREA = "decisions"


class Decisions(Area):
    """Decisions of the tenants that may be seen."""

    __slots__ = ()

    def page(
        self, limit: int = 20, wanted: WantedDecisions | None = None, after: str | None = None
    ) -> Page[Decision]:
        """Newest first."""
        self.principal.require(AREA)
        return self.desk.store.ledger.page(limit, self.allowed(wanted or WantedDecisions()), after)

    def page_text(
        self, limit: int = 20, wanted: WantedDecisions | None = None, after: str | None = None
    ) -> Page[str]:
        """The same as JSON."""
        self.principal.require(AREA)
        return self.desk.store.ledger.page_text(limit, self.allowed(wanted or WantedDecisions()), after)

    def get(self, id: str) -> Decision:
        """The one whose id is, or alone starts with, `id`."""
        self.principal.require(AREA)
        return self.desk.store.ledger.get(id, self.principal.tenants)

    def text(self, id: str) -> str:
        """The same as JSON."""
        self.principal.require(AREA)
        return self.desk.store.ledger.text(id, self.principal.tenants)

    def outcomes(self, id: str) -> tuple[Outcome, ...]:
        """What happened after it, oldest first."""
        self.principal.require(AREA)
        return self.desk.store.ledger.outcomes(id, self.principal.tenants)

    def record(self, decision: Decision, tenant: str | None = None) -> Decision:
        """Keep a decision that was made elsewhere, under an id of its own; the decision as it is kept.

        Who may see all tenants may choose the id, and write the same again. Others could learn from a refusal
        that somebody else has one like it, so theirs get a new one.
        """
        self.principal.require(AREA, "write", Role.USER)
        owner = self.principal.tenant_for(tenant)
        kept = decision if self.principal.tenants is None else replace(decision, id=secrets.token_hex(6))

        def effect() -> Decision:
            self.desk.store.ledger.record(kept, owner)
            return kept

        return self.written(
            "decisions.record", owner, effect, lambda d: (d.id, {"kind": d.kind, "subject": d.subject})
        )

    def record_outcome(self, id: str, measured: Mapping[str, float], note: str = "") -> Outcome:
        """Keep what happened after the decision whose id is, or alone starts with, `id`."""
        self.principal.require(AREA, "write", Role.USER)
        store, tenants = self.desk.store, self.principal.tenants
        made = json.loads(store.ledger.text(id, tenants))
        outcome = Outcome(made["id"], self.desk.clock.now(), dict(measured), note)

        def effect() -> Outcome:
            store.ledger.record_outcome(outcome, tenants)
            return outcome

        kept = self.written(
            "decisions.outcome", made["tenant"], effect, lambda o: (o.decision_id, {"measured": o.measured})
        )
        if made["kind"] == PREDICTION and self.desk.noting is not None:
            self.desk.noting.add(store, made, kept)
        return kept

    def note_outcome(self, happened: Outcome) -> "tuple[Finding, ...]":
        """Note one that is kept for the models to learn from, at once; what it shows that was not known."""
        self.principal.require(AREA, "write", Role.USER)
        store, tenants = self.desk.store, self.principal.tenants
        made = store.ledger.get(happened.decision_id, tenants)
        if made.kind != PREDICTION:
            return ()
        tenant = json.loads(store.ledger.text(made.id, tenants))["tenant"]
        return note(store, made, happened, tenant)
