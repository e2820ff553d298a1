"""Runs of jobs on an engine: launch, follow, save, stop. Every step can be repeated after a crash."""

import contextlib
import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from trimtab.core import (
    BadInputError,
    Clock,
    Engine,
    EngineEvent,
    Launch,
    NotFoundError,
    TrimtabError,
    daly_interval,
    format_duration,
    one_line,
)
from trimtab.schedule.checkpointing import gang_rate
from trimtab.schedule.job import Checkpoint, Submission
from trimtab.schedule.loop.journal import JobFolder, JobJournal, RestartRules
from trimtab.schedule.loop.view import is_placed
from trimtab.store import JobRecord, JobState, OutdatedError, Outlook, Store


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """Times of the scheduler's loop, in seconds."""

    round: float = 10.0
    """Longest time between two decisions."""
    look: float = 0.5
    """Time between two checks for events, which bring the next decision forward."""
    grace: float = 10.0
    """Time that a run may take to end after SIGTERM."""
    patience: float = 2.0
    """Time to wait for a save, as a multiple of the job's own `seconds`."""
    rest: float = 20.0
    """Pause after a round, as a multiple of its computing time: long queues are decided on less often.
    Meanwhile, jobs that the last round left ready start as soon as nodes are free."""
    absent: float = 20.0
    """Time for which an engine does not list a run until it counts as lost."""
    restarts: RestartRules = field(default_factory=RestartRules)


def sentence_of(error: Exception) -> str:
    """The message of a TrimtabError; of any other error, its type, message and place."""
    if isinstance(error, TrimtabError):
        return str(error)
    where = traceback.extract_tb(error.__traceback__)[-1]
    message = one_line(f"{type(error).__name__}: {error}")
    return f"{message} (line {where.lineno} of {Path(where.filename).name})"


log = logging.getLogger(__name__)


class ActiveJobs:
    """A copy of the store's active jobs, without those that this scheduler may not act on.

    The scheduler's own changes enter it at once; `refresh` reads what others have changed.
    """

    def __init__(self, store: Store, journal: JobJournal, address: str) -> None:
        self._store = store
        self._journal = journal
        self._address = address
        self._records: dict[str, JobRecord] = {}
        self._placed: dict[str, JobRecord] = {}
        self._stopping = set[str]()
        self._untouchable = set[str]()
        self._warned = set[str]()
        self._newest = -1
        self.is_read = False
        """Whether the jobs have been read from the store at all."""

    def refresh(self) -> None:
        """Read new jobs, and those that others have changed, from the store."""
        jobs = self._store.jobs
        self._newest, _ = jobs.pulse()
        versions = jobs.active_versions()
        known = self._records
        changed = {id for id, version in versions.items() if id not in known or known[id].version != version}
        # All at once costs half as much per job.
        read = jobs.active() if len(changed) > len(versions) / 2 else map(jobs.get, changed)
        fresh = {record.id: record for record in read if record.id in changed}
        self._records = {id: record for id in versions if (record := fresh.get(id) or known.get(id))}
        for gone in known.keys() - versions.keys():
            self._forget(gone)
        for record in fresh.values():
            self.put(record)
        self.is_read = True

    def put(self, record: JobRecord) -> None:
        """Take over a job as it is now."""
        self._forget(record.id)
        if record.state.final:
            self._records.pop(record.id, None)
            return
        self._records[record.id] = record
        if record.state is JobState.STOPPING:
            self._stopping.add(record.id)
        if not self._may_act_on(record):
            self._untouchable.add(record.id)
        elif record.state is not JobState.WAITING:
            self._placed[record.id] = record

    def note(self, done: Mapping[str, float], outlooks: Mapping[str, Outlook]) -> None:
        """Write units done and outlooks of jobs, by id, into the store and here."""
        self._store.jobs.note(done, outlooks)
        for id, units in done.items():
            if id in self._records:
                self.put(replace(self._records[id], done=units))
        for id, outlook in outlooks.items():
            if id in self._records:
                self.put(replace(self._records[id], outlook=outlook))

    def _forget(self, id: str) -> None:
        self._placed.pop(id, None)
        self._stopping.discard(id)
        self._untouchable.discard(id)

    def jobs(self) -> Iterator[JobRecord]:
        """All jobs, in order of submission."""
        return (record for id, record in self._records.items() if id not in self._untouchable)

    def placed(self) -> tuple[JobRecord, ...]:
        """Jobs that do not wait: they start, run or stop."""
        return tuple(self._placed.values())

    def waiting(self, id: str) -> JobRecord | None:
        """The job with this id if it waits."""
        record = None if id in self._untouchable else self._records.get(id)
        return record if record is not None and record.state is JobState.WAITING else None

    def of_run(self, run_id: str) -> JobRecord | None:
        """The job of a run, read from the store now."""
        id = next((record.id for record in self._placed.values() if record.run.run_id == run_id), None)
        record = self._store.jobs.get(id) if id is not None else None
        return record if record and record.run.run_id == run_id and not record.state.final else None

    def has_news(self) -> bool:
        """Whether a job has been submitted, or one is to be stopped, since the jobs were read."""
        newest, stopping = self._store.jobs.pulse()
        return newest != self._newest or stopping != len(self._stopping)

    def _may_act_on(self, record: JobRecord) -> bool:
        """Whether its record can be read, and it does not run on another engine; logs once if not."""
        engine, own = (address.partition("?")[0] for address in (record.run.engine, self._address))
        problem = ""
        try:
            self._journal.submission(record)
        except BadInputError as error:
            problem = f"job {record.id} is not changed: its record cannot be read: {error}"
        else:
            if record.state is not JobState.WAITING and engine != own:
                problem = f"job {record.id} is not changed: it runs on {engine}, this scheduler on {own}"
        if problem and problem not in self._warned:
            log.warning(problem)
            self._warned.add(problem)
        return not problem


