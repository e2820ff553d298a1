"""The scheduler: hears what has happened, asks a policy, and acts. Every intent is written before the act.

It may be killed at any instant. What it was about to launch it launches again under the same key, which
starts it once; what it was about to stop it stops again; an event that it had not written down is told again.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping

from trimtab.core import (
    BadInputError,
    Clock,
    Engine,
    EngineEvent,
    NotFoundError,
    RealClock,
    TrimtabError,
)
from trimtab.core.units import format_money
from trimtab.schedule.allocation import SchedulingPolicy
from trimtab.schedule.borrowing import WithQuotas
from trimtab.schedule.loop.accounting import spent, told_progress
from trimtab.schedule.loop.acting import Plan, plan_of
from trimtab.schedule.loop.book import Book
from trimtab.schedule.loop.fleet import Fleet
from trimtab.schedule.loop.history import Left
from trimtab.schedule.loop.launching import launch_of_job
from trimtab.schedule.loop.outlook import outlooks
from trimtab.schedule.loop.places import JobFiles
from trimtab.schedule.loop.settings import LoopSettings
from trimtab.schedule.loop.stopping import Stops
from trimtab.schedule.loop.view import View, is_placed, row_of, view_of
from trimtab.schedule.quota import Quotas
from trimtab.store import JobRecord, JobState, OutdatedError, Store

NOTE = "scheduler"
"""Under which name the store knows what the scheduler last said about itself."""

_ABSENT = 3  # rounds without a word about a run that its engine does not list, until it counts as lost

log = logging.getLogger(__name__)


class Scheduler:
    """Runs the jobs of a store on an engine as a policy decides."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        policy: SchedulingPolicy,
        name: str,
        settings: LoopSettings | None = None,
        clock: Clock | None = None,
        prices: Mapping[str, float] | None = None,
        left: Left | None = None,
        about: Mapping[str, str] | None = None,
    ) -> None:
        self._store = store
        self._engine = engine
        self._policy = policy
        self._settings = settings or LoopSettings()
        self._clock = clock or RealClock()
        self._prices = prices or {}
        self._about = {"policy": name, **(about or {})}
        self._book = Book(store, name)
        self._left = left or self._book.history.left
        self._stops = Stops(engine, self._settings.grace, self._settings.patience)
        self._absent: dict[str, int] = {}
        self._silent = ""
        self._stopping = 0
        self._newest = 0
        self._seen = 0
        self._jobs: tuple[JobRecord, ...] = ()
        self._runs: dict[str, str] = {}

    def run(self, end: threading.Event) -> None:
        """Rounds until told to end; what runs then goes on running."""
        deadline = 0.0
        while not end.is_set():
            if self._clock.monotonic() >= deadline or self._guarded(self._stirred):
                self._guarded(self._round)
                deadline = self._clock.monotonic() + self._settings.round
            end.wait(self._settings.look)

    def step(self) -> None:
        """One round, now."""
        self._round()

    def _guarded(self, act: Callable[[], bool | None]) -> bool:
        """Do it; where the engine or the store does not answer, say so once and leave everything as it is."""
        try:
            answer = act()
        except TrimtabError as error:
            if str(error) != self._silent:
                log.warning("nothing is decided for now: %s", error)
            self._silent = str(error)
            return False
        if self._silent and act == self._round:
            log.warning("decisions go on")
            self._silent = ""
        return bool(answer)

    def _stirred(self) -> bool:
        """Whether something has happened that a policy should hear of."""
        if self._silent:
            return False
        newest, stopping = self._store.jobs.pulse()
        heard = self._hear()
        return heard or newest != self._newest or stopping != self._stopping or bool(self._stops.over())

    def _round(self) -> None:
        now = self._clock.now()
        self._newest, _ = self._store.jobs.pulse()
        self._see_fleet(now)
        self._reread()
        self._resume()
        over = self._stops.over()
        self._hear()
        self._close_stops(over)
        self._check()
        view = self._view(now)
        policy = self._with_quotas()
        allocation = policy.allocate(view.jobs, view.cluster, view.previous, self._clock)
        plan = plan_of(view, allocation, self._book.fleet, self._jobs, self._book.submission)
        self._act(view, plan, now)
        self._store.jobs.note(*outlooks(view, allocation, plan, now))
        self._stopping = sum(record.state is JobState.STOPPING for record in self._current())

    def _with_quotas(self) -> SchedulingPolicy:
        """The policy, within what tenants are guaranteed and limited to now."""
        tenants = self._store.tenants.list()
        return WithQuotas(self._policy, Quotas(tenants)) if tenants else self._policy

    def _reread(self) -> None:
        self._seen = self._book.changes
        self._jobs = self._store.jobs.active()
        self._runs = {
            record.run.run_id: record.id
            for record in self._jobs
            if record.run.run_id and record.state is not JobState.WAITING
        }

    def _current(self) -> tuple[JobRecord, ...]:
        """The jobs as they are after what was written since they were read."""
        if self._seen != self._book.changes:
            self._reread()
        return self._jobs

    def _view(self, now: float) -> View:
        rows = []
        for record in self._current():
            if self._takes_part(record):
                told = told_progress(JobFiles.of(record.id).progress)
                book = self._book
                rows.append(row_of(record, book.submission(record), book.fleet, book.history, now, told))
        return view_of(rows, self._book.fleet, self._left, now)

    def _see_fleet(self, now: float) -> None:
        fleet = Fleet.of(self._engine.nodes(), self._prices)
        if fleet != self._book.fleet:
            shown = ", ".join(f"{group.nodes} × {group.name}" for group in fleet.groups) or "no nodes"
            log.info("the fleet is %s", shown)
        self._book.fleet = fleet
        self._store.notes.put(NOTE, {**self._about, "groups": fleet.groups}, now)

    def _resume(self) -> None:
        """Launch what was about to be launched when somebody pulled the plug."""
        for record in self._current():
            if _is_unsure(record):
                self._try_launch(record)

    def _hear(self) -> bool:
        """Take the engine's news; whether there were any of our runs.

        While the run of some launch is not known, news of a run that is not known may be its own: they are
        left where they are, and told again.
        """
        heard, unsure = False, any(_is_unsure(record) for record in self._current())
        for event in self._engine.watch():
            if event.run_id in self._runs:
                heard = True
                with contextlib.suppress(OutdatedError):
                    self._note(self._store.jobs.get(self._runs[event.run_id]), event)
            elif unsure:
                break
        return heard

    def _note(self, record: JobRecord, event: EngineEvent) -> None:
        if record.run.run_id != event.run_id or record.state is JobState.WAITING or record.state.final:
            return
        stopping = record.state is JobState.STOPPING
        if event.what == "started":
            if record.state is JobState.STARTING:
                self._book.started(record, event.time)
        elif event.what == "ended" and not event.detail.startswith("stopped"):
            self._stops.take(record.key)
            self._book.ended(record, event.time, event.detail)
        elif stopping:
            stop = self._stops.take(record.key)
            self._book.stopped(record, event.time, stop.said if stop else "")
        elif event.what == "failed":
            self._book.failed(record, event.time, event.detail)
        elif event.what in ("ended", "lost"):
            self._book.lost(record, event.time, event.detail)

    def _close_stops(self, over: list[str]) -> None:
        """Runs that have been stopped, of which the engine had nothing more to say; and new wishes."""
        for record in self._current():
            if record.state is not JobState.STOPPING:
                continue
            with contextlib.suppress(OutdatedError):
                if record.key in over:
                    self._close_stop(record)
                elif record.key not in self._stops:
                    self._begin_stop(record)

    def _close_stop(self, record: JobRecord) -> None:
        stop = self._stops.take(record.key)
        if stop is not None and stop.failed:
            log.warning("job %s cannot be stopped yet: %s", record.id, stop.failed)
        elif stop is not None:
            self._book.stopped(record, self._clock.now(), stop.said)

    def _begin_stop(self, record: JobRecord) -> None:
        run_id = record.run.run_id or self._run_of(record.key)
        if not run_id:
            self._book.stopped(record, self._clock.now(), "")
            return
        wanted = record.run.then is not JobState.CANCELLED
        self._stops.begin(record, run_id, self._book.submission(record).job.checkpoint if wanted else None)

    def _run_of(self, key: str) -> str:
        return next((run_id for run_id, name in self._engine.running().items() if name == key), "")

    def _check(self) -> None:
        """End what has spent its budget; find runs that are gone without a word."""
        now = self._clock.now()
        listed = self._engine.running()
        absent = dict[str, int]()
        for record in self._current():
            if not is_placed(record) or not record.run.run_id:
                continue
            with contextlib.suppress(OutdatedError):
                if record.run.run_id in listed:
                    self._check_budget(record, now)
                    continue
                absent[record.key] = self._absent.get(record.key, 0) + 1
                if absent[record.key] >= _ABSENT:
                    self._book.lost(record, now, "its engine does not know it any more")
        self._absent = absent

    def _check_budget(self, record: JobRecord, now: float) -> None:
        job = self._book.submission(record).job
        used = spent(job, record.run, now, self._book.group(record))
        if job.budget is not None and used >= job.budget:
            reason = f"its budget of {format_money(job.budget)} is spent"
            self._book.intend_stop(record, JobState.FAILED, "end", reason, now)

    def _takes_part(self, record: JobRecord) -> bool:
        """Whether a policy is asked about it: not where nobody wants it any more or its nodes are gone."""
        if record.state is JobState.STOPPING:
            return record.run.then is JobState.WAITING
        return not is_placed(record) or all(part.node in self._book.fleet.places for part in record.run.parts)

    def _act(self, view: View, plan: Plan, now: float) -> None:
        for row, reason in plan.refused.items():
            with contextlib.suppress(OutdatedError):
                self._book.refuse(view.rows[row].record, reason, now)
        for row, (what, reason) in plan.stops.items():
            with contextlib.suppress(OutdatedError):
                record = self._book.intend_stop(view.rows[row].record, JobState.WAITING, what, reason, now)
                self._begin_stop(record)
        for row, start in plan.starts.items():
            with contextlib.suppress(OutdatedError):
                record = self._book.intend_start(
                    view.rows[row].record, start.group, start.parts, start.reason, now, start.estimates
                )
                self._try_launch(record)

    def _try_launch(self, record: JobRecord) -> None:
        """Launch it; where the engine or the store fails in the middle, the next round does so again."""
        try:
            self._launch(record)
        except OutdatedError:
            pass
        except TrimtabError as error:
            log.warning("job %s is launched again in the next round: %s", record.id, error)

    def _launch(self, record: JobRecord) -> None:
        """Hand a job whose start is written down to the engine; it may have it already."""
        submission = self._book.submission(record)
        try:
            files = JobFiles.of(record.id)
            files.make()
            if submission.job.checkpoint is None:
                files.progress.unlink(missing_ok=True)
            run_id = self._engine.launch(launch_of_job(record, submission))
        except BadInputError as error:
            self._book.failed(record, self._clock.now(), f"it cannot be started: {error}")
        except NotFoundError as error:
            self._book.not_launched(record, self._clock.now(), f"it could not be started: {error}")
        except OSError as error:
            raise TrimtabError(f"{JobFiles.of(record.id).folder} cannot be made: {error.strerror}") from None
        else:
            self._book.launched(record, run_id, self._clock.now())
            self._runs[run_id] = record.id


def _is_unsure(record: JobRecord) -> bool:
    """Whether it may have been launched without our knowing its run."""
    return record.state is JobState.STARTING and not record.run.run_id
