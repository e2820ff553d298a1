"""Jobs: submitting, listing, cancelling, and reading what they have written."""

import codecs
import json
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

from pydantic import Field

from trimtab.core import BadInputError, NotFoundError
from trimtab.serve.access import ForbiddenError
from trimtab.serve.operations.operation import (
    After,
    Area,
    BodyModel,
    Limit,
    OnWire,
    ShortText,
    Since,
    Until,
    operation,
)
from trimtab.store import JobRecord, JobState, Page, Role, WantedJobs

if TYPE_CHECKING:
    from trimtab.schedule import Group

LARGEST_PIECE = 1 << 20
"""Bytes of a log that are read at once."""


class JobDocument(BodyModel):
    """A job as a job file writes it: see docs/schedule.md."""

    name: str
    command: str | list[str | int | float]
    tenant: str | None = None
    kind: Literal["training", "inference", "batch"] = "training"
    resources: dict[str, Any] | None = None
    workers: int | str | None = None
    priority: str | None = None
    deadline: str | float | dict[str, Any] | None = None
    checkpoint: dict[str, Any] | None = None
    data: Any = None
    budget: str | float | None = None
    application: str | None = None
    work: float | None = None
    speeds: dict[str, Any] | None = None
    folder: str | None = None
    environment: dict[str, Any] | None = None
    passed: list[str] | None = Field(None, alias="pass")
    retries: int | None = None