# The command takes the shell's place, so that signals and exit statuses are its own.
_IN_FOLDER = ("sh", "-c", 'cd -- "$0" && exec "$@"')


def launch_of_job(
    record: JobRecord, submission: Submission, passable: Mapping[str, str] | None = None
) -> Launch:
    """The launch of the present attempt. `passable` are the variables that jobs may name in `pass`."""
    passable = passable or {}
    absent = [name for name in submission.passed if name not in passable]
    if absent:
        raise BadInputError(
            f"the job needs the variable {absent[0]}, which the scheduler does not have or may not pass on; "
            "set it where trimtab up is started, and add it to the setting pass_variables"
        )
    job = submission.job
    save_every = {}
    if job.checkpoint is not None:
        rate = gang_rate(len(record.run.parts))
        seconds = job.checkpoint.interval or float(daly_interval(job.checkpoint.seconds, rate))
        save_every = {"TRIMTAB_SAVE_EVERY": f"{seconds:.0f}"}
    command = job.workload.command
    if submission.folder:
        command = (*_IN_FOLDER, submission.folder, *command)
    variables = {
        **{name: passable[name] for name in submission.passed},
        **submission.environment,
        "TRIMTAB_JOB": record.id,
        "TRIMTAB_ATTEMPT": str(record.run.attempt),
        **JobFolder.of(record.id).variables(),
        **save_every,
    }
    return Launch(
        key=record.key,
        workload=replace(job.workload, command=command),
        parts=tuple((part.node, part.workers) for part in record.run.parts),
        cpus=job.worker.cpus,
        memory=job.worker.memory,
        gpus=job.worker.gpus,
        environment=variables,
        processes=job.worker.processes,
        log=submission.log,
    )


_LOOK = 0.05  # s between two checks whether it has saved


@dataclass(slots=True, eq=False)
class StoppingRun:
    """A run that is being stopped; `failure` is of its save, `error` of the engine's stop.

    `ended` is set when the engine reports its end, `over` when the attempt to stop it is over.
    """

    run_id: str
    failure: str = ""
    error: str = ""
    ended: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)


