"""Requests to the scheduler through the store: submit jobs, cancel a job, ask whether a scheduler runs."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trimtab.core import BadInputError, Clock, from_plain
from trimtab.schedule.cluster import NodeGroup, refuse_impossible
from trimtab.schedule.job import Submission
from trimtab.schedule.quota import Quotas, refuse_above_limit
from trimtab.store import JobRecord, JobRun, JobState, OutdatedError, Store

NOTE = "scheduler"
"""The name of the scheduler's note about itself in the store."""


def append_event(store: Store, record: JobRecord, now: float) -> None:
    """Append the event of a job's new state, in the transaction that wrote the state."""
    detail = {"name": record.name, "state": record.state.value, "why": record.run.reason}
    store.events.append(f"job.{record.state.value}", record.id, detail, now, record.tenant)


_SILENCE = 60.0  # s without a round after which a scheduler counts as gone
_TRIES = 20


@dataclass(frozen=True, slots=True)
class SchedulerStatus:
    """The scheduler's last note about itself; `there` if it is recent.

    `passable` are the variables that jobs may name in `pass`; None where the scheduler did not say.
    """

    engine: str = ""
    policy: str = ""
    groups: tuple[NodeGroup, ...] = ()
    there: bool = False
    passable: tuple[str, ...] | None = None


def running_scheduler(store: Store, clock: Clock) -> SchedulerStatus:
    """The scheduler of this store, by its last note."""
    note = store.notes.get(NOTE)
    if note is None:
        return SchedulerStatus()
    groups = tuple(
        from_plain(NodeGroup, item, "the scheduler's group") for item in note.body.get("groups", ())
    )
    engine, policy = (str(note.body.get(name, "")) for name in ("engine", "policy"))
    names = note.body.get("passable")
    passable = None if names is None else tuple(map(str, names))
    return SchedulerStatus(engine, policy, groups, clock.now() - note.time < _SILENCE, passable)


def submit_jobs(
    store: Store,
    submissions: Sequence[Submission],
    groups: Sequence[NodeGroup],
    clock: Clock,
    keep: bool = True,
) -> tuple[JobRecord, ...]:
    """Submit jobs: all, or none where one is impossible on these groups or within its tenant's limit.

    `keep` False only checks.
    """
    if groups:
        for submission in submissions:
            refuse_impossible(submission.job, groups)
    if any(submission.job.worker.gpus for submission in submissions):
        quotas = Quotas(store.tenants.list())
        for submission in submissions:
            refuse_above_limit(submission.job, quotas)
    now = clock.now()
    records = tuple(item.named(secrets.token_hex(4), now).record() for item in submissions)

    def effect() -> None:
        store.jobs.submit(records)
        for record in records:
            append_event(store, record, now)

    if keep:
        store.write(effect)
    return records


def cancel_job(store: Store, id: str, clock: Clock, version: int | None = None) -> JobRecord:
    """Cancel a job: at once where it waits, by the scheduler where it runs; returns the changed record.

    OutdatedError if a `version` is given and the record has another.
    """
    for _ in range(_TRIES):
        record = store.jobs.get(id)
        if version not in (None, record.version):
            raise OutdatedError(f"job {record.id} has been changed; read it again")
        if record.state.final:
            raise BadInputError(
                f"job {record.id} ({record.name}) cannot be cancelled: it is already {record.state.value}"
            )
        try:
            state, run = JobState.STOPPING, replace(record.run, then=JobState.CANCELLED, reason="cancelled")
            if record.state is JobState.WAITING:
                state = JobState.CANCELLED
                run = replace(record.run, ended=clock.now(), reason="cancelled before it was started")

            def effect(record: JobRecord = record, state: JobState = state, run: JobRun = run) -> JobRecord:
                after = store.jobs.change(record, state, run)
                append_event(store, after, clock.now())
                return after

            return store.write(effect)
        except OutdatedError:
            continue
    raise OutdatedError(f"job {id} keeps changing; try again")
