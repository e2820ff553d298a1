"""Decisions and what became of them. Rows are added, never changed: the database itself refuses."""

from sqlalchemy import insert, select

from trimtab.core import Decision, Outcome, to_plain
from trimtab.store.database import Database
from trimtab.store.faults import ConflictError
from trimtab.store.records import Records, from_kept, is_storable
from trimtab.store.tables import decisions, outcomes


class Ledger:
    """Who decided what for whom, and how it turned out."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._decisions = Records(database, decisions, Decision, "decision")

    def record(self, decision: Decision) -> None:
        """Keep a decision; recording the same one again does nothing."""
        columns = {"created": decision.created, "kind": decision.kind, "subject": decision.subject}
        self._decisions.add(decision.id, decision, columns)

    def get(self, id: str) -> Decision:
        """The decision whose id is, or alone starts with, `id`."""
        return self._decisions.get(id)

    def list(
        self, limit: int = 20, kind: str | None = None, subject: str | None = None
    ) -> tuple[Decision, ...]:
        """At most `limit` decisions, newest first, of one kind or about one subject where given."""
        wanted = [(decisions.c.kind, kind), (decisions.c.subject, subject)]
        if not all(is_storable(value) for _, value in wanted):
            return ()
        return self._decisions.newest(limit, *(c == value for c, value in wanted if value is not None))

    def record_outcome(self, outcome: Outcome) -> None:
        """Keep what happened after a decision; a decision may have several outcomes."""
        row = {"decision_id": outcome.decision_id, "recorded": outcome.recorded, "body": to_plain(outcome)}
        if not is_storable(outcome.decision_id):
            raise self._decisions.missing(outcome.decision_id)
        try:
            with self._database.writing() as connection:
                connection.execute(insert(outcomes).values(row))
        except ConflictError:
            raise self._decisions.missing(outcome.decision_id) from None

    def outcomes(self, decision_id: str) -> tuple[Outcome, ...]:
        """What happened after the decision whose id is, or alone starts with, `decision_id`; oldest first."""
        decision = self.get(decision_id)
        query = (
            select(outcomes.c.body).where(outcomes.c.decision_id == decision.id).order_by(outcomes.c.sequence)
        )
        with self._database.reading() as connection:
            bodies = connection.execute(query).scalars().all()
        where = f"an outcome of decision {decision.id} in {self._database.name}"
        return tuple(from_kept(Outcome, body, where) for body in bodies)
