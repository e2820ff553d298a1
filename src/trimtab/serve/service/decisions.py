"""Decisions: what was decided, what became of it, and who was right."""

from trimtab.core import Decision, Outcome
from trimtab.serve.service.desk import Area
from trimtab.store import Page, Role, WantedDecisions

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
        """Keep a decision that was made elsewhere; the same again is no error."""
        self.principal.require(AREA, "write", Role.USER)
        owner = self.principal.tenant_for(tenant)

        def effect() -> Decision:
            self.desk.store.ledger.record(decision, owner)
            return decision

        return self.written(
            "decisions.record", owner, effect, lambda d: (d.id, {"kind": d.kind, "subject": d.subject})
        )

    def record_outcome(self, outcome: Outcome) -> Outcome:
        """Keep what happened after a decision."""
        self.principal.require(AREA, "write", Role.USER)
        store, tenants = self.desk.store, self.principal.tenants

        def effect() -> Outcome:
            store.ledger.record_outcome(outcome, tenants)
            return outcome

        owner = self._owner(outcome.decision_id)
        return self.written(
            "decisions.outcome", owner, effect, lambda o: (o.decision_id, {"measured": dict(o.measured)})
        )

    def _owner(self, id: str) -> str:
        import json

        return str(json.loads(self.desk.store.ledger.text(id, self.principal.tenants))["tenant"])
