"""Jobs' runs on an engine: launched, followed, saved, stopped. Every step can be repeated after a crash."""

import contextlib
import logging
import os
import subprocess
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
    without_secrets,
)
from trimtab.schedule.checkpointing import gang_rate
from trimtab.schedule.job import Checkpoint, Submission
from trimtab.schedule.loop.journal import JobFolder, JobJournal
from trimtab.schedule.loop.view import is_placed
from trimtab.store import JobRecord, JobState, OutdatedError, Store


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """`round` is how often a policy decides when nothing happens, `look` how often it is looked whether
    something has, and `grace` how long a run may take to end after SIGTERM; all in seconds. A run that saves
    is waited for `patience` times as long as its job says that takes. Who is stirred all the time rests
    `rest` times as long as a round computed, so that the larger the queue, the more is decided at once.
    """

    round: float = 10.0
    look: float = 0.5
    grace: float = 10.0
    patience: float = 2.0
    rest: float = 20.0


def sentence_of(error: Exception) -> str:
    """An error's own sentence; of one that nobody foresaw, what it is and where it came from."""
    if isinstance(error, TrimtabError):
        return str(error)
    where = traceback.extract_tb(error.__traceback__)[-1]
    what = one_line(f"{type(error).__name__}: {error}")
    return f"{what} (line {where.lineno} of {Path(where.filename).name})"


log = logging.getLogger(__name__)


class ActiveJobs:
    """Jobs that we can do something about: read from the store again after every change."""

    def __init__(self, store: Store, journal: JobJournal, address: str) -> None:
        self._store = store
        self._journal = journal
        self._address = address
        self._jobs: tuple[JobRecord, ...] = ()
        self._runs: dict[str, str] = {}
        self._changes = -1
        self._warned = set[str]()
        self._pulse = (-1, -1)

    def refresh(self) -> None:
        """Read them again, whoever has changed them."""
        newest, _ = self._store.jobs.pulse()
        found = self._store.jobs.active()
        self._changes = self._journal.changes
        self._pulse = (newest, sum(record.state is JobState.STOPPING for record in found))
        self._jobs = tuple(record for record in found if self._is_ours(record))
        self._runs = {
            record.run.run_id: record.id
            for record in self._jobs
            if record.run.run_id and record.state is not JobState.WAITING
        }

    def now(self) -> tuple[JobRecord, ...]:
        """In order of submission."""
        if self._changes != self._journal.changes:
            self.refresh()
        return self._jobs

    def in_state(self, state: JobState) -> list[JobRecord]:
        """Active jobs in one state."""
        return [record for record in self.now() if record.state is state]

    def of_run(self, run_id: str) -> JobRecord | None:
        """The job whose run that was when they were last read, as the store has it at this moment."""
        record = self._store.jobs.get(self._runs[run_id]) if run_id in self._runs else None
        return record if record and record.run.run_id == run_id and not record.state.final else None

    def stirred(self) -> bool:
        """Whether somebody has submitted a job, or asked for the end of one, since they were read."""
        self.now()
        return self._store.jobs.pulse() != self._pulse

    def _is_ours(self, record: JobRecord) -> bool:
        """Whether it can be read, and does not run on somebody else's engine."""
        try:
            self._journal.submission(record)
        except BadInputError as error:
            self._say_once(f"job {record.id} is left alone, because it cannot be read: {error}")
            return False
        theirs, ours = (each.partition("?")[0] for each in (record.run.engine, self._address))
        if record.state is JobState.WAITING or theirs == ours:
            return True
        self._say_once(f"job {record.id} is left alone, because it runs on {theirs}, and this is {ours}")
        return False

    def _say_once(self, sentence: str) -> None:
        if sentence not in self._warned:
            log.warning(sentence)
        self._warned.add(sentence)


# The command takes the shell's place, so that signals and exit statuses are its own.
_IN_FOLDER = ("sh", "-c", 'cd -- "$0" && exec "$@"')


def launch_of_job(
    record: JobRecord, submission: Submission, surroundings: Mapping[str, str] | None = None
) -> Launch:
    """The present attempt. Variables to pass on come from `surroundings`, by default our own environment."""
    around = os.environ if surroundings is None else surroundings
    absent = [name for name in submission.passed if name not in around]
    if absent:
        raise BadInputError(
            f"{absent[0]} is to be passed on, and the scheduler's own environment does not have it; "
            f"start trimtab up with it"
        )
    job = submission.job
    command = job.workload.command
    if submission.folder:
        command = (*_IN_FOLDER, submission.folder, *command)
    environment = {
        **{name: around[name] for name in submission.passed},
        **submission.environment,
        "TRIMTAB_JOB": record.id,
        "TRIMTAB_ATTEMPT": str(record.run.attempt),
        **JobFolder.of(record.id).variables(),
        **_saving(job.checkpoint, len(record.run.parts)),
    }
    return Launch(
        key=record.key,
        workload=replace(job.workload, command=command),
        parts=tuple((part.node, part.workers) for part in record.run.parts),
        cpus=job.worker.cpus,
        memory=job.worker.memory,
        gpus=job.worker.gpus,
        environment=environment,
    )


