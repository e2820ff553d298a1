"""The job journal: every change of a job's state is one transaction with its entries in the ledger."""

import contextlib
import logging
import math
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from trimtab.core import Answer, BadInputError, Clock, Decision, Estimate, Outcome, RealClock, Scalar, home
from trimtab.schedule.cluster import Group
from trimtab.schedule.job import Submission, speeds_of, submission_of
from trimtab.schedule.loop.requests import append_event
from trimtab.schedule.loop.view import Fleet, JobHistory, RoundView, closed, done, price_of, read_progress
from trimtab.store import JobRecord, JobRun, JobState, Part, Store


def decision(
    record: JobRecord,
    policy: str,
    action: dict[str, Scalar],
    reason: str,
    now: float,
    estimates: dict[str, Estimate] | None = None,
) -> Decision:
    """Something a policy did to a job."""
    answer = Answer(f"rule:{policy}", action, estimates or {})
    return Decision(
        id=uuid.uuid4().hex[:12],
        created=now,
        kind="schedule",
        subject=f"{record.name} ({record.id})",
        action=answer.action,
        estimates=answer.estimates,
        chosen_by=answer.who,
        rule=answer,
        model=None,
        alternatives=(),
        reason=reason,
    )


def expected(view: RoundView, row: int, shape: int) -> dict[str, Estimate]:
    """How long a job is believed to run in a shape from now on, and what that costs; nothing if unknown."""
    jobs = view.jobs
    chosen = view.cluster.shapes[shape]
    speed = float(jobs.speed[row, shape])
    left = np.array([jobs.remaining[row], jobs.remaining_low[row], jobs.remaining_high[row]])
    if not speed or np.isnan(left).any():
        return {}
    value, low, high = (float(each) for each in left / speed)
    time = Estimate(value, low, high, 0.8 if high > low else 1.0, "s")
    price = float(view.cluster.gpu_price[chosen.group]) * chosen.workers * (float(jobs.gpus[row]) or 1.0)
    return {"time": time, "cost": time.scaled(price, "$")} if price else {"time": time}


def outcome(record: JobRecord, ended: float, price: float, note: str) -> Outcome | None:
    """Outcome of the decision that started the present run; None if no run had started."""
    run = record.run
    if not run.decision or run.since is None:
        return None
    seconds = max(0.0, ended - run.since)
    measured = {"time": seconds, "cost": seconds * price} if price else {"time": seconds}
    return Outcome(run.decision, ended, measured, note)


def finite(value: float) -> float | None:
    """None for what is not known or never comes."""
    return value if math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class JobFolder:
    """Files of one job under `$TRIMTAB_HOME/jobs/ID`, which every node must see under the same path."""

    folder: Path

    @staticmethod
    def of(id: str) -> "JobFolder":
        """The folder of the job with this id."""
        return JobFolder(home().absolute() / "jobs" / id)

    @property
    def checkpoint(self) -> Path:
        """A folder that is the job's own: what it saves is there when it starts again."""
        return self.folder / "checkpoint"

    @property
    def progress(self) -> Path:
        """Where it may write how many units of work it has done, as a number."""
        return self.folder / "progress"

    @property
    def saved(self) -> Path:
        """File that the job touches when it has saved."""
        return self.folder / "saved"

    def make(self) -> None:
        """Make the folders; for their owner's eyes only."""
        self.checkpoint.mkdir(parents=True, exist_ok=True, mode=0o700)

    def variables(self) -> dict[str, str]:
        """Environment variables that tell the job these paths."""
        return {
            "TRIMTAB_CHECKPOINT": str(self.checkpoint),
            "TRIMTAB_PROGRESS": str(self.progress),
            "TRIMTAB_SAVED": str(self.saved),
        }


log = logging.getLogger(__name__)


