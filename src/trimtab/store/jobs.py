"""Jobs and their states. Each change of state is one transaction, together with its ledger entries."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    Text,
    bindparam,
    cast,
    func,
    or_,
    select,
    update,
)

from trimtab.core import BadInputError, Decision, Outcome, to_plain
from trimtab.store.database import (
    Database,
    decode_json,
    encode_json,
    json_number,
    json_string,
    require_storable,
)
from trimtab.store.entities import ACTIVE, JobFilter, JobRecord, JobRun, JobState, OutdatedError, Outlook
from trimtab.store.ledger import add_decision, add_outcome
from trimtab.store.records import Records, Row, RowFilter, from_kept, row_filter
from trimtab.store.tables import jobs

_ALL = 2**31 - 1
# Most jobs of a long queue have not run: their runs need not be decoded one by one.
_NEW_RUN = JobRun()
_NEW_RUN_TEXT = encode_json(to_plain(_NEW_RUN))
_NOTED_AT_ONCE = 25


class Jobs(Records[JobRecord, JobFilter]):
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
            self._database.write(lambda connection: [self._database.add(jobs, row) for row in rows])

    def active(self) -> tuple[JobRecord, ...]:
        """Jobs in an active state, in order of submission."""
        active = RowFilter({"state": tuple(state.value for state in ACTIVE)})
        return tuple(self._record(row) for row in self._by_time.rows(active, _ALL, newest_first=False))

    def active_versions(self) -> dict[str, int]:
        """Versions of jobs in an active state by id, in order of submission; far cheaper than `active`."""
        c = jobs.c

        def build() -> Select[Any]:
            active = or_(*(c.state == state.value for state in ACTIVE))
            return select(c.id, c.version).where(active).order_by(c.created, c.sequence)

        return dict(self._database.fetch("active versions", build, {}))

    def ended(self, limit: int = 1000) -> tuple[JobRecord, ...]:
        """The newest jobs that ran to their end."""
        return self.page(limit, JobFilter((JobState.ENDED,))).items

    def list(
        self, limit: int = 100, tenant: str | None = None, states: Sequence[JobState] = ()
    ) -> tuple[JobRecord, ...]:
        """At most `limit` jobs, newest first, of one tenant or in certain states if given."""
        return self.page(limit, JobFilter(states, tenants=None if tenant is None else (tenant,))).items

    def pulse(self) -> tuple[int, int]:
        """Two numbers that change when a job is submitted, or a running one is to be stopped."""
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
        """Put a job into a state, together with a decision and an outcome; returns the job as it is now.

        Raises OutdatedError, and changes nothing, if it was changed since `record` was read.
        """
        after = replace(
            record, state=state, run=run or record.run, version=record.version + 1, outlook=Outlook()
        )
        row = _row(after)

        def effect(connection: Connection) -> None:
            if not self._database.change(jobs, row, {"id": record.id, "version": record.version}):
                raise OutdatedError(f"job {record.id} was changed since it was read; read it again")
            if decision is not None:
                add_decision(self._database, decision, record.tenant)
            if outcome is not None:
                add_outcome(self._database, outcome)

        self._database.write(effect)
        return after

    def note(self, done: Mapping[str, float], outlooks: Mapping[str, Outlook]) -> None:
        """Write jobs' progress and expected starts, by id; leaves their versions alone.

        A few at a time: nothing else is written meanwhile.
        """
        statement = update(jobs).where(jobs.c.id == bindparam("job"))
        progress = [{"job": id, "done": value} for id, value in done.items()]
        expected = [{"job": id, "outlook": to_plain(value)} for id, value in outlooks.items()]
        for rows in (progress, expected):
            for start in range(0, len(rows), _NOTED_AT_ONCE):
                with self._database.writing() as connection:
                    connection.execute(statement, rows[start : start + _NOTED_AT_ONCE])

    def _conditions(self, criteria: JobFilter | None) -> RowFilter:
        criteria = criteria or JobFilter()
        states = tuple(dict.fromkeys(state.value for state in criteria.states))
        return row_filter(
            criteria.tenants,
            since=criteria.since,
            until=criteria.until,
            state=states or None,
            name=None if criteria.name is None else (criteria.name,),
        )

    @staticmethod
    def _shown(table: Table) -> Sequence[ColumnElement[Any]]:
        c = table.c
        plain = [c.id, c.tenant, c.created, c.sequence, c.name, c.application, c.state, c.version, c.done]
        return [*plain, cast(c.body, Text), cast(c.run, Text), cast(c.outlook, Text)]

    def _record(self, row: Row) -> JobRecord:
        id, tenant, created, _, name, application, state, version, done, spec, run, outlook, *_ = row
        where = f"job {id} in {self._database.name}"
        return JobRecord(
            id=id,
            created=created,
            name=name,
            tenant=tenant,
            application=application,
            state=JobState(state),
            spec=decode_json(spec),
            version=version,
            run=_NEW_RUN if run == _NEW_RUN_TEXT else from_kept(JobRun, decode_json(run), where),
            done=done,
            outlook=from_kept(Outlook, decode_json(outlook), where),
        )

    def _text(self, row: Row) -> str:
        id, tenant, created, _, name, application, state, version, done, spec, run, outlook, *_ = row
        return (
            f'{{"id": {json_string(id)}, "created": {json_number(created)}, "name": {json_string(name)}, '
            f'"tenant": {json_string(tenant)}, "application": {json_string(application)}, '
            f'"state": {json_string(state)}, "version": {version}, "done": {json_number(done)}, '
            f'"spec": {spec}, "run": {run}, "outlook": {outlook}}}'
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
