"""The job journal: every change of a job's state is one transaction with its entries in the ledger."""

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from trimtab.core import (
    Answer,
    BadInputError,
    Clock,
    Decision,
    Estimate,
    Outcome,
    Scalar,
    format_duration,
    home,
)
from trimtab.kernel import SteadyClock
from trimtab.schedule.cluster import NodeGroup
from trimtab.schedule.job import Submission, speeds_of, submission_of
from trimtab.schedule.loop.requests import append_event
from trimtab.schedule.loop.view import (
    Fleet,
    JobHistory,
    JobRow,
    RoundView,
    closed,
    done,
    price_of,
    read_progress,
    row_of,
    seconds_of,
)
from trimtab.store import JobRecord, JobRun, JobState, OutdatedError, Part, Store

log = logging.getLogger(__name__)


def expected(view: RoundView, row: int, shape: int) -> dict[str, Estimate]:
    """Time that a job needs in a shape from now on, and its cost; empty where unknown."""
    jobs = view.jobs
    chosen = view.cluster.shapes[shape]
    speed = float(jobs.speed[row, shape])
    work = np.array([jobs.remaining[row], jobs.remaining_low[row], jobs.remaining_high[row]])
    if not speed or np.isnan(work).any():
        return {}
    value, low, high = (work / speed).tolist()
    time = Estimate(value, low, high, 0.8 if high > low else 1.0, "s")
    price = float(view.cluster.gpu_price[chosen.group]) * chosen.workers * (float(jobs.gpus[row]) or 1.0)
    return {"time": time, "cost": time.scaled(price, "$")} if price else {"time": time}


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
        """A folder of the job's own, which it finds again when it is restarted."""
        return self.folder / "checkpoint"

    @property
    def progress(self) -> Path:
        """File in which it may write the units of work done, as a number."""
        return self.folder / "progress"

    @property
    def saved(self) -> Path:
        """File that the job touches when it has saved."""
        return self.folder / "saved"

    @property
    def saved_time(self) -> float:
        """When the job last saved, in seconds since the epoch; 0 if never."""
        try:
            return self.saved.stat(follow_symlinks=False).st_mtime
        except OSError:
            return 0.0

    def make(self) -> None:
        """Make the folders, readable by their owner only."""
        self.checkpoint.mkdir(parents=True, exist_ok=True, mode=0o700)

    def variables(self) -> dict[str, str]:
        """Environment variables that tell the job these paths."""
        return {
            "TRIMTAB_CHECKPOINT": str(self.checkpoint),
            "TRIMTAB_PROGRESS": str(self.progress),
            "TRIMTAB_SAVED": str(self.saved),
        }


@dataclass(frozen=True, slots=True)
class RestartRules:
    """How often a job is started again after its run failed or was lost, and after how long."""

    first: float = 1.0
    """Seconds before the first restart; each further one waits twice as long."""
    longest: float = 300.0
    """Seconds that a restart waits at most."""
    losses: int = 5
    """Restarts in a row of a job whose runs are lost with their machine or supervisor; then it fails."""
    steady: float = 600.0
    """Seconds of running after which a loss is the first of a row again."""

    def pause(self, restart: int) -> float:
        """Seconds before the first, second, … restart."""
        return float(min(self.longest, self.first * 2.0 ** min(restart - 1, 60)))


