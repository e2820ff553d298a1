"""Requests to the scheduler through the store: submit jobs, cancel a job, ask whether a scheduler runs."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trimtab.core import BadInputError, Clock, from_plain
from trimtab.schedule.cluster import Group, refuse_impossible
from trimtab.schedule.job import Submission
from trimtab.store import JobRecord, JobRun, JobState, OutdatedError, Store

NOTE = "scheduler"
"""Under which name the store knows what the scheduler last said about itself."""


def append_event(store: Store, record: JobRecord, now: float) -> None:
    """That a job is in its state now; within the write that put it there, both are kept or none."""
    detail = {"name": record.name, "state": record.state.value, "why": record.run.reason}
    store.events.append(f"job.{record.state.value}", record.id, detail, now, record.tenant)


_SILENCE = 60.0  # s without a round after which a scheduler counts as gone
_TRIES = 20


@dataclass(frozen=True, slots=True)
class SchedulerStatus:
    """The scheduler's last note about itself; `there` is whether it wrote that recently."""

    engine: str = ""
    policy: str = ""
    groups: tuple[Group, ...] = ()
    there: bool = False


def running_scheduler(store: Store, clock: Clock) -> SchedulerStatus:
    """The scheduler of this store, as far as anybody knows."""
    note = store.notes.get(NOTE)
    if note is None:
        return SchedulerStatus()
    groups = tuple(from_plain(Group, each, "the scheduler's group") for each in note.body.get("groups", ()))
    engine, policy = (str(note.body.get(name, "")) for name in ("engine", "policy"))
    return SchedulerStatus(engine, policy, groups, clock.now() - note.time < _SILENCE)


def hand_in(
    store: Store, submissions: Sequence[Submission], groups: Sequence[Group], clock: Clock, keep: bool = True
) -> tuple[JobRecord, ...]:
    """Submit jobs: all, or none where one is impossible on these groups. `keep` False only checks."""
    if groups:
        for submission in submissions:
            refuse_impossible(submission.job, groups)
    now = clock.now()
    records = tuple(each.named(secrets.token_hex(4), now).record() for each in submissions)

    def effect() -> None:
        store.jobs.submit(records)
        for record in records:
            append_event(store, record, now)

    if keep:
        store.write(effect)
    return records


def cancel_job(store: Store, id: str, clock: Clock, version: int | None = None) -> JobRecord:
    """Ask for a job's end: at once where it waits, by the scheduler where it runs; the job as it is then.

    With a `version`, only of a job that is still of it; else OutdatedError.
    """
    for _ in range(_TRIES):
        record = store.jobs.get(id)
        if version not in (None, record.version):
            raise OutdatedError(f"job {record.id} was changed by somebody else; read it again")
        if record.state.final:
            raise BadInputError(f"job {record.id} ({record.name}) is over already: {record.state.value}")
        try:
            if record.state is JobState.WAITING:
                run = replace(record.run, ended=clock.now(), reason="cancelled before it was started")
                return _changed(store, record, JobState.CANCELLED, run, clock)
            run = replace(record.run, then=JobState.CANCELLED, reason="cancelled")
            return _changed(store, record, JobState.STOPPING, run, clock)
        except OutdatedError:
            continue
    raise OutdatedError(f"job {id} changes all the time; try again")


def _changed(store: Store, record: JobRecord, state: JobState, run: JobRun, clock: Clock) -> JobRecord:
    def effect() -> JobRecord:
        after = store.jobs.change(record, state, run)
        append_event(store, after, clock.now())
        return after

    return store.write(effect)
