"""Jobs and where they stand. Every change of state is one transaction, with the ledger's entries about it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import bindparam, func, insert, select, update

from trimtab.core import BadInputError, Decision, Outcome, to_plain
from trimtab.store.database import Database
from trimtab.store.job_record import ACTIVE, JobRecord, JobRun, JobState, OutdatedError, Outlook
from trimtab.store.records import Records, from_kept, is_storable, require_storable, row_limit
from trimtab.store.tables import decisions, jobs, outcomes


class Jobs(Records[JobRecord]):
    """All jobs that were ever submitted, under their ids."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, jobs, JobRecord, "job")

    def submit(self, records: Sequence[JobRecord]) -> None:
        """Keep new jobs: all of them, or none."""
        rows = [_row(record) for record in records]
        for row in rows:
            for name in ("id", "name", "tenant", "application"):
                require_storable(row[name], f"the job's {name}")
            if not row["id"]:
                raise BadInputError("the job has an empty id; give it one")
        if rows:
            with self._database.writing() as connection:
                connection.execute(insert(jobs), rows)

    def active(self) -> tuple[JobRecord, ...]:
        """Those that are still to be done, in order of submission."""
        return self._listed(jobs.c.state.in_(ACTIVE))

    def ended(self, limit: int = 1000) -> tuple[JobRecord, ...]:
        """The newest that were done to their end."""
        return self.newest(limit, jobs.c.state == JobState.ENDED)

    def list(
        self, limit: int = 100, tenant: str | None = None, states: Sequence[JobState] = ()
    ) -> tuple[JobRecord, ...]:
        """At most `limit` jobs, newest first, of one tenant or in certain states where given."""
        if not is_storable(tenant):
            return ()
        wanted = [jobs.c.tenant == tenant] if tenant is not None else []
        wanted += [jobs.c.state.in_(states)] if states else []
        return self.newest(row_limit(limit), *wanted)

    def pulse(self) -> tuple[int, int]:
        """Two numbers that change when somebody submits a job, or asks for the end of one that runs."""
        submitted = select(func.coalesce(func.max(jobs.c.sequence), 0))
        stopping = select(func.count()).where(jobs.c.state == JobState.STOPPING)
        with self._database.reading() as connection:
            return connection.execute(submitted).scalar_one(), connection.execute(stopping).scalar_one()

    def change(
        self,
        record: JobRecord,
        state: JobState,
        run: JobRun | None = None,
        decision: Decision | None = None,
        outcome: Outcome | None = None,
    ) -> JobRecord:
        """Put a job into a state, with what was decided and what came of it; the job as it is now.

        Raises OutdatedError, and changes nothing, where it is no longer as `record` has it.
        """
        after = replace(
            record, state=state, run=run or record.run, version=record.version + 1, outlook=Outlook()
        )
        same = (jobs.c.id == record.id, jobs.c.version == record.version)
        with self._database.writing() as connection:
            changed = connection.execute(update(jobs).where(*same).values(_row(after)))
            if changed.rowcount != 1:
                raise OutdatedError(f"job {record.id} was changed by somebody else; read it again")
            if decision is not None:
                columns = {name: getattr(decision, name) for name in ("id", "created", "kind", "subject")}
                connection.execute(insert(decisions).values(body=to_plain(decision), **columns))
            if outcome is not None:
                connection.execute(
                    insert(outcomes).values(
                        decision_id=outcome.decision_id, recorded=outcome.recorded, body=to_plain(outcome)
                    )
                )
        return after

    def note(self, done: Mapping[str, float], outlooks: Mapping[str, Outlook]) -> None:
        """How far jobs have come and what is in store for them, by id; leaves their versions alone."""
        this = jobs.c.id == bindparam("this")
        with self._database.writing() as connection:
            if done:
                rows: list[dict[str, Any]] = [{"this": id, "done": value} for id, value in done.items()]
                connection.execute(update(jobs).where(this), rows)
            if outlooks:
                rows = [{"this": id, "outlook": to_plain(value)} for id, value in outlooks.items()]
                connection.execute(update(jobs).where(this), rows)

    def _listed(self, *conditions: Any) -> tuple[JobRecord, ...]:
        order = (jobs.c.created, jobs.c.sequence)
        return tuple(
            self._record(row) for row in self._rows(select(jobs).where(*conditions).order_by(*order))
        )

    def _record(self, row: Any) -> JobRecord:
        where = f"job {row.id} in {self._database.name}"
        return JobRecord(
            id=row.id,
            created=row.created,
            name=row.name,
            tenant=row.tenant,
            application=row.application,
            state=JobState(row.state),
            spec=row.body,
            version=row.version,
            run=from_kept(JobRun, row.run, where),
            done=row.done,
            outlook=from_kept(Outlook, row.outlook, where),
        )


def _row(record: JobRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "created": record.created,
        "name": record.name,
        "tenant": record.tenant,
        "application": record.application,
        "state": record.state.value,
        "version": record.version,
        "done": record.done,
        "body": to_plain(record.spec),
        "run": to_plain(record.run),
        "outlook": to_plain(record.outlook),
    }
