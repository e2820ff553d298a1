"""Jobs: handed in, looked at, ended, and what they have written."""

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from trimtab.core import BadInputError, NotFoundError
from trimtab.serve.errors import ForbiddenError
from trimtab.serve.operations.desk import Area
from trimtab.store import JobRecord, Page, Role, WantedJobs

if TYPE_CHECKING:
    from trimtab.schedule import Group

AREA = "jobs"
LARGEST_PIECE = 1 << 20
"""Bytes of a log that are read at once."""


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Bytes of what a run has written, from `offset` on; `next` is where to go on, `over` that no more comes.

    `run` tells runs apart: when it is another, its log begins anew.
    """

    run: str
    offset: int
    data: bytes
    next: int
    over: bool


class Jobs(Area):
    """Jobs of the tenants that may be seen."""

    __slots__ = ()

    def page(
        self, limit: int = 50, wanted: WantedJobs | None = None, after: str | None = None
    ) -> Page[JobRecord]:
        """Newest first."""
        self.principal.require(AREA)
        return self.desk.store.jobs.page(limit, self.allowed(wanted or WantedJobs()), after)

    def page_text(
        self, limit: int = 50, wanted: WantedJobs | None = None, after: str | None = None
    ) -> Page[str]:
        """The same as JSON."""
        self.principal.require(AREA)
        return self.desk.store.jobs.page_text(limit, self.allowed(wanted or WantedJobs()), after)

    def get(self, id: str) -> JobRecord:
        """The one whose id is, or alone starts with, `id`."""
        self.principal.require(AREA)
        return self.desk.store.jobs.get(id, self.principal.tenants)

    def text(self, id: str) -> str:
        """The same as JSON."""
        self.principal.require(AREA)
        return self.desk.store.jobs.text(id, self.principal.tenants)

    def submit(
        self,
        documents: Sequence[Mapping[str, Any]],
        tenant: str | None = None,
        keep: bool = True,
        fleet: "Sequence[Group] | None" = None,
    ) -> tuple[JobRecord, ...]:
        """Hand in jobs, each as a job file writes it: all of them or none. `keep` False only checks.

        They must be possible on `fleet`; without one, on the nodes that the scheduler last saw.
        """
        from trimtab.schedule import hand_in, submissions

        self.principal.require(AREA, "write", Role.USER)
        wanted = submissions([self._owned(each, tenant) for each in documents], "the request")
        if not wanted:
            raise BadInputError("the request has no job; it needs at least a name and a command")
        if any(each.passed for each in wanted) and not self.principal.may(
            AREA, "write", Role.ADMIN, fleet=True
        ):
            raise ForbiddenError("only an admin of all tenants may pass on variables of the scheduler's own")
        store, clock = self.desk.store, self.desk.clock
        owner, groups = wanted[0].job.workload.tenant, fleet or self.desk.scheduler().groups

        def effect() -> tuple[JobRecord, ...]:
            return hand_in(store, wanted, groups, clock, keep)

        def about(records: tuple[JobRecord, ...]) -> tuple[str, Any]:
            return records[0].id, {record.id: record.name for record in records}

        return self.written("jobs.submit", owner, effect, about) if keep else effect()

    def cancel(self, id: str, version: int | None = None) -> JobRecord:
        """Ask for a job's end: at once where it waits, by the scheduler where it runs.

        With a `version`, only of a job that is still of it.
        """
        from trimtab.schedule import cancel_job

        self.principal.require(AREA, "write", Role.USER)
        record = self.desk.store.jobs.get(id, self.principal.tenants)
        store, clock = self.desk.store, self.desk.clock
        return self.written(
            "jobs.cancel",
            record.tenant,
            lambda: cancel_job(store, record.id, clock, version),
            lambda after: (after.id, {"state": after.state.value}),
        )

    def log(self, id: str, offset: int = 0, most: int = LARGEST_PIECE, engine: str | None = None) -> LogPiece:
        """What the job's present or last run has written, from `offset` (bytes) on.

        `engine` is where it ran, for who is at the machine and knows better.
        """
        record = self.get(id)
        run = record.run.run_id
        if not run:
            return LogPiece("", 0, b"", 0, record.state.final)
        url = engine or record.run.engine or self.desk.scheduler().engine
        if not url:
            raise BadInputError("which engine the job runs on is not known; say it with --engine local://")
        path = self.desk.engine(url).log(run)
        try:
            with _plain_file(path) as file:
                file.seek(offset)
                data = file.read(min(most, LARGEST_PIECE))
                end = file.tell()
                size = file.seek(0, 2)
        except FileNotFoundError:
            raise NotFoundError(f"the log of job {record.id} is gone") from None
        except OSError:
            raise NotFoundError(f"the log of job {record.id} is no file that can be read") from None
        return LogPiece(run, offset, data, end, record.state.final and end >= size)

    def _owned(self, document: Mapping[str, Any], tenant: str | None) -> dict[str, Any]:
        """As the job's file, with the tenant that it is to be of."""
        told = document.get("tenant", tenant)
        if not isinstance(told, str | None):
            return dict(document)  # what is wrong with it is said where documents are read
        return {**document, "tenant": self.principal.tenant_for(told)}


def _plain_file(path: Path) -> BinaryIO:
    """A log to read.

    A job can put a link in its place, which would show what is not its own, or a pipe, which would keep who
    reads it waiting; neither is opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is no plain file")
    return os.fdopen(descriptor, "rb")
