"""The scheduler: records the engine's events, calls a policy, and acts. It records every intent first.

A round looks at all jobs, and its cost grows with the queue. So a round leaves a list of jobs that may start
next, and nodes that become free before the next round are given to them at once.

It may be killed at any instant. A launch that it had recorded is repeated under the same key, which starts it
once; a recorded stop is repeated; an event that it had not recorded is reported again by the engine.
"""

import contextlib
import copy
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from trimtab.core import (
    Clock,
    Engine,
    StorageError,
    TrimtabError,
    WaitingEngine,
    format_duration,
    format_money,
)
from trimtab.kernel import SteadyClock
from trimtab.schedule.allocation import Allocation, SchedulingPolicy
from trimtab.schedule.loop.journal import JobJournal, JobRows
from trimtab.schedule.loop.outlook import OutlookWriter, RoundOutlooks
from trimtab.schedule.loop.plan import JobStart, ReadyJobs, RoundPlan, plan_of
from trimtab.schedule.loop.requests import NOTE
from trimtab.schedule.loop.runs import ActiveJobs, JobRuns, LoopSettings, sentence_of
from trimtab.schedule.loop.view import (
    Fleet,
    JobRow,
    RoundView,
    is_placed,
    spent,
    view_of,
)
from trimtab.schedule.quota import Quotas, WithQuotas
from trimtab.store import JobRecord, JobState, Leader, OutdatedError, Outlook, Store

log = logging.getLogger(__name__)

_OUTLOOK_BATCHES = 4  # written in a round; the rest follows between rounds
_BETWEEN_OUTLOOKS = 0.05  # s
_CLOCK_STEP = 60.0  # s
_STARTED_AT_ONCE = 8  # jobs whose intents are recorded in one transaction


class PolicyFailedError(TrimtabError):
    """A policy raised an error, or its answer cannot be used."""


