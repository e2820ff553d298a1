"""Decisions with their outcomes, append-only (triggers refuse changes), and profiles."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, Text, bindparam, cast, select

from trimtab.core import Decision, NotFoundError, Outcome, Profile, to_plain
from trimtab.store import json_text
from trimtab.store.address import ConflictError
from trimtab.store.database import Database
from trimtab.store.entities import Page, WantedDecisions, WantedProfiles
from trimtab.store.records import Records, RowFilter, from_kept, is_storable, require_storable, seen_by
from trimtab.store.tables import DEFAULT_TENANT, decisions, outcomes, profiles


class Ledger:
    """Decisions and their outcomes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._decisions = Records(database, decisions, Decision, "decision")

    def record(self, decision: Decision, tenant: str = DEFAULT_TENANT) -> None:
        """Keep a decision of a tenant; recording the same one again does nothing."""
        columns = {"created": decision.created, "kind": decision.kind, "subject": decision.subject}
        self._decisions.add(decision.id, decision, columns, tenant)

    def get(self, id: str, tenants: Sequence[str] | None = None) -> Decision:
        """The decision whose id is, or alone starts with, `id`, of those that `tenants` may see."""
        return self._decisions.get(id, tenants)

    def text(self, id: str, tenants: Sequence[str] | None = None) -> str:
        """One decision as JSON text, with its tenant."""
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
        return self._decisions.records(_decision_filter(wanted), limit, after)

    def page_text(
        self, limit: int = 20, wanted: WantedDecisions | None = None, after: str | None = None
    ) -> Page[str]:
        """A page of decisions as JSON texts, with their tenants."""
        return self._decisions.texts(_decision_filter(wanted), limit, after)

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
        """Outcomes, oldest first, of the decision whose id is, or alone starts with, `decision_id`."""
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


def _decision_filter(wanted: WantedDecisions | None) -> RowFilter:
    wanted = wanted or WantedDecisions()
    equal: dict[str, Sequence[str]] = {**seen_by(wanted.tenants)}
    unindexed = {}
    # A subject has far fewer decisions than a kind has, so its index is the one to walk where both are given.
    if wanted.subject is not None:
        equal["subject"] = (wanted.subject,)
        if wanted.kind is not None:
            unindexed["kind"] = wanted.kind
    elif wanted.kind is not None:
        equal["kind"] = (wanted.kind,)
    return RowFilter(equal, unindexed, wanted.since, wanted.until)


class Profiles:
    """Every profile taken, under its id."""

    def __init__(self, database: Database) -> None:
        self._profiles = Records(database, profiles, Profile, "profile")

    def save(self, profile: Profile, tenant: str = DEFAULT_TENANT) -> None:
        """Keep a profile of a tenant; saving the same one again does nothing."""
        columns = {"created": profile.created, "workload": profile.workload.name}
        self._profiles.add(profile.id, profile, columns, tenant)

    def get(self, id: str, tenants: Sequence[str] | None = None) -> Profile:
        """The profile whose id is, or alone starts with, `id`, of those that `tenants` may see."""
        return self._profiles.get(id, tenants)

    def text(self, id: str, tenants: Sequence[str] | None = None) -> str:
        """One profile as JSON text, with its tenant."""
        return self._profiles.text(id, tenants)

    def latest(self, tenants: Sequence[str] | None = None) -> Profile:
        """The newest profile."""
        newest = self.list(1, tenants=tenants)
        if not newest:
            raise NotFoundError("there is no profile yet; take one with: trimtab profile -- python train.py")
        return newest[0]

    def list(
        self, limit: int = 20, workload: str | None = None, tenants: Sequence[str] | None = None
    ) -> tuple[Profile, ...]:
        """At most `limit` profiles, newest first, of the workload with one name where given."""
        return self.page(limit, WantedProfiles(workload, tenants=tenants)).items

    def page(
        self, limit: int = 20, wanted: WantedProfiles | None = None, after: str | None = None
    ) -> Page[Profile]:
        """A page of at most `limit` profiles, newest first, from where the page before said `next`."""
        return self._profiles.records(_profile_filter(wanted), limit, after)

    def page_text(
        self, limit: int = 20, wanted: WantedProfiles | None = None, after: str | None = None
    ) -> Page[str]:
        """A page of profiles as JSON texts, with their tenants."""
        return self._profiles.texts(_profile_filter(wanted), limit, after)


def _profile_filter(wanted: WantedProfiles | None) -> RowFilter:
    wanted = wanted or WantedProfiles()
    equal: dict[str, Sequence[str]] = {**seen_by(wanted.tenants)}
    if wanted.workload is not None:
        equal["workload"] = (wanted.workload,)
    return RowFilter(equal, since=wanted.since, until=wanted.until)
