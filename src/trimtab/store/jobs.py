"""Jobs and their states. Each change of state is one transaction, together with its ledger entries."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, Text, bindparam, cast, func, select, update

from trimtab.core import BadInputError, Decision, Outcome, to_plain
from trimtab.store import json_text
from trimtab.store.database import Database
from trimtab.store.entities import (
    ACTIVE,
    JobRecord,
    JobRun,
    JobState,
    OutdatedError,
    Outlook,
    Page,
    WantedJobs,
)
from trimtab.store.json_text import number, string
from trimtab.store.ledger import add_decision, add_outcome
from trimtab.store.records import Records, RowFilter, from_kept, require_storable, seen_by
from trimtab.store.tables import jobs

_ALL = 2**31 - 1
_NOTED_AT_ONCE = 25


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
            self._database.write(lambda connection: [self._database.add(jobs, row) for row in rows])

    def active(self) -> tuple[JobRecord, ...]:
        """Jobs in an active state, in order of submission."""
        active = RowFilter({"state": tuple(state.value for state in ACTIVE)})
        return tuple(self._record(row) for row in self._by_time.rows(active, _ALL, newest_first=False))

    def ended(self, limit: int = 1000) -> tuple[JobRecord, ...]:
        """The newest that were done to their end."""
        return self.page(limit, WantedJobs((JobState.ENDED,))).items

    def list(
        self, limit: int = 100, tenant: str | None = None, states: Sequence[JobState] = ()
    ) -> tuple[JobRecord, ...]:
        """At most `limit` jobs, newest first, of one tenant or in certain states where given."""
        return self.page(limit, WantedJobs(states, tenants=None if tenant is None else (tenant,))).items

    def page(
        self, limit: int = 100, wanted: WantedJobs | None = None, after: str | None = None
    ) -> Page[JobRecord]:
        """A page of at most `limit` jobs, newest first, from where the page before said `next`."""
        return self.records(_job_filter(wanted), limit, after)

    def page_text(
        self, limit: int = 100, wanted: WantedJobs | None = None, after: str | None = None
    ) -> Page[str]:
        """A page of jobs as JSON texts."""
        return self.texts(_job_filter(wanted), limit, after)

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
        row = _row(after)

        def effect(connection: Connection) -> None:
            if not self._database.change(jobs, row, {"id": record.id, "version": record.version}):
                raise OutdatedError(f"job {record.id} was changed by somebody else; read it again")
            if decision is not None:
                add_decision(self._database, decision, record.tenant)
            if outcome is not None:
                add_outcome(self._database, outcome)

        self._database.write(effect)
        return after

    def note(self, done: Mapping[str, float], outlooks: Mapping[str, Outlook]) -> None:
        """How far jobs have come and what is in store for them, by id; leaves their versions alone.

        A few at a time: nothing else is written meanwhile.
        """
        this = update(jobs).where(jobs.c.id == bindparam("this"))
        rows: list[dict[str, Any]] = [{"this": id, "done": value} for id, value in done.items()]
        expected = [{"this": id, "outlook": to_plain(value)} for id, value in outlooks.items()]
        for all_of_them in (rows, expected):
            for start in range(0, len(all_of_them), _NOTED_AT_ONCE):
                with self._database.writing() as connection:
                    connection.execute(this, all_of_them[start : start + _NOTED_AT_ONCE])

    @staticmethod
    def _shown(table: Table) -> Sequence[ColumnElement[Any]]:
        c = table.c
        plain = [c.id, c.tenant, c.created, c.sequence, c.name, c.application, c.state, c.version, c.done]
        return [*plain, cast(c.body, Text), cast(c.run, Text), cast(c.outlook, Text)]

    def _record(self, row: tuple[Any, ...]) -> JobRecord:
        id, tenant, created, _, name, application, state, version, done, spec, run, outlook, *_ = row
        where = f"job {id} in {self._database.name}"
        return JobRecord(
            id=id,
            created=created,
            name=name,
            tenant=tenant,
            application=application,
            state=JobState(state),
            spec=json_text.loads(spec),
            version=version,
            run=from_kept(JobRun, json_text.loads(run), where),
            done=done,
            outlook=from_kept(Outlook, json_text.loads(outlook), where),
        )

    def _text(self, row: tuple[Any, ...]) -> str:
        id, tenant, created, _, name, application, state, version, done, spec, run, outlook, *_ = row
        return (
            f'{{"id": {string(id)}, "created": {number(created)}, "name": {string(name)}, '
            f'"tenant": {string(tenant)}, "application": {string(application)}, "state": {string(state)}, '
            f'"version": {version}, "done": {number(done)}, '
            f'"spec": {spec}, "run": {run}, "outlook": {outlook}}}'
        )


def _job_filter(wanted: WantedJobs | None) -> RowFilter:
    wanted = wanted or WantedJobs()
    equal: dict[str, Sequence[str]] = {**seen_by(wanted.tenants)}
    if wanted.states:
        equal["state"] = tuple(dict.fromkeys(state.value for state in wanted.states))
    if wanted.name is not None:
        equal["name"] = (wanted.name,)
    return RowFilter(equal, since=wanted.since, until=wanted.until)


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