class Scheduler:
    """Runs the jobs of a store on an engine as a policy decides.

    `name` is the policy's and `address` the engine's, for the ledger. `prices` are dollars per second of an
    accelerator of each kind. `on_round` is called after each round with the seconds until it had decided, and
    the number of jobs that were started in it and since the round before. `passable` are the variables that
    jobs may name in `pass`.
    """

    def __init__(
        self,
        store: Store,
        engine: Engine,
        policy: SchedulingPolicy,
        name: str,
        settings: LoopSettings | None = None,
        clock: Clock | None = None,
        prices: Mapping[str, float] | None = None,
        address: str = "",
        on_round: Callable[[float, int], object] = lambda seconds, starts: None,
        passable: Mapping[str, str] | None = None,
    ) -> None:
        self._store = store
        self._engine = engine
        self._policy = policy
        self._fresh_policy = copy.deepcopy(policy)
        self._settings = settings or LoopSettings()
        self._clock = clock or SteadyClock()
        self._prices = prices or {}
        self._about = {"policy": name, "engine": address, "passable": sorted(passable or {})}
        self._journal = JobJournal(store, name, address, self._clock, self._settings.restarts)
        self._journal.on_change = self._on_change
        self._active = ActiveJobs(store, self._journal, address)
        self._runs = JobRuns(engine, self._journal, self._active, self._clock, self._settings, passable)
        self._outlooks = OutlookWriter(self._active)
        self._rows = JobRows(self._journal)
        self._ready: ReadyJobs | None = None
        self._launches = self._reported = 0
        self._decided = 0.0
        self._clock_moved = 0.0
        self._next_restart = math.inf
        self._on_round = on_round
        self._problem = ""

    def run(self, end: threading.Event) -> None:
        """Run rounds until `end` is set; running jobs then go on."""
        deadline = rested = 0.0
        news = False
        while not end.is_set():
            launches = self._launches
            news = (not self._problem and self._guarded(self._has_news)) or news
            now = self._clock.monotonic()
            if now >= deadline or (news and now >= rested and not self._problem):
                news = False
                computed = time.thread_time()
                self._guarded(self.step)
                now, computed = self._clock.monotonic(), time.thread_time() - computed
                deadline = now + min(self._settings.round, self._next_restart)
                rested = now + self._settings.rest * computed
                self._on_round(self._decided, self._launches - self._reported)
                self._reported = self._launches
            elif not self._problem:
                self._guarded(self._go_on)
            if launches == self._launches:  # otherwise some may have ended by now
                self._pause(end)

    def step(self) -> None:
        """One round, now."""
        now, began = self._clock.now(), self._clock.monotonic()
        self._ready = None
        self._notice_clock()
        self._read_fleet(now)
        self._active.refresh()
        self._runs.catch_up()
        self._stop_over_budget(now)
        view = self._view(now)
        allocation, plan = self._decide(view, self._within_quotas())
        self._ready = plan.ready
        self._decided = self._clock.monotonic() - began
        self._act(view, plan, now)
        self._active.note({row.record.id: row.done for row in view.rows if row.done != row.record.done}, {})
        self._outlooks.begin(RoundOutlooks(view, allocation, plan, now), view.jobs.ids)
        for _ in range(_OUTLOOK_BATCHES):
            self._outlooks.write_some()

    def _go_on(self) -> None:
        """Between rounds: start jobs on nodes that have become free, and write a few outlooks."""
        if self._ready is not None:
            self._start(list(self._ready.starts(self._active.waiting)), self._clock.now())
        self._outlooks.write_some()

    def _pause(self, end: threading.Event) -> None:
        """Wait for the end of a run, or until it is time to look for other events."""
        seconds = (
            min(self._settings.look, _BETWEEN_OUTLOOKS) if self._outlooks.pending else self._settings.look
        )
        engine = self._engine
        if isinstance(engine, WaitingEngine) and self._active.placed() and not self._problem:
            self._guarded(lambda: engine.wait(seconds))
        else:
            end.wait(seconds)

    def _on_change(self, record: JobRecord) -> None:
        self._active.put(record)
        if self._ready is not None and (record.state.final or record.state is JobState.WAITING):
            self._ready.release(record.id)

    def _guarded(self, act: Callable[[], bool | None]) -> bool:
        """Call `act`; if the engine, store or policy fails in any way, log it once and return False.

        The next round continues what was begun, as after a crash.
        """
        try:
            answer = act()
        except Exception as error:
            problem = sentence_of(error)
            if problem != self._problem:
                log.warning("the scheduler cannot decide now: %s", problem)
            self._problem = problem
            return False
        if self._problem:
            log.warning("the scheduler decides again")
            self._problem = ""
        return bool(answer)

    def _has_news(self) -> bool:
        """Whether something has happened that needs a decision."""
        return self._runs.has_news() or self._active.has_news()

    def _notice_clock(self) -> None:
        """Log once that the wall clock was set: times go on as before."""
        moved = self._clock.moved() if isinstance(self._clock, SteadyClock) else 0.0
        if abs(moved - self._clock_moved) > _CLOCK_STEP:
            self._clock_moved = moved
            log.warning(
                "the machine's clock was set and differs by %s from the times of jobs, which go on as before",
                format_duration(abs(moved)),
            )

    def _read_fleet(self, now: float) -> None:
        fleet = Fleet.of(self._engine.nodes(), self._prices)
        if fleet != self._journal.fleet:
            shown = ", ".join(f"{group.nodes} × {group.name}" for group in fleet.groups) or "no nodes"
            log.info("the fleet is %s", shown)
            before = [group.name for group in self._journal.fleet.groups]
            if before and before != [group.name for group in fleet.groups]:
                # The policy has stored numbers of groups that no longer exist.
                self._policy = copy.deepcopy(self._fresh_policy)
            self._journal.fleet = fleet
        self._store.notes.put(NOTE, {**self._about, "groups": fleet.groups}, now)

    def _stop_over_budget(self, now: float) -> None:
        for record in self._active.placed():
            budget = self._journal.submission(record).job.budget
            if budget is None or not is_placed(record) or not record.run.run_id:
                continue
            used = spent(self._journal.submission(record).job, record.run, now, self._journal.group(record))
            if used >= budget:
                reason = f"its budget is spent: {format_money(used)} of {format_money(budget)}"
                with contextlib.suppress(OutdatedError):
                    self._runs.stop(self._journal.intend_stop(record, JobState.FAILED, "end", reason, now))

    def _within_quotas(self) -> SchedulingPolicy:
        """The policy, within the present quotas of tenants."""
        tenants = self._store.tenants.list()
        return WithQuotas(self._policy, Quotas(tenants)) if tenants else self._policy

    def _view(self, now: float) -> RoundView:
        journal = self._journal
        rows, later = list[JobRow](), list[JobRecord]()
        for record in self._active.jobs():
            if record.state is JobState.WAITING and self._seconds_to_restart(record, now) > 0:
                later.append(record)
            elif self._is_schedulable(record):
                rows.append(self._rows.row(record, now))
        self._next_restart = min(
            (self._seconds_to_restart(record, now) for record in later), default=math.inf
        )
        outlooks = {record.id: Outlook(record.run.reason, record.run.not_before) for record in later}
        self._active.note({}, {r.id: outlooks[r.id] for r in later if outlooks[r.id] != r.outlook})
        return view_of(rows, journal.fleet, journal.history.remaining, now)

    def _seconds_to_restart(self, record: JobRecord, now: float) -> float:
        """Seconds for which a job that failed is not started; none if the clock was set back meanwhile."""
        left = 0.0 if record.run.not_before is None else record.run.not_before - now
        return left if 0.0 < left <= self._settings.restarts.longest else 0.0

    def _is_schedulable(self, record: JobRecord) -> bool:
        """Whether a policy decides about it: not if it is cancelled or its nodes no longer exist."""
        if record.state is JobState.STOPPING:
            return record.run.then is JobState.WAITING
        return not is_placed(record) or all(
            part.node in self._journal.fleet.places for part in record.run.parts
        )

    def _decide(self, view: RoundView, policy: SchedulingPolicy) -> tuple[Allocation, RoundPlan]:
        """A policy's answer, and the plan for it; nothing is changed yet.

        A policy that fails is called again in the next round, without its memory, which may be the cause.
        """
        try:
            allocation = policy.allocate(view.jobs, view.cluster, view.previous, self._clock)
            placed = self._active.placed()
            return allocation, plan_of(
                view, allocation, self._journal.fleet, placed, self._journal.submission
            )
        except Exception as error:
            self._policy = copy.deepcopy(self._fresh_policy)
            raise PolicyFailedError(f"policy {self._about['policy']} failed: {sentence_of(error)}") from error

    def _act(self, view: RoundView, plan: RoundPlan, now: float) -> None:
        """Act on each job in turn; jobs that have been changed are left to the next round."""
        for row, reason in plan.refused.items():
            with contextlib.suppress(OutdatedError):
                self._journal.refuse(view.rows[row].record, reason, now)
        for row, (action, reason) in plan.stops.items():
            with contextlib.suppress(OutdatedError):
                record = view.rows[row].record
                self._runs.stop(self._journal.intend_stop(record, JobState.WAITING, action, reason, now))
        self._start([(view.rows[row].record, start) for row, start in plan.starts.items()], now)

    def _start(self, starts: Sequence[tuple[JobRecord, JobStart]], now: float) -> None:
        """Record the intents of a few starts in one transaction, then launch them; and so on."""
        for first in range(0, len(starts), _STARTED_AT_ONCE):
            intended = list[JobRecord]()

            def intend(record: JobRecord, start: JobStart, intended: list[JobRecord] = intended) -> None:
                intended.append(
                    self._journal.intend_start(
                        record, start.group, start.parts, start.reason, now, start.estimates
                    )
                )

            some = starts[first : first + _STARTED_AT_ONCE]
            self._journal.together([partial(intend, record, start) for record, start in some])
            self._runs.launch(intended)
            self._launches += len(intended)