class JobJournal:
    """Writes changes of jobs and passes the changed records to `on_change`.

    OutdatedError if the job was changed meanwhile.
    """

    def __init__(
        self,
        store: Store,
        policy: str,
        engine: str = "",
        clock: Clock | None = None,
        restarts: RestartRules | None = None,
    ) -> None:
        self._store = store
        self._restarts = restarts or RestartRules()
        self._clock = clock or SteadyClock()
        self._policy = policy
        self._engine = engine
        self._submissions: dict[str, Submission] = {}
        self.on_change: Callable[[JobRecord], None] = lambda record: None
        self.history = JobHistory()
        self.fleet = Fleet()
        for record in reversed(store.jobs.ended()):
            with contextlib.suppress(BadInputError):  # written by another version
                self.history.learn(record, submission_of(record).job)

    def together(self, changes: Iterable[Callable[[], object]]) -> None:
        """Make changes in one transaction; those of jobs that were changed meanwhile are left out."""
        with self._store.together():
            for change in changes:
                with contextlib.suppress(OutdatedError):
                    change()

    def submission(self, record: JobRecord) -> Submission:
        """The submission kept in a job's record."""
        if record.id not in self._submissions:
            self._submissions[record.id] = submission_of(record)
        return self._submissions[record.id]

    def group(self, record: JobRecord) -> NodeGroup | None:
        """The group of its run; None if it no longer exists."""
        return self.fleet.named(record.run.group)

    def intend_start(
        self,
        record: JobRecord,
        group: NodeGroup,
        parts: tuple[Part, ...],
        reason: str,
        now: float,
        estimates: dict[str, Estimate],
    ) -> JobRecord:
        """Record that it is going to be launched there; the engine's run can be found again by its key."""
        attempt = record.run.attempt + 1
        action: dict[str, Scalar] = {
            "do": "start",
            "group": group.name,
            "workers": sum(part.workers for part in parts),
            "nodes": " ".join(part.node for part in parts),
            "attempt": attempt,
        }
        entry = self._decision(record, action, reason, now, estimates)
        done_before = record.done if self.submission(record).job.checkpoint is not None else 0.0
        run = replace(
            record.run,
            attempt=attempt,
            parts=parts,
            group=group.name,
            engine=self._engine,
            run_id="",
            since=None,
            began=done_before,
            decision=entry.id,
            reason=reason,
            not_before=None,
        )
        after = self._change(replace(record, done=done_before), JobState.STARTING, run, decision=entry)
        log.info("%s starts on %s: %s", _named(record), action["nodes"], reason)
        return after

    def launched(self, record: JobRecord, run_id: str, now: float) -> JobRecord:
        """Record that an engine has accepted it."""
        return self._change(record, JobState.STARTING, replace(record.run, run_id=run_id, since=now))

    def started(self, record: JobRecord, at: float) -> JobRecord:
        """Record that its workers run."""
        return self._change(record, JobState.RUNNING, replace(record.run, since=at))

    def intend_stop(
        self, record: JobRecord, then: JobState, action: str, reason: str, now: float
    ) -> JobRecord:
        """Record that its run is going to be ended; `then` is the state that follows."""
        entry = self._decision(record, {"do": action, "group": record.run.group}, reason, now)
        run = replace(record.run, then=then, reason=reason)
        after = self._change(record, JobState.STOPPING, run, decision=entry)
        log.info("%s is stopped (%s): %s", _named(record), action, reason)
        return after

    def refuse(self, record: JobRecord, reason: str, now: float) -> None:
        """Record that it will never be run."""
        entry = self._decision(record, {"do": "refuse"}, reason, now)
        self._finish(record, JobState.REFUSED, reason, now, entry)

    def ended(self, record: JobRecord, at: float, detail: str) -> None:
        """Record that its work is done."""
        self._finish(record, JobState.ENDED, detail, at)

    def failed(self, record: JobRecord, at: float, detail: str) -> None:
        """Record a failure; the job waits again while it has retries left."""
        failures = record.run.failures + 1
        record = replace(record, run=replace(record.run, failures=failures))
        retries = self.submission(record).retries
        if failures > retries:
            self._finish(record, JobState.FAILED, detail, at)
        else:
            why = f"failed ({detail}), retry {failures} of {retries}"
            self._wait_again(record, at, why, self._restarts.pause(failures))

    def lost(self, record: JobRecord, at: float, detail: str) -> None:
        """Record that its run no longer exists and its end is unknown; it waits again, unless that recurs."""
        rules = self._restarts
        losses = 1 if seconds_of(record.run, at) >= rules.steady else record.run.losses + 1
        record = replace(record, run=replace(record.run, losses=losses))
        if losses > rules.losses:
            why = f"was lost {losses} times in a row, and is not started again ({detail})"
            self._finish(record, JobState.FAILED, why, at)
        else:
            why = f"was lost ({detail}), {losses} of at most {rules.losses} times in a row"
            self._wait_again(record, at, why, rules.pause(losses))

    def not_launched(self, record: JobRecord, why: str) -> None:
        """Record that the nodes it was to start on no longer exist; it waits again."""
        run = replace(record.run, parts=(), run_id="", since=None, reason=why)
        self._change(record, JobState.WAITING, run)

    def stopped(self, record: JobRecord, at: float, failure: str) -> None:
        """Record the end of a run that was to be stopped."""
        reason = f"{record.run.reason}; {failure}" if failure else record.run.reason
        if record.run.then is JobState.WAITING:
            self._wait_again(record, at, reason)
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
        self.on_change(changed)
        return changed

    def _decision(
        self,
        record: JobRecord,
        action: dict[str, Scalar],
        reason: str,
        now: float,
        estimates: dict[str, Estimate] | None = None,
    ) -> Decision:
        answer = Answer(f"rule:{self._policy}", action, estimates or {})
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

    def _wait_again(self, record: JobRecord, at: float, why: str, pause: float = 0.0) -> None:
        """Let a job wait again; the reason gets the number of its restart and the work that was lost.

        It is not started for `pause` seconds.
        """
        since = at if record.run.since is None else record.run.since
        if self.submission(record).job.checkpoint is not None:
            since = max(since, min(JobFolder.of(record.id).saved_time, at))
        lost = f"about {format_duration(at - since)} of work lost" if at - since >= 1.0 else "no work lost"
        later = f" after {format_duration(pause)}" if pause else ""
        why = f"{why}; restart {record.run.restarts + 1}{later}, {lost}"
        after, entry = self._close(record, at, why)
        run = replace(
            after.run,
            restarts=after.run.restarts + 1,
            reason=why,
            parts=(),
            then=JobState.WAITING,
            not_before=at + pause if pause else None,
        )
        self._change(after, JobState.WAITING, run, outcome=entry)
        log.info("%s waits again: %s", _named(record), why)

    def _finish(
        self, record: JobRecord, state: JobState, why: str, at: float, entry: Decision | None = None
    ) -> None:
        after, outcome = self._close(record, at, why)
        run = replace(after.run, reason=why, ended=at)
        after = self._change(after, state, run, decision=entry, outcome=outcome)
        if state is JobState.ENDED:
            self.history.learn(after, self.submission(after).job)
        self._submissions.pop(record.id, None)
        log.info("%s %s: %s", _named(record), state.value, why)

    def _close(self, record: JobRecord, at: float, why: str) -> tuple[JobRecord, Outcome | None]:
        """The record with the ended run added up, and the outcome of the decision that started it."""
        job, group = self.submission(record).job, self.group(record)
        progress = read_progress(JobFolder.of(record.id).progress)
        speeds = speeds_of(job, {**self.history.rates(record.application), **record.run.rates})
        work = done(record, speeds, group.accelerator if group else "", at, progress)
        outcome = None
        if record.run.decision and record.run.since is not None:
            seconds = max(0.0, at - record.run.since)
            price = price_of(job, record.run, group) if group else 0.0
            measured = {"time": seconds, "cost": seconds * price} if price else {"time": seconds}
            outcome = Outcome(record.run.decision, at, measured, why)
        return replace(record, done=work, run=closed(job, record, at, group, progress)), outcome


class JobRows:
    """The rows of a round; those of waiting jobs are reused while nothing about them has changed."""

    def __init__(self, journal: JobJournal) -> None:
        self._journal = journal
        self._rows: dict[str, tuple[JobRow, Mapping[str, float]]] = {}
        self._fleet = Fleet()

    def row(self, record: JobRecord, now: float) -> JobRow:
        """A job as a row. Only jobs that do not wait can have written new progress."""
        journal = self._journal
        if journal.fleet is not self._fleet:
            self._rows, self._fleet = {}, journal.fleet
        rates = journal.history.rates(record.application)
        if record.state is JobState.WAITING:
            row, known_rates = self._rows.get(record.id, (None, None))
            if row is None or row.record is not record or known_rates is not rates:
                row = row_of(record, journal.submission(record), journal.fleet, rates, now, None)
                self._rows[record.id] = row, rates
            return row
        self._rows.pop(record.id, None)
        progress = read_progress(JobFolder.of(record.id).progress)
        return row_of(record, journal.submission(record), journal.fleet, rates, now, progress)


def _named(record: JobRecord) -> str:
    return f"job {record.id} ({record.name})"