class JobJournal:
    """Writes what happens to jobs; `changes` counts. Raises OutdatedError where somebody else was quicker."""

    def __init__(self, store: Store, policy: str, engine: str = "", clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or RealClock()
        self._policy = policy
        self._engine = engine
        self._submissions: dict[str, Submission] = {}
        self.changes = 0
        self.history = JobHistory()
        self.fleet = Fleet()
        for record in reversed(store.jobs.ended()):
            with contextlib.suppress(BadInputError):  # what another version has written teaches nothing
                self.history.learn(record, submission_of(record).job)

    def submission(self, record: JobRecord) -> Submission:
        """The submission kept in a job's record."""
        if record.id not in self._submissions:
            self._submissions[record.id] = submission_of(record)
        return self._submissions[record.id]

    def group(self, record: JobRecord) -> Group | None:
        """The group its run is in; None where there is none any more."""
        return self.fleet.named(record.run.group)

    def intend_start(
        self,
        record: JobRecord,
        group: Group,
        parts: tuple[Part, ...],
        reason: str,
        now: float,
        estimates: dict[str, Estimate],
    ) -> JobRecord:
        """It is going to be launched there: what an engine does after this can be found again by its key."""
        attempt = record.run.attempt + 1
        action: dict[str, Scalar] = {
            "do": "start",
            "group": group.name,
            "workers": sum(part.workers for part in parts),
            "nodes": " ".join(part.node for part in parts),
            "attempt": attempt,
        }
        entry = decision(record, self._policy, action, reason, now, estimates)
        begun = record.done if self.submission(record).job.checkpoint is not None else 0.0
        run = replace(
            record.run,
            attempt=attempt,
            parts=parts,
            group=group.name,
            engine=self._engine,
            run_id="",
            since=None,
            began=begun,
            decision=entry.id,
            reason=reason,
        )
        after = self._change(replace(record, done=begun), JobState.STARTING, run, decision=entry)
        log.info("%s starts on %s: %s", _named(record), action["nodes"], reason)
        return after

    def launched(self, record: JobRecord, run_id: str, now: float) -> JobRecord:
        """An engine has it."""
        return self._change(record, JobState.STARTING, replace(record.run, run_id=run_id, since=now))

    def started(self, record: JobRecord, at: float) -> JobRecord:
        """Its workers run."""
        return self._change(record, JobState.RUNNING, replace(record.run, since=at))

    def intend_stop(self, record: JobRecord, then: JobState, what: str, reason: str, now: float) -> JobRecord:
        """Its run is going to be ended; `then` it waits again, or is over."""
        entry = decision(record, self._policy, {"do": what, "group": record.run.group}, reason, now)
        run = replace(record.run, then=then, reason=reason)
        after = self._change(record, JobState.STOPPING, run, decision=entry)
        log.info("%s is stopped (%s): %s", _named(record), what, reason)
        return after

    def refuse(self, record: JobRecord, reason: str, now: float) -> None:
        """It will never be run."""
        entry = decision(record, self._policy, {"do": "refuse"}, reason, now)
        self._finish(record, JobState.REFUSED, reason, now, entry)

    def ended(self, record: JobRecord, at: float, detail: str) -> None:
        """Its work is done."""
        self._finish(record, JobState.ENDED, detail, at)

    def failed(self, record: JobRecord, at: float, detail: str) -> None:
        """It failed; it is tried again as often as was asked for."""
        failures = record.run.failures + 1
        run = replace(record.run, failures=failures)
        retries = self.submission(record).retries
        if failures > retries:
            self._finish(replace(record, run=run), JobState.FAILED, detail, at)
        else:
            why = f"failed ({detail}) and is tried again, {failures} of {retries}"
            self._again(replace(record, run=run), at, why)

    def lost(self, record: JobRecord, at: float, detail: str) -> None:
        """Nobody knows how it ended: it is run again."""
        self._again(record, at, f"was lost ({detail}) and is run again")

    def not_launched(self, record: JobRecord, why: str) -> None:
        """The place it was to start in is gone: it waits for another."""
        run = replace(record.run, parts=(), run_id="", since=None, reason=why)
        self._change(record, JobState.WAITING, run)

    def stopped(self, record: JobRecord, at: float, failure: str) -> None:
        """The run that was to be ended has."""
        reason = f"{record.run.reason}; {failure}" if failure else record.run.reason
        if record.run.then is JobState.WAITING:
            self._again(record, at, reason)
        else:
            self._finish(record, record.run.then, reason, at)

    def _change(
        self,
        record: JobRecord,
        state: JobState,
        run: JobRun,
        decision: Decision | None = None,
        outcome: Outcome | None = None,
    ) -> JobRecord:
        def effect() -> JobRecord:
            after = self._store.jobs.change(record, state, run, decision, outcome)
            if after.state is not record.state:
                append_event(self._store, after, self._clock.now())
            return after

        changed = self._store.write(effect)
        self.changes += 1
        return changed

    def _again(self, record: JobRecord, at: float, why: str) -> None:
        after, entry = self._close(record, at, why)
        run = replace(after.run, restarts=after.run.restarts + 1, reason=why, parts=(), then=JobState.WAITING)
        self._change(after, JobState.WAITING, run, outcome=entry)
        log.info("%s waits again: %s", _named(record), why)

    def _finish(
        self, record: JobRecord, state: JobState, why: str, at: float, entry: Decision | None = None
    ) -> None:
        after, came = self._close(record, at, why)
        run = replace(after.run, reason=why, ended=at)
        after = self._change(after, state, run, decision=entry, outcome=came)
        if state is JobState.ENDED:
            self.history.learn(after, self.submission(after).job)
        self._submissions.pop(record.id, None)
        log.info("%s %s: %s", _named(record), state.value, why)

    def _close(self, record: JobRecord, at: float, why: str) -> tuple[JobRecord, Outcome | None]:
        """The record with the finished run added up, and the outcome of the decision that started it."""
        job, group = self.submission(record).job, self.group(record)
        progress = read_progress(JobFolder.of(record.id).progress)
        speeds = speeds_of(job, {**self.history.rates(record.application), **record.run.rates})
        work = done(record, speeds, group.accelerator if group else "", at, progress)
        price = price_of(job, record.run, group) if group else 0.0
        came = outcome(record, at, price, why)
        return replace(record, done=work, run=closed(job, record, at, group, progress)), came


def _named(record: JobRecord) -> str:
    return f"job {record.id} ({record.name})"