class StoppingRuns:
    """All runs that are being stopped, by the keys of their attempts."""

    def __init__(self, engine: Engine, grace: float = 10.0, patience: float = 2.0) -> None:
        self._engine = engine
        self._grace = grace
        self._patience = patience
        self._stops: dict[str, StoppingRun] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._stops

    def begin(self, record: JobRecord, run_id: str, submission: Submission | None) -> None:
        """Begin to stop a run; with a submission, the run first gets its signal or command to save."""
        stop = self._stops[record.key] = StoppingRun(run_id)
        threading.Thread(
            target=self._stop,
            args=(stop, submission, record),
            name=f"stop {record.key}",
            daemon=True,
        ).start()

    def over(self) -> list[str]:
        """Keys of runs for which the attempt to stop is over."""
        return [key for key, stop in self._stops.items() if stop.over.is_set()]

    def take(self, key: str) -> StoppingRun | None:
        """Remove and return the stop with this key; None if there is none."""
        stop = self._stops.pop(key, None)
        if stop is not None:
            stop.ended.set()
        return stop

    def _stop(self, stop: StoppingRun, submission: Submission | None, record: JobRecord) -> None:
        checkpoint = submission.job.checkpoint if submission else None
        try:
            if submission is not None and checkpoint is not None:
                failure = self._save(stop, checkpoint, submission, record)
                stop.failure = f"{failure}, and it was stopped without a new checkpoint" if failure else ""
            if not stop.ended.is_set():
                self._engine.stop(stop.run_id, self._grace)
        except NotFoundError:
            pass  # it has ended
        except Exception as error:  # of any kind: it counts as running until its end is known
            stop.error = sentence_of(error)
        finally:
            stop.over.set()

    def _save(
        self, stop: StoppingRun, checkpoint: Checkpoint, submission: Submission, record: JobRecord
    ) -> str:
        """Make it save, and wait until it has; returns the problem, or nothing."""
        files = JobFolder.of(record.id)
        before = files.saved_time
        bound = self._patience * checkpoint.seconds
        if checkpoint.command:
            return self._run_command(stop, checkpoint.command, submission, record, bound)
        try:
            self._engine.signal(stop.run_id, checkpoint.signal or "USR1")
        except BadInputError as error:
            return f"it could not be signalled to save ({error})"
        deadline = time.monotonic() + bound
        while files.saved_time == before:
            if stop.ended.wait(_LOOK):
                return ""
            if time.monotonic() > deadline:
                return f"it did not save within {format_duration(bound)} of {checkpoint.signal}"
        return ""

    def _run_command(
        self,
        stop: StoppingRun,
        command: tuple[str, ...],
        submission: Submission,
        record: JobRecord,
        bound: float,
    ) -> str:
        """Run a command that saves, where the run's first worker runs; returns the problem, if any."""
        variables = {
            **submission.environment,
            **JobFolder.of(record.id).variables(),
            "TRIMTAB_JOB": record.id,
            "TRIMTAB_NODES": " ".join(part.node for part in record.run.parts),
        }
        if submission.folder:
            command = (*_IN_FOLDER, submission.folder, *command)
        try:
            status = self._engine.execute(stop.run_id, command, variables, bound)
        except NotFoundError:
            return ""  # it has ended
        except TrimtabError as error:
            return f"its checkpoint command cannot be run ({error})"
        if status is None:
            return f"its checkpoint command took more than {format_duration(bound)}"
        return f"its checkpoint command failed with status {status}" if status else ""


_CLOCKS_DIFFER = 60.0  # s by which the clocks of an engine's machines may differ from this one


