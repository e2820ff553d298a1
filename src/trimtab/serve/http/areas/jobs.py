"""/v1/jobs: what runs, waits and has ended; handing in, ending, and logs."""

import codecs
import json
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field

from trimtab.core import to_plain
from trimtab.serve.conditions import require_match
from trimtab.serve.http.answer import Answer, json_answer, page_answer, tag, text_answer
from trimtab.serve.http.query import Asked
from trimtab.serve.http.route import Effect, slow
from trimtab.serve.http.router import Caller, PageAsked, PageOf, Router, Told
from trimtab.serve.operations import LARGEST_PIECE
from trimtab.store import JobRecord, JobState, WantedJobs

router = Router("jobs")


class JobsAsked(PageAsked):
    """Which jobs."""

    state: list[JobState] = Field([], description="In any of these states.", max_length=8)
    name: str | None = Field(None, max_length=100)
    tenant: str | None = Field(None, max_length=100)
    since: float | None = Field(None, description="Submitted at or after, in seconds since 1970.")
    until: float | None = Field(None, description="Submitted before, in seconds since 1970.")


class JobDocument(Told):
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


class Submitted(Told):
    """Jobs to hand in, all of them or none; with `dry_run` they are only checked."""

    jobs: list[JobDocument] = Field(min_length=1, max_length=100)
    tenant: str | None = None
    dry_run: bool = False


class JobList(Told):
    """Jobs as they are now."""

    items: list[JobRecord]


class LogAsked(Asked):
    """From which byte on, and how many at most."""

    offset: int = Field(0, ge=0, le=2**53)
    limit: int = Field(LARGEST_PIECE, ge=1, le=LARGEST_PIECE)


class LogText(Told):
    """What a run has written from `offset` on, bytes that are no text replaced; see `LogPiece`."""

    run: str
    offset: int
    text: str
    next: int
    over: bool


@router.reads("/jobs", PageOf[JobRecord])
def list_jobs(call: Caller, query: Annotated[JobsAsked, Query()]) -> Answer:
    """Jobs, newest first."""
    tenants = None if query.tenant is None else (query.tenant,)
    wanted = WantedJobs(query.state, query.name, query.since, query.until, tenants)
    return page_answer(call.scope, call.service.jobs.page_text(query.limit, wanted, query.after))


@router.makes("/jobs", JobList)
def submit_jobs(call: Caller, body: Submitted) -> Effect:
    """Hand in jobs."""
    documents = [each.model_dump(exclude_unset=True, by_alias=True) for each in body.jobs]
    jobs, status = call.service.jobs, 200 if body.dry_run else 201
    return lambda: json_answer(
        {"items": to_plain(jobs.submit(documents, body.tenant, keep=not body.dry_run))}, status
    )


@router.reads("/jobs/{id}", JobRecord, tagged=True)
def get_job(call: Caller, id: str) -> Answer:
    """One job, by its id or the start of it."""
    return text_answer(call.service.jobs.text(id))


@router.makes("/jobs/{id}/cancel", JobRecord, status=200, conditional=True)
def cancel_job(call: Caller, id: str) -> Effect:
    """Ask for a job's end; with If-Match, only of a job that is still as you saw it."""
    jobs, condition = call.service.jobs, call.header(b"if-match")

    def effect() -> Answer:
        if condition is None:
            return json_answer(jobs.cancel(id))
        seen = jobs.text(id)
        require_match(condition, tag(seen.encode()))
        return json_answer(jobs.cancel(id, json.loads(seen)["version"]))

    return effect


@router.reads("/jobs/{id}/log", LogText)
@slow
def get_log(call: Caller, id: str, query: Annotated[LogAsked, Query()]) -> Answer:
    """What the job's present or last run has written."""
    piece = call.service.jobs.log(id, query.offset, query.limit)
    reader = codecs.getincrementaldecoder("utf-8")("replace")
    text = reader.decode(piece.data, final=piece.over)
    # A character of which only a part has been read is left for the next piece.
    following = piece.next - len(reader.getstate()[0])
    told = {"run": piece.run, "offset": piece.offset, "text": text}
    return json_answer({**told, "next": following, "over": piece.over})
