"""Jobs: submitting, listing, cancelling, and reading their logs."""

import codecs
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

from pydantic import Field

from trimtab.core import BadInputError, NotFoundError
from trimtab.kernel import open_untrusted
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
from trimtab.store import JobFilter, JobRecord, JobState, Page, Role, StateConflictError

if TYPE_CHECKING:
    from trimtab.schedule import NodeGroup

LARGEST_PIECE = 1 << 20
"""Bytes of a log that are read at once."""


class _JobSchema:
    """Describes a plain document in the API's schema by the model of a job file."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], Any]) -> Any:
        from trimtab.schedule import JobDocument

        return handler(JobDocument.__pydantic_core_schema__)


class LogText(BodyModel):
    """A run's log from byte `offset` on, with invalid bytes replaced; see `LogPiece`."""

    run: str
    offset: int
    text: str
    next: int
    over: bool


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Bytes of a run's log from `offset` on; `next` is where to continue, `over`: the log has ended.

    `offset` is more than was asked for where the log's limit has dropped what was there, and 0 where the log
    has begun anew. `run` tells runs apart: the log of another run begins anew.
    """

    run: str
    offset: int
    data: bytes
    next: int
    over: bool


def _log_text(piece: LogPiece) -> dict[str, Any]:
    reader = codecs.getincrementaldecoder("utf-8")("replace")
    text = reader.decode(piece.data, final=piece.over)
    # A partly read character is left for the next piece.
    following = piece.next - len(reader.getstate()[0])
    return {"run": piece.run, "offset": piece.offset, "text": text, "next": following, "over": piece.over}


def _log_piece(answer: Any) -> LogPiece:
    return LogPiece(answer["run"], answer["offset"], answer["text"].encode(), answer["next"], answer["over"])


class JobOperations(Area, name="jobs"):
    """Jobs of the tenants that may be text."""

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
        criteria = JobFilter(tuple(state), name, since, until, tenants)
        return self.stored(jobs.page, jobs.page_text)(limit, criteria, after)

    @operation("GET", "/v1/jobs/{id}", stored=True, tagged=True)
    def get(self, id: str) -> JobRecord:
        """One job, by its id or a unique start of it."""
        jobs = self.backend.store.jobs
        return self.stored(jobs.get, jobs.text)(id, self.principal.tenants)

    @operation("POST", "/v1/jobs", least=Role.USER)
    def submit(
        self,
        jobs: Annotated[
            Sequence[Mapping[str, Any]],
            OnWire(list[Annotated[dict[str, Any], _JobSchema()]]),
            Field(min_length=1, max_length=100),
        ],
        tenant: str | None = None,
        dry_run: bool = False,
        *,
        fleet: "Sequence[NodeGroup] | None" = None,
    ) -> tuple[JobRecord, ...]:
        """Submit jobs, each as a job file writes it: all of them or none. With `dry_run` only check them.

        They must be possible on `fleet`; without one, on the nodes that the scheduler last saw.
        """
        from trimtab.schedule import submissions, submit_jobs

        submitted = submissions([self._owned(document, tenant) for document in jobs], "the request")
        if not submitted:
            raise BadInputError("the request has no job; it needs at least a name and a command")
        if passed := [name for submission in submitted for name in submission.passed]:
            self._check_passed(passed)
        store, clock = self.backend.store, self.backend.clock
        owner, groups = submitted[0].job.workload.tenant, fleet or self.backend.scheduler().groups

        def effect() -> tuple[JobRecord, ...]:
            return submit_jobs(store, submitted, groups, clock, not dry_run)

        def about(records: tuple[JobRecord, ...]) -> tuple[str, Any]:
            return records[0].id, {record.id: record.name for record in records}

        return effect() if dry_run else self.write("jobs.submit", owner, effect, about)

    @operation("POST", "/v1/jobs/{id}/cancel", least=Role.USER, status=200, condition="optional")
    def cancel(self, id: str, *, check: Callable[[Any], object] | None = None) -> JobRecord:
        """Cancel a job: at once where it waits, by the scheduler where it runs.

        With If-Match, only a job that has not changed since you read it.
        """
        from trimtab.schedule import cancel_job

        store, clock = self.backend.store, self.backend.clock
        text = store.jobs.text(id, self.principal.tenants)
        if check is not None:
            check(text)
        record = json.loads(text)
        version = record["version"] if check is not None else None

        def effect() -> JobRecord:
            try:
                return cancel_job(store, record["id"], clock, version)
            except BadInputError as error:  # it has ended
                raise StateConflictError(str(error)) from None

        return self.write(
            "jobs.cancel",
            record["tenant"],
            effect,
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
        """Log of the job's present or last run.

        `engine` is the URL of the engine that ran it, if it is not the recorded one.
        """
        record = self.backend.store.jobs.get(id, self.principal.tenants)
        run = record.run.run_id
        if not run:
            return LogPiece("", 0, b"", 0, record.state.final)
        url = engine or record.run.engine or self.backend.scheduler().engine
        if not url:
            raise BadInputError(
                "the engine that ran the job is not known; name it with --engine, as in --engine local://"
            )
        path = self.backend.engine(url).log(run)
        try:
            with open_untrusted(path) as file:
                size = file.seek(0, os.SEEK_END)
                start = _first_kept(file, offset) if offset <= size else 0
                file.seek(start)
                data = file.read(min(limit, LARGEST_PIECE))
                end = file.tell()
        except FileNotFoundError:
            raise NotFoundError(f"the log of job {record.id} does not exist any more") from None
        except OSError:
            raise NotFoundError(f"the log of job {record.id} is not a file that can be read") from None
        return LogPiece(run, start, data, end, record.state.final and end >= size)

    def _check_passed(self, names: Sequence[str]) -> None:
        """Refuse variables of the scheduler's environment that a job may not get."""
        if not self.principal.may(self.scope, "write", Role.ADMIN, fleet=True):
            raise ForbiddenError("only an admin of all tenants may pass on the scheduler's own variables")
        passable = self.backend.scheduler().passable
        refused = [name for name in names if passable is not None and name not in passable]
        if refused:
            raise BadInputError(
                f'pass: the scheduler does not pass on "{refused[0]}"; set it where trimtab up is started, '
                "and add it to the setting pass_variables"
            )

    def _owned(self, document: Mapping[str, Any], tenant: str | None) -> dict[str, Any]:
        """The document with the job's tenant filled in."""
        given = document.get("tenant", tenant)
        if not isinstance(given, str | None):
            return dict(document)  # the reader of documents reports the error
        return {**document, "tenant": self.principal.owner_of_new(given)}


def _first_kept(file: BinaryIO, offset: int) -> int:
    """The first position from `offset` on that the log's limit has not dropped, which leaves a hole."""
    try:
        return os.lseek(file.fileno(), offset, os.SEEK_DATA)
    except OSError:  # the end of the file, or a file system without holes
        return offset
