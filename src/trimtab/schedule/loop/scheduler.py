"""The scheduler: hears what has happened, asks a policy, and acts. Every intent is written before the act.

It may be killed at any instant. What it was about to launch it launches again under the same key, which
starts it once; what it was about to stop it stops again; an event that it had not written down is told again.
"""

import contextlib
import copy
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from trimtab.core import Clock, Engine, RealClock, StorageError, TrimtabError, format_money
from trimtab.schedule.allocation import SchedulingPolicy
from trimtab.schedule.loop.journal import JobFolder, JobJournal
from trimtab.schedule.loop.plan import RoundPlan, outlooks, plan_of
from trimtab.schedule.loop.requests import NOTE
from trimtab.schedule.loop.runs import ActiveJobs, JobRuns, LoopSettings, sentence_of
from trimtab.schedule.loop.view import (
    Fleet,
    RemainingWork,
    RoundView,
    is_placed,
    read_progress,
    row_of,
    spent,
    view_of,
)
from trimtab.schedule.quota import Quotas, WithQuotas
from trimtab.store import JobRecord, JobState, Leader, OutdatedError, Outlook, Store

log = logging.getLogger(__name__)


class PolicyFailedError(TrimtabError):
    """A policy failed instead of answering, or its answer cannot be used."""


class Scheduler:
    """Runs the jobs of a store on an engine as a policy decides.

    `name` is the policy's and `address` the engine's, for the ledger and whoever asks. `prices` are dollars
    per second of an accelerator of each kind. `left` is asked how much work jobs have left; by default what
    has ended here teaches that.
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
        left: RemainingWork | None = None,
        address: str = "",
    ) -> None:
        self._store = store
        self._engine = engine
        self._policy = policy
        self._forgetful = copy.deepcopy(policy)
        self._settings = settings or LoopSettings()
        self._clock = clock or RealClock()
        self._prices = prices or {}
        self._about = {"policy": name, "engine": address}
        self._journal = JobJournal(store, name, address, self._clock)
        self._left = left or self._journal.history.left
        self._active = ActiveJobs(store, self._journal, address)
        self._runs = JobRuns(engine, self._journal, self._active, self._clock, self._settings)
        self._silent = ""

    def run(self, end: threading.Event) -> None:
        """Rounds until told to end; what runs then goes on running."""
        deadline = rested = 0.0
        while not end.is_set():
            now = self._clock.monotonic()
            stirs = now >= rested and not self._silent
            if now >= deadline or (stirs and self._guarded(self._stirred)):
                computed = time.thread_time()
                self._guarded(self.step)
                now, computed = self._clock.monotonic(), time.thread_time() - computed
                deadline, rested = now + self._settings.round, now + self._settings.rest * computed
            end.wait(self._settings.look)

    def step(self) -> None:
        """One round, now."""
        now = self._clock.now()
        self._see_fleet(now)
        self._active.refresh()
        self._runs.catch_up()
        self._end_what_is_spent(now)
        view = self._view(now)
        plan, outlooks_to_record = self._decide(view, self._within_quotas(), now)
        self._act(view, plan, now)
        self._store.jobs.note(*outlooks_to_record)

    def _guarded(self, act: Callable[[], bool | None]) -> bool:
        """Do it; where engine, store or policy fails, say so once and leave everything as it is.

        That goes for errors nobody foresaw too: what was begun is gone on with in the next round, as after a
        crash.
        """
        try:
            answer = act()
        except Exception as error:
            problem = sentence_of(error)
            if problem != self._silent:
                log.warning("nothing is decided for now: %s", problem)
            self._silent = problem
            return False
        if self._silent:
            log.warning("decisions go on")
            self._silent = ""
        return bool(answer)

    def _stirred(self) -> bool:
        """Whether something has happened that the policy should hear of."""
        return self._runs.stirred() or self._active.stirred()

    def _see_fleet(self, now: float) -> None:
        fleet = Fleet.of(self._engine.nodes(), self._prices)
        if fleet != self._journal.fleet:
            shown = ", ".join(f"{group.nodes} × {group.name}" for group in fleet.groups) or "no nodes"
            log.info("the fleet is %s", shown)
            self._forget(fleet)
        self._journal.fleet = fleet
        self._store.notes.put(NOTE, {**self._about, "groups": fleet.groups}, now)

    def _forget(self, fleet: Fleet) -> None:
        """Where there are other groups than before, what a policy remembers of them is of no use."""
        before, after = ([group.name for group in each.groups] for each in (self._journal.fleet, fleet))
        if before and before != after:
            self._policy = copy.deepcopy(self._forgetful)

    def _end_what_is_spent(self, now: float) -> None:
        for record in self._active.now():
            budget = self._journal.submission(record).job.budget
            if budget is None or not is_placed(record) or not record.run.run_id:
                continue
            used = spent(self._journal.submission(record).job, record.run, now, self._journal.group(record))
            if used >= budget:
                reason = f"its budget of {format_money(budget)} is spent"
                with contextlib.suppress(OutdatedError):
                    self._runs.stop(self._journal.intend_stop(record, JobState.FAILED, "end", reason, now))

    def _within_quotas(self) -> SchedulingPolicy:
        """The policy, within what tenants are guaranteed and limited to now."""
        tenants = self._store.tenants.list()
        return WithQuotas(self._policy, Quotas(tenants)) if tenants else self._policy

    def _view(self, now: float) -> RoundView:
        journal, rows = self._journal, []
        for record in self._active.now():
            if self._takes_part(record):
                progress = read_progress(JobFolder.of(record.id).progress)
                rows.append(
                    row_of(record, journal.submission(record), journal.fleet, journal.history, now, progress)
                )
        return view_of(rows, journal.fleet, self._left, now)

    def _takes_part(self, record: JobRecord) -> bool:
        """Whether a policy is asked about it: not where nobody wants it any more or its nodes are gone."""
        if record.state is JobState.STOPPING:
            return record.run.then is JobState.WAITING
        return not is_placed(record) or all(
            part.node in self._journal.fleet.places for part in record.run.parts
        )

    def _decide(
        self, view: RoundView, policy: SchedulingPolicy, now: float
    ) -> tuple[RoundPlan, tuple[dict[str, float], dict[str, Outlook]]]:
        """The plan that a policy's answer leads to, and outlooks to record; nothing is changed yet.

        A policy that fails is asked again in the next round, and has then forgotten what it remembered:
        that may be why it failed.
        """
        records = self._active.now()
        try:
            allocation = policy.allocate(view.jobs, view.cluster, view.previous, self._clock)
            plan = plan_of(view, allocation, self._journal.fleet, records, self._journal.submission)
            return plan, outlooks(view, allocation, plan, now)
        except Exception as error:
            self._policy = copy.deepcopy(self._forgetful)
            raise PolicyFailedError(f"policy {self._about['policy']} failed: {sentence_of(error)}") from error

    def _act(self, view: RoundView, plan: RoundPlan, now: float) -> None:
        """Each in turn; what somebody else has changed meanwhile is left to the next round."""
        for row, reason in plan.refused.items():
            with contextlib.suppress(OutdatedError):
                self._journal.refuse(view.rows[row].record, reason, now)
        for row, (what, reason) in plan.stops.items():
            with contextlib.suppress(OutdatedError):
                record = view.rows[row].record
                self._runs.stop(self._journal.intend_stop(record, JobState.WAITING, what, reason, now))
        for row, start in plan.starts.items():
            with contextlib.suppress(OutdatedError):
                record = view.rows[row].record
                self._runs.launch(
                    self._journal.intend_start(
                        record, start.group, start.parts, start.reason, now, start.estimates
                    )
                )


LEADER_NAME = "scheduler"
"""What a scheduler leads as."""

_LEADER_WAIT = 0.5


class SchedulerLeadership:
    """The place of the only scheduler, taken by one after the other."""

    def __init__(self, store: Store, leader: Leader) -> None:
        self._store = store
        self._leader = leader

    def hold(
        self,
        make: Callable[[Store], Scheduler],
        end: threading.Event,
        tell: Callable[[bool], None] = lambda leads: None,
    ) -> None:
        """Run a scheduler whenever this one leads, until told to end; `tell` hears when it does and not.

        `make` is given a store that keeps only what is decided while it leads; it is called again each time,
        as another has decided meanwhile.
        """
        while not end.is_set():
            if self._leads(end):
                tell(True)
                make(self._store.under(self._leader)).run(_EitherEvent(end, self._leader.lost))
                tell(False)

    def _leads(self, end: threading.Event) -> bool:
        try:
            return self._leader.wait(_LEADER_WAIT)
        except StorageError as error:
            log.warning("nobody can lead for now: %s", error)
            end.wait(_LEADER_WAIT)
            return False


@contextmanager
def only_scheduler(store: Store) -> Iterator[SchedulerLeadership]:
    """The post of a store's scheduler; refused where the store is a file and has one on this machine."""
    with store.leader(LEADER_NAME) as leader:
        if not leader.wait(0.0):
            if not leader.passes:
                raise StorageError(f"a scheduler runs already on the store {store.name}; end that one first")
            log.info("another scheduler leads; this one takes over when that one is gone")
        yield SchedulerLeadership(store, leader)


class _EitherEvent(threading.Event):
    """Set when one of two is; who waits for it may hear of the second late."""

    def __init__(self, end: threading.Event, lost: threading.Event) -> None:
        super().__init__()
        self._both = (end, lost)

    def is_set(self) -> bool:
        return any(each.is_set() for each in self._both)

    def wait(self, timeout: float | None = None) -> bool:
        self._both[0].wait(timeout)
        return self.is_set()
