"""Decisions with their outcomes, append-only (triggers refuse changes), and profiles."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, Text, bindparam, cast, select

from trimtab.core import DEFAULT_TENANT, Decision, NotFoundError, Outcome, Profile, to_plain
from trimtab.store.database import ConflictError, Database, decode_json, is_storable, require_storable
from trimtab.store.entities import DecisionFilter, ProfileFilter
from trimtab.store.records import Records, RowFilter, from_kept, row_filter
from trimtab.store.tables import decisions, outcomes, profiles


class Ledger(Records[Decision, DecisionFilter]):
    def __init__(self, database: Database) -> None:
        super().__init__(database, decisions, Decision, "decision")

    def record(self, decision: Decision, tenant: str = DEFAULT_TENANT) -> None:
        """Keep a decision of a tenant; recording an equal one again does nothing."""
        columns = {"created": decision.created, "kind": decision.kind, "subject": decision.subject}
        self.add(decision.id, decision, columns, tenant)

    def list(
        self,
        limit: int = 100,
        kind: str | None = None,
        subject: str | None = None,
        tenants: Sequence[str] | None = None,
    ) -> tuple[Decision, ...]:
        """At most `limit` decisions, newest first, of one kind or about one subject if given."""
        return self.page(limit, DecisionFilter(kind, subject, tenants=tenants)).items

    def record_outcome(self, outcome: Outcome, tenants: Sequence[str] | None = None) -> None:
        """Keep an outcome of a decision that `tenants` may see; a decision may have several."""
        id = outcome.decision_id
        if not is_storable(id) or (tenants is not None and self._one(id, tenants)[0] != id):
            raise self.missing(id, tenants)
        try:
            self._database.write(lambda connection: add_outcome(self._database, outcome))
        except ConflictError:
            raise self.missing(id, tenants) from None

    def outcomes(self, decision_id: str, tenants: Sequence[str] | None = None) -> tuple[Outcome, ...]:
        """Outcomes, oldest first, of the decision whose id is, or alone starts with, `decision_id`."""
        id = self._one(decision_id, tenants)[0]

        def build() -> Select[Any]:
            same = outcomes.c.decision_id == bindparam("decision", type_=Text())
            return select(cast(outcomes.c.body, Text)).where(same).order_by(outcomes.c.sequence)

        rows = self._database.fetch("outcomes", build, {"decision": id})
        where = f"an outcome of decision {id} in {self._database.name}"
        return tuple(from_kept(Outcome, decode_json(body), where) for (body,) in rows)

    def _conditions(self, criteria: DecisionFilter | None) -> RowFilter:
        criteria = criteria or DecisionFilter()
        return row_filter(criteria.tenants, criteria.kind, criteria.subject, criteria.since, criteria.until)


def add_decision(database: Database, decision: Decision, tenant: str) -> None:
    """Keep a new decision as a part of a transaction."""
    columns = {name: getattr(decision, name) for name in ("id", "created", "kind", "subject")}
    for name, value in columns.items():
        require_storable(value, f"the decision's {name}")
    database.add(decisions, {**columns, "tenant": tenant, "body": to_plain(decision)})


def add_outcome(database: Database, outcome: Outcome) -> None:
    """Keep an outcome as a part of a transaction."""
    row: dict[str, Any] = {"decision_id": outcome.decision_id, "recorded": outcome.recorded}
    database.add(outcomes, {**row, "body": to_plain(outcome)})


class Profiles(Records[Profile, ProfileFilter]):
    """Every profile taken, under its id."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, profiles, Profile, "profile")

    def save(self, profile: Profile, tenant: str = DEFAULT_TENANT) -> None:
        """Keep a profile of a tenant; saving an equal one again does nothing."""
        self.add(profile.id, profile, {"created": profile.created, "workload": profile.workload.name}, tenant)

    def latest(self, tenants: Sequence[str] | None = None) -> Profile:
        newest = self.page(1, ProfileFilter(tenants=tenants)).items
        if not newest:
            raise NotFoundError("there is no profile yet; take one with: trimtab profile -- python train.py")
        return newest[0]

    def list(self, limit: int = 100, workload: str | None = None) -> tuple[Profile, ...]:
        """At most `limit` profiles, newest first, of the workload with one name if given."""
        return self.page(limit, ProfileFilter(workload)).items

    def _conditions(self, criteria: ProfileFilter | None) -> RowFilter:
        criteria = criteria or ProfileFilter()
        workload = None if criteria.workload is None else (criteria.workload,)
        return row_filter(criteria.tenants, since=criteria.since, until=criteria.until, workload=workload)