class JobRuns:
    """Carries out recorded intents on an engine, and records the engine's events."""

    def __init__(
        self,
        engine: Engine,
        journal: JobJournal,
        active: ActiveJobs,
        clock: Clock,
        settings: LoopSettings,
        passable: Mapping[str, str] | None = None,
    ) -> None:
        self._engine = engine
        self._journal = journal
        self._active = active
        self._clock = clock
        self._passable = passable or {}
        self._stops = StoppingRuns(engine, settings.grace, settings.patience)
        self._settings = settings
        self._absent: dict[str, float] = {}

    def catch_up(self) -> None:
        """Finish recorded launches, record the engine's events, and go on with stops."""
        self.launch([record for record in self._active.placed() if _is_unsure(record)])
        over = self._stops.over()
        self.record_events()
        stopping = [record for record in self._active.placed() if record.state is JobState.STOPPING]
        for record in stopping:
            with contextlib.suppress(OutdatedError):
                if record.key in over:  # its run has ended, and the engine has reported nothing more
                    stop = self._stops.take(record.key)
                    if stop is not None and stop.error:
                        log.warning("job %s cannot be stopped yet: %s", record.id, stop.error)
                    elif stop is not None:
                        self._journal.stopped(record, self._clock.now(), stop.failure)
                elif record.key not in self._stops:
                    self.stop(record)
        self._find_absent()

    def has_news(self) -> bool:
        """Whether there were events of runs; they are recorded."""
        return self.record_events() or bool(self._stops.over())

    def launch(self, records: Sequence[JobRecord]) -> None:
        """Launch jobs whose start is recorded; the engine may have them already.

        Where the engine or the store fails in the middle, the next round tries again.
        """
        launched = list[Callable[[], object]]()
        for record in records:
            try:
                launched.append(self._launch(record))
            except TrimtabError as error:
                log.warning("job %s is launched again in the next round: %s", record.id, error)
        try:
            if launched:
                self._journal.together(launched)
        except TrimtabError as error:
            log.warning("%d launches are recorded in the next round: %s", len(launched), error)

    def stop(self, record: JobRecord) -> None:
        """Begin to stop the run of a job whose stop is recorded."""
        run_id = record.run.run_id or self._run_of(record.key)
        if not run_id:
            self._journal.stopped(record, self._clock.now(), "")
            return
        saves = record.run.then is not JobState.CANCELLED
        self._stops.begin(record, run_id, self._journal.submission(record) if saves else None)

    def record_events(self) -> bool:
        """Record the engine's events; returns whether there were any of runs of this scheduler.

        While the jobs are not read, or the run of some launch is not known, an event of an unknown run may
        belong to one: such an event is not consumed, and the engine reports it again.
        """
        any_event = False
        unsure = not self._active.is_read or any(_is_unsure(record) for record in self._active.placed())
        for event in self._engine.watch():
            record = self._active.of_run(event.run_id)
            if record is not None:
                any_event = True
                with contextlib.suppress(OutdatedError):
                    self._note(record, event)
            elif unsure:
                break
        return any_event

    def _time_of(self, record: JobRecord, event: EngineEvent) -> float:
        """Time of an event; now, where the engine's clock says that it was before the run, or will be."""
        now, since = self._clock.now(), record.run.since
        if since is not None and not since - _CLOCKS_DIFFER <= event.time <= now + _CLOCKS_DIFFER:
            return now
        return min(event.time, now)

    def _note(self, record: JobRecord, event: EngineEvent) -> None:
        at = self._time_of(record, event)
        if event.what == "started":
            if record.state is JobState.STARTING:
                self._journal.started(record, at)
        elif event.what == "ended" and not event.detail.startswith("stopped"):
            self._stops.take(record.key)
            self._journal.ended(record, at, event.detail)
        elif record.state is JobState.STOPPING:
            stop = self._stops.take(record.key)
            self._journal.stopped(record, at, stop.failure if stop else "")
        elif event.what == "failed":
            self._journal.failed(record, at, event.detail)
        else:
            self._journal.lost(record, at, event.detail)

    def _launch(self, record: JobRecord) -> Callable[[], object]:
        """Launch a job; returns the change of its record that follows."""
        submission = self._journal.submission(record)
        files = JobFolder.of(record.id)
        try:
            files.make()
            if submission.job.checkpoint is None:
                files.progress.unlink(missing_ok=True)
            launch = launch_of_job(record, submission, self._passable)
            try:
                run_id = self._engine.launch(launch)
            except (BadInputError, NotFoundError):  # the engine may refuse now what it launched before
                run_id = self._run_of(launch.key)
                if not run_id:
                    raise
        except BadInputError as error:
            return partial(self._journal.failed, record, self._clock.now(), f"it cannot be started: {error}")
        except NotFoundError as error:
            return partial(self._journal.not_launched, record, f"it could not be started: {error}")
        except OSError as error:
            raise TrimtabError(f"{files.folder} cannot be created: {error.strerror}") from None
        return partial(self._journal.launched, record, run_id, self._clock.now())

    def _run_of(self, key: str) -> str:
        return next((run_id for run_id, name in self._engine.running().items() if name == key), "")

    def _find_absent(self) -> None:
        """Record as lost the runs that the engine has not listed for a while."""
        listed, now = self._engine.running(), self._clock.monotonic()
        absent = dict[str, float]()
        for record in self._active.placed():
            if is_placed(record) and record.run.run_id and record.run.run_id not in listed:
                since = absent[record.key] = self._absent.get(record.key, now)
                if now - since >= self._settings.absent:
                    with contextlib.suppress(OutdatedError):
                        self._journal.lost(record, self._clock.now(), "its engine no longer lists it")
        self._absent = absent


def _is_unsure(record: JobRecord) -> bool:
    """Whether it may have been launched without its run being recorded."""
    return record.state is JobState.STARTING and not record.run.run_id
