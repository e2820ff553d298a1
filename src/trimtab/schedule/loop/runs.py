"""Jobs' runs on an engine: launched, heard of, stopped. What is done here can be done again after a crash."""

import contextlib
import logging

from trimtab.core import BadInputError, Clock, Engine, EngineEvent, Launch, NotFoundError, TrimtabError
from trimtab.schedule.loop.active import ActiveJobs
from trimtab.schedule.loop.book import Book
from trimtab.schedule.loop.launching import launch_of_job
from trimtab.schedule.loop.places import JobFiles
from trimtab.schedule.loop.settings import LoopSettings
from trimtab.schedule.loop.stopping import Stops
from trimtab.schedule.loop.view import is_placed
from trimtab.store import JobRecord, JobState, OutdatedError

_ABSENT = 3  # rounds without a word about a run that its engine does not list, until it counts as lost

log = logging.getLogger(__name__)


class Runs:
    """Does with an engine what the book says is intended, and writes down what it tells."""

    def __init__(
        self, engine: Engine, book: Book, active: ActiveJobs, clock: Clock, settings: LoopSettings
    ) -> None:
        self._engine = engine
        self._book = book
        self._active = active
        self._clock = clock
        self._stops = Stops(engine, settings.grace, settings.patience)
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
            self._book.stopped(record, self._clock.now(), "")
            return
        wanted = record.run.then is not JobState.CANCELLED
        self._stops.begin(record, run_id, self._book.submission(record) if wanted else None)

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
                self._book.started(record, event.time)
        elif event.what == "ended" and not event.detail.startswith("stopped"):
            self._stops.take(record.key)
            self._book.ended(record, event.time, event.detail)
        elif record.state is JobState.STOPPING:
            stop = self._stops.take(record.key)
            self._book.stopped(record, event.time, stop.said if stop else "")
        elif event.what == "failed":
            self._book.failed(record, event.time, event.detail)
        else:
            self._book.lost(record, event.time, event.detail)

    def _launch(self, record: JobRecord) -> None:
        submission = self._book.submission(record)
        files = JobFiles.of(record.id)
        try:
            files.make()
            if submission.job.checkpoint is None:
                files.progress.unlink(missing_ok=True)
            run_id = self._hand_over(launch_of_job(record, submission))
        except BadInputError as error:
            self._book.failed(record, self._clock.now(), f"it cannot be started: {error}")
        except NotFoundError as error:
            self._book.not_launched(record, f"it could not be started: {error}")
        except OSError as error:
            raise TrimtabError(f"{files.folder} cannot be made: {error.strerror}") from None
        else:
            self._book.launched(record, run_id, self._clock.now())

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
            self._book.stopped(record, self._clock.now(), stop.said)

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
                        self._book.lost(record, self._clock.now(), "its engine does not know it any more")
        self._absent = absent


def _is_unsure(record: JobRecord) -> bool:
    """Whether it may have been launched without our knowing its run."""
    return record.state is JobState.STARTING and not record.run.run_id