class LogText(BodyModel):
    """What a run has written from byte `offset` on, bytes that are no text replaced; see `LogPiece`."""

    run: str
    offset: int
    text: str
    next: int
    over: bool


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Bytes that a run has written from `offset` on; `next` is where to go on, `over` that no more comes.

    `run` tells runs apart: when it is another, its log begins anew.
    """

    run: str
    offset: int
    data: bytes
    next: int
    over: bool


def _log_text(piece: LogPiece) -> dict[str, Any]:
    reader = codecs.getincrementaldecoder("utf-8")("replace")
    text = reader.decode(piece.data, final=piece.over)
    # A character of which only a part has been read is left for the next piece.
    following = piece.next - len(reader.getstate()[0])
    return {"run": piece.run, "offset": piece.offset, "text": text, "next": following, "over": piece.over}


def _log_piece(answer: Any) -> LogPiece:
    return LogPiece(answer["run"], answer["offset"], answer["text"].encode(), answer["next"], answer["over"])


class Jobs(Area, name="jobs"):
    """Jobs of the tenants that may be seen."""

    __slots__ = ()

    @operation("GET", "/v1/jobs", stored=True)
    def page(
        self,
        limit: Limit = 50,
        after: After = None,
        state: Annotated[Sequence[JobState], Field(max_length=8, description="In any of these states.")] = (),
        name: ShortText = None,
        tenant: ShortText = None,
        since: Since = None,
        until: Until = None,
    ) -> Page[JobRecord]:
        """Jobs, newest first."""
        jobs, tenants = self.backend.store.jobs, self.principal.visible_tenants(tenant)
        wanted = WantedJobs(tuple(state), name, since, until, tenants)
        return self.stored(jobs.page, jobs.page_text)(limit, wanted, after)

    @operation("GET", "/v1/jobs/{id}", stored=True, tagged=True)
    def get(self, id: str) -> JobRecord:
        """One job, by its id or a unique start of it."""
        jobs = self.backend.store.jobs
        return self.stored(jobs.get, jobs.text)(id, self.principal.tenants)

    @operation("POST", "/v1/jobs", least=Role.USER)
    def submit(
        self,
        jobs: Annotated[
            Sequence[Mapping[str, Any]], OnWire(list[JobDocument]), Field(min_length=1, max_length=100)
        ],
        tenant: str | None = None,
        dry_run: bool = False,
        *,
        fleet: "Sequence[Group] | None" = None,
    ) -> tuple[JobRecord, ...]:
        """Submit jobs, each as a job file writes it: all of them or none. With `dry_run` only check them.

        They must be possible on `fleet`; without one, on the nodes that the scheduler last saw.
        """
        from trimtab.schedule import hand_in, submissions

        wanted = submissions([self._owned(each, tenant) for each in jobs], "the request")
        if not wanted:
            raise BadInputError("the request has no job; it needs at least a name and a command")
        if any(each.passed for each in wanted) and not self.principal.may(
            self.scope, "write", Role.ADMIN, fleet=True
        ):
            raise ForbiddenError("only an admin of all tenants may pass on variables of the scheduler's own")
        store, clock = self.backend.store, self.backend.clock
        owner, groups = wanted[0].job.workload.tenant, fleet or self.backend.scheduler().groups

        def effect() -> tuple[JobRecord, ...]:
            return hand_in(store, wanted, groups, clock, not dry_run)

        def about(records: tuple[JobRecord, ...]) -> tuple[str, Any]:
            return records[0].id, {record.id: record.name for record in records}

        return effect() if dry_run else self.write("jobs.submit", owner, effect, about)

    @operation("POST", "/v1/jobs/{id}/cancel", least=Role.USER, status=200, condition="optional")
    def cancel(self, id: str, *, check: Callable[[Any], object] | None = None) -> JobRecord:
        """Cancel a job: at once where it waits, by the scheduler where it runs.

        With If-Match, only a job that is still as you saw it.
        """
        from trimtab.schedule import cancel_job

        store, clock = self.backend.store, self.backend.clock
        seen = store.jobs.text(id, self.principal.tenants)
        if check is not None:
            check(seen)
        record = json.loads(seen)
        version = record["version"] if check is not None else None
        return self.write(
            "jobs.cancel",
            record["tenant"],
            lambda: cancel_job(store, record["id"], clock, version),
            lambda after: (after.id, {"state": after.state.value}),
        )

    @operation("GET", "/v1/jobs/{id}/log", slow=True, answer=LogText, show=_log_text, read=_log_piece)
    def log(
        self,
        id: str,
        offset: Annotated[int, Field(ge=0, le=2**53, description="The first byte.")] = 0,
        limit: Annotated[int, Field(ge=1, le=LARGEST_PIECE, description="Bytes, at most.")] = LARGEST_PIECE,
        *,
        engine: str | None = None,
    ) -> LogPiece:
        """What the job's present or last run has written.

        `engine` is the URL of the engine that ran it, for callers at the machine that know better.
        """
        record = self.backend.store.jobs.get(id, self.principal.tenants)
        run = record.run.run_id
        if not run:
            return LogPiece("", 0, b"", 0, record.state.final)
        url = engine or record.run.engine or self.backend.scheduler().engine
        if not url:
            raise BadInputError("which engine the job runs on is not known; say it with --engine local://")
        path = self.backend.engine(url).log(run)
        try:
            with _regular_file(path) as file:
                file.seek(offset)
                data = file.read(min(limit, LARGEST_PIECE))
                end = file.tell()
                size = file.seek(0, 2)
        except FileNotFoundError:
            raise NotFoundError(f"the log of job {record.id} is gone") from None
        except OSError:
            raise NotFoundError(f"the log of job {record.id} is no file that can be read") from None
        return LogPiece(run, offset, data, end, record.state.final and end >= size)

    def _owned(self, document: Mapping[str, Any], tenant: str | None) -> dict[str, Any]:
        """The document with the tenant that the job is to be of."""
        given = document.get("tenant", tenant)
        if not isinstance(given, str | None):
            return dict(document)  # the reader of documents says what is wrong with it
        return {**document, "tenant": self.principal.owner_of_new(given)}


def _regular_file(path: Path) -> BinaryIO:
    """Open a log for reading.

    A job can put a link in its place, which would show what is not its own, or a pipe, which would keep the
    reader waiting; neither is opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is no regular file")
    return os.fdopen(descriptor, "rb")