def _saving(checkpoint: Checkpoint | None, nodes: int) -> dict[str, str]:
    """How often a job had best save by itself: as it said, else what loses least on so many nodes."""
    if checkpoint is None:
        return {}
    every = checkpoint.interval or float(daly_interval(checkpoint.seconds, gang_rate(nodes)))
    return {"TRIMTAB_SAVE_EVERY": f"{every:.0f}"}


_LOOK = 0.05  # s between looks at whether it has saved


@dataclass(slots=True, eq=False)
class StoppingRun:
    """One run on its way out. `gone` is set by whoever hears that it has ended by itself."""

    run_id: str
    failure: str = ""
    failed: str = ""
    gone: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)


class StoppingRuns:
    """All runs on their way out, by the keys of their attempts."""

    def __init__(self, engine: Engine, grace: float = 10.0, patience: float = 2.0) -> None:
        self._engine = engine
        self._grace = grace
        self._patience = patience
        self._stops: dict[str, StoppingRun] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._stops

    def begin(self, record: JobRecord, run_id: str, submission: Submission | None) -> None:
        """Start to stop a run; it is asked to save first where it can, unless nobody wants it any more."""
        stop = self._stops[record.key] = StoppingRun(run_id)
        threading.Thread(
            target=self._stop,
            args=(stop, submission, record),
            name=f"stop {record.key}",
            daemon=True,
        ).start()

    def over(self) -> list[str]:
        """Keys of those whose run is gone."""
        return [key for key, stop in self._stops.items() if stop.over.is_set()]

    def take(self, key: str) -> StoppingRun | None:
        """Forget one; what there is to say about it."""
        stop = self._stops.pop(key, None)
        if stop is not None:
            stop.gone.set()
        return stop

    def _stop(self, stop: StoppingRun, submission: Submission | None, record: JobRecord) -> None:
        checkpoint = submission.job.checkpoint if submission else None
        try:
            if submission is not None and checkpoint is not None:
                failure = self._save(stop, checkpoint, submission, record)
                stop.failure = f"{failure}, and it was stopped all the same" if failure else ""
            if not stop.gone.is_set():
                self._engine.stop(stop.run_id, self._grace)
        except NotFoundError:
            pass  # it has ended meanwhile
        except Exception as error:  # whatever it is: unless we know that it has ended, it runs
            stop.failed = sentence_of(error)
        finally:
            stop.over.set()

    def _save(
        self, stop: StoppingRun, checkpoint: Checkpoint, submission: Submission, record: JobRecord
    ) -> str:
        """Ask it to save, and wait until it has; what went wrong, or nothing."""
        files = JobFolder.of(record.id)
        before = _saved_time(files)
        bound = self._patience * checkpoint.seconds
        if checkpoint.command:
            return _run_checkpoint_command(checkpoint.command, submission, record, bound)
        try:
            self._engine.signal(stop.run_id, checkpoint.signal or "USR1")
        except BadInputError as error:
            return f"it could not be asked to save ({error})"
        deadline = time.monotonic() + bound
        while _saved_time(files) == before:
            if stop.gone.wait(_LOOK):
                return ""
            if time.monotonic() > deadline:
                return (
                    f"it did not say within {format_duration(bound)} of {checkpoint.signal} that it had saved"
                )
        return ""


def _saved_time(files: JobFolder) -> int:
    try:
        return files.saved.stat().st_mtime_ns
    except OSError:
        return 0