LEADER_NAME = "scheduler"
"""The name of the schedulers' lease."""

_LEADER_WAIT = 0.5


class SchedulerLeadership:
    """Runs a scheduler while this process leads."""

    def __init__(self, store: Store, leader: Leader) -> None:
        self._store = store
        self._leader = leader

    def hold(
        self,
        make: Callable[[Store], Scheduler],
        end: threading.Event,
        tell: Callable[[bool], None] = lambda leads: None,
    ) -> None:
        """Run a scheduler whenever this process leads, until `end` is set; `tell` is called on each change.

        `make` gets a store that accepts writes only while this process leads; it is called each time, because
        another process has decided meanwhile.
        """
        while not end.is_set():
            try:
                leads = self._leader.wait(_LEADER_WAIT)
            except StorageError as error:
                log.warning("no scheduler can lead now: %s", error)
                end.wait(_LEADER_WAIT)
                continue
            if leads:
                tell(True)
                make(self._store.under(self._leader)).run(_EitherEvent(end, self._leader.lost))
                tell(False)


@contextmanager
def only_scheduler(store: Store) -> Iterator[SchedulerLeadership]:
    """The leadership of a store's schedulers; StorageError if the store is a file that has one."""
    with store.leader(LEADER_NAME) as leader:
        if not leader.wait(0.0):
            if not leader.passes:
                raise StorageError(f"another scheduler runs on the store {store.name}; stop it first")
            log.info("another scheduler leads; this one takes over when that one ends")
        yield SchedulerLeadership(store, leader)


class _EitherEvent(threading.Event):
    """Set when one of two events is; `wait` returns late when the second one is set."""

    def __init__(self, end: threading.Event, lost: threading.Event) -> None:
        super().__init__()
        self._both = (end, lost)

    def is_set(self) -> bool:
        return any(event.is_set() for event in self._both)

    def wait(self, timeout: float | None = None) -> bool:
        self._both[0].wait(timeout)
        return self.is_set()