def _run_checkpoint_command(
    command: tuple[str, ...], submission: Submission, record: JobRecord, bound: float
) -> str:
    """A command that saves: here, in the job's folder, with its variables and the names of its nodes."""
    variables = {
        **without_secrets(os.environ),
        **submission.environment,
        **JobFolder.of(record.id).variables(),
        "TRIMTAB_JOB": record.id,
        "TRIMTAB_NODES": " ".join(part.node for part in record.run.parts),
    }
    try:
        done = subprocess.run(
            command,
            cwd=submission.folder or None,
            env=variables,
            timeout=bound,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"its checkpoint command took more than {format_duration(bound)}"
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return f"its checkpoint command cannot be run ({why.lower()})"
    return f"its checkpoint command failed with status {done.returncode}" if done.returncode else ""


_ABSENT = 3  # rounds without a word about a run that its engine does not list, until it counts as lost


class JobRuns:
    """Does with an engine what the book says is intended, and writes down what it tells."""

    def __init__(
        self, engine: Engine, journal: JobJournal, active: ActiveJobs, clock: Clock, settings: LoopSettings
    ) -> None:
        self._engine = engine
        self._journal = journal
        self._active = active
        self._clock = clock
        self._stops = StoppingRuns(engine, settings.grace, settings.patience)
        self._absent: dict[str, int] = {}

    def catch_up(self) -> None:
        """Launch what was about to be, hear what has happened, go on with what is to be stopped."""
        for record in self._active.now():
            if _is_unsure(record):
                self.launch(record)
        over = self._stops.over()
        self.hear()
        for record in self._active.in_state(JobState.STOPPING):
            with contextlib.suppress(OutdatedError):
                if record.key in over:
                    self._close_stop(record)
                elif record.key not in self._stops:
                    self.stop(record)
        self._find_absent()

    def stirred(self) -> bool:
        """Whether there was news of our runs; it has been written down."""
        return self.hear() or bool(self._stops.over())

    def launch(self, record: JobRecord) -> None:
        """Hand a job whose start is written down to the engine, which may have it already.

        Where the engine or the store fails in the middle, the next round does so again.
        """
        try:
            self._launch(record)
        except OutdatedError:
            pass
        except TrimtabError as error:
            log.warning("job %s is launched again in the next round: %s", record.id, error)

    def stop(self, record: JobRecord) -> None:
        """Begin to end the run of a job of which that is written down."""
        run_id = record.run.run_id or self._run_of(record.key)
        if not run_id:
            self._journal.stopped(record, self._clock.now(), "")
            return
        wanted = record.run.then is not JobState.CANCELLED
        self._stops.begin(record, run_id, self._journal.submission(record) if wanted else None)

    def hear(self) -> bool:
        """Take the engine's news; whether there were any of our runs.

        While the run of some launch is not known, news of a run that is not known may be its own: they are
        left where they are, and told again.
        """
        heard, unsure = False, any(_is_unsure(record) for record in self._active.now())
        for event in self._engine.watch():
            record = self._active.of_run(event.run_id)
            if record is not None:
                heard = True
                with contextlib.suppress(OutdatedError):
                    self._note(record, event)
            elif unsure:
                break
        return heard

    def _note(self, record: JobRecord, event: EngineEvent) -> None:
        if event.what == "started":
            if record.state is JobState.STARTING:
                self._journal.started(record, event.time)
        elif event.what == "ended" and not event.detail.startswith("stopped"):
            self._stops.take(record.key)
            self._journal.ended(record, event.time, event.detail)
        elif record.state is JobState.STOPPING:
            stop = self._stops.take(record.key)
            self._journal.stopped(record, event.time, stop.failure if stop else "")
        elif event.what == "failed":
            self._journal.failed(record, event.time, event.detail)
        else:
            self._journal.lost(record, event.time, event.detail)

    def _launch(self, record: JobRecord) -> None:
        submission = self._journal.submission(record)
        files = JobFolder.of(record.id)
        try:
            files.make()
            if submission.job.checkpoint is None:
                files.progress.unlink(missing_ok=True)
            run_id = self._hand_over(launch_of_job(record, submission))
        except BadInputError as error:
            self._journal.failed(record, self._clock.now(), f"it cannot be started: {error}")
        except NotFoundError as error:
            self._journal.not_launched(record, f"it could not be started: {error}")
        except OSError as error:
            raise TrimtabError(f"{files.folder} cannot be made: {error.strerror}") from None
        else:
            self._journal.launched(record, run_id, self._clock.now())

    def _hand_over(self, launch: Launch) -> str:
        """The run's id; also where the engine would refuse now what it has launched before."""
        try:
            return self._engine.launch(launch)
        except (BadInputError, NotFoundError):
            run_id = self._run_of(launch.key)
            if not run_id:
                raise
            return run_id

    def _close_stop(self, record: JobRecord) -> None:
        """Its run is gone, and the engine had nothing more to say about it."""
        stop = self._stops.take(record.key)
        if stop is not None and stop.failed:
            log.warning("job %s cannot be stopped yet: %s", record.id, stop.failed)
        elif stop is not None:
            self._journal.stopped(record, self._clock.now(), stop.failure)

    def _run_of(self, key: str) -> str:
        return next((run_id for run_id, name in self._engine.running().items() if name == key), "")

    def _find_absent(self) -> None:
        """Runs that are gone without a word."""
        listed = self._engine.running()
        absent = dict[str, int]()
        for record in self._active.now():
            if is_placed(record) and record.run.run_id and record.run.run_id not in listed:
                absent[record.key] = self._absent.get(record.key, 0) + 1
                if absent[record.key] >= _ABSENT:
                    with contextlib.suppress(OutdatedError):
                        self._journal.lost(record, self._clock.now(), "its engine does not know it any more")
        self._absent = absent


def _is_unsure(record: JobRecord) -> bool:
    """Whether it may have been launched without our knowing its run."""
    return record.state is JobState.STARTING and not record.run.run_id
