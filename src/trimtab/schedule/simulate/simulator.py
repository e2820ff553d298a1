"""A cluster in a loop.

Jobs arrive and progress, the policy decides once per round, and faults happen in between.

Within a round time is exact: a job ends when its work does, and its accelerators are given away at the next
round. Everything is a function of the jobs, the world, the policy and one seed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from trimtab.core import BadInputError, SimulatedClock
from trimtab.schedule.allocation import WAITING, Allocation, SchedulingPolicy
from trimtab.schedule.cluster import Cluster, Ints
from trimtab.schedule.job import Job
from trimtab.schedule.placing import Floor, Placement
from trimtab.schedule.simulate.faults import Faults, NoFaults
from trimtab.schedule.simulate.replay import Replay, Segment
from trimtab.schedule.simulate.state import State
from trimtab.schedule.simulate.world import World

NOTED = 25
"""Of how many jobs, those that wait longest, a simulation notes why."""

_IN_PIECES = "what is free is in pieces: no nodes together hold its workers"


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """`round` is how often the policy decides, in seconds.

    `moving` lets jobs change nodes for free, in the same form.

    `most_rounds` ends a simulation that never would.
    """

    round: float = 60.0
    moving: bool = True
    most_rounds: int = 1_000_000


def simulate(
    jobs: Sequence[Job],
    cluster: Cluster,
    world: World,
    policy: SchedulingPolicy,
    settings: SimulationSettings | None = None,
    faults: Faults | None = None,
    progress: Callable[[int], None] | None = None,
) -> Replay:
    """Replay the jobs until all have ended or been refused; `progress` hears how many have."""
    if any(later.submitted < earlier.submitted for earlier, later in pairwise(jobs)):
        raise BadInputError("a trace must be in order of submission")
    settings = settings or SimulationSettings()
    return _Simulation(jobs, cluster, world, policy, settings, faults or NoFaults(), progress).run()


class _Simulation:
    def __init__(
        self,
        jobs: Sequence[Job],
        cluster: Cluster,
        world: World,
        policy: SchedulingPolicy,
        settings: SimulationSettings,
        faults: Faults,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.cluster = cluster
        self.world = world
        self.policy = policy
        self.settings = settings
        self.faults = faults
        self.progress = progress
        self.state = State.of(jobs, cluster, world)
        self.floor = Floor(cluster.groups, settings.moving)
        self.clock = SimulatedClock()
        self.segments: list[Segment] = []
        self.open: dict[int, tuple[Placement, float]] = {}
        self.job_rounds = 0
        self.rounds = 0
        self.why: dict[int, str] = {}

    def run(self) -> Replay:
        """The whole loop."""
        state, step = self.state, self.settings.round
        while state.arriving or len(state.active):
            now = self.clock.now()
            if not len(state.active) and state.next_arrival > now:
                # Nothing to do: on to the round after the next arrival.
                self.clock.advance(np.ceil((state.next_arrival - now) / step) * step)
                now = self.clock.now()
            state.arrive(now)
            self._break(now)
            if len(state.active):
                self._decide(now)
                self._work(now, step)
            self.clock.advance(step)
            self.rounds += 1
            if self.rounds > self.settings.most_rounds:
                raise BadInputError(f"after {self.rounds} rounds {len(state.active)} jobs have not ended")
            if self.progress:
                self.progress(state.finished)
        return Replay.of(
            self.state, self.cluster, self.segments, self.why, self.rounds, self.job_rounds, self.clock.now()
        )

    def _break(self, now: float) -> None:
        """Faults up to now: nodes that go or come back, jobs that fail."""
        for fault in self.faults.until(now, self.floor):
            if fault.back:
                self.floor.restore(fault.group, fault.node)
                continue
            for job in self.floor.fail(fault.group, fault.node):
                self._stop(int(job), now, lost=True)  # type: ignore[call-overload]

    def _decide(self, now: float) -> None:
        state = self.state
        rows = state.active
        cluster = self._usable()
        jobs = state.columns(rows, now, self.world)
        previous = Allocation(state.shape[rows], np.arange(len(rows)))
        allocation = self.policy.allocate(jobs, cluster, previous, self.clock)
        self.job_rounds += len(rows)
        keys = rows.tolist()
        settled = self.floor.settle(keys, jobs, cluster, previous, allocation)
        for row in settled.released:
            self._stop(keys[row], now, lost=False)
        for row in settled.unplaced:
            if previous.shape[row] != WAITING:
                self._stop(keys[row], now, lost=False)
        for row, placement in settled.placed.items():
            self._start(keys[row], int(allocation.shape[row]), placement, now)
        self._note(rows, now, allocation, settled.unplaced)
        for row in allocation.refused:
            if previous.shape[row] == WAITING:
                self.why[keys[row]] = allocation.why.get(row, "its deadline cannot be met")
                state.refuse(keys[row], now)

    def _note(self, rows: Ints, now: float, allocation: Allocation, unplaced: Sequence[int]) -> None:
        """Keep why those who have waited longest wait: in the end it is known of those who waited most."""
        waiting = np.flatnonzero(self.state.shape[rows] == WAITING)
        if len(waiting) > NOTED:
            waited = now - self.state.submitted[rows[waiting]] - self.state.ran[rows[waiting]]
            waiting = waiting[np.argpartition(waited, -NOTED)[-NOTED:]]
        for row in waiting.tolist():
            in_pieces = _IN_PIECES if row in unplaced else ""
            self.why[int(rows[row])] = in_pieces or allocation.why.get(row, "others gain more by running")

    def _usable(self) -> Cluster:
        if not self.faults.any:
            return self.cluster
        groups = tuple(
            replace(group, nodes=self.floor.usable(index)) for index, group in enumerate(self.cluster.groups)
        )
        return self.cluster if groups == self.cluster.groups else Cluster(groups, self.cluster.shapes)

    def _start(self, job: int, shape: int, placement: Placement, now: float) -> None:
        state = self.state
        before = self.open.get(job)
        if before is not None:
            self._close(job, now)
        self.open[job] = (placement, now)
        same = before is not None and before[0].form == placement.form
        state.shape[job] = shape
        if not same:
            state.start(job, placement, now, self.faults.hazard(placement))
            self.world.start(job, placement)
        state.slowness[job] = self.faults.slowness(placement) * state.saving(job)

    def _stop(self, job: int, now: float, lost: bool) -> None:
        self._close(job, now)
        self.state.shape[job] = WAITING
        self.world.stop(job, self.state.unsaved(job) if lost else 0.0)
        self.state.stop(job)

    def _close(self, job: int, now: float) -> None:
        placement, since = self.open.pop(job)
        if now > since:
            self.segments.append(Segment(job, placement.group, placement.workers, since, now))

    def _work(self, now: float, seconds: float) -> None:
        """Everyone who has nodes restarts for as long as that takes, and works for the rest of the round."""
        state = self.state
        running = state.active[state.shape[state.active] != WAITING]
        if not len(running):
            return
        pause = np.minimum(state.pause[running], seconds)
        state.pause[running] -= pause
        useful = (seconds - pause) / state.slowness[running]
        ended_after = np.full(len(running), np.inf)
        working = np.flatnonzero(useful > 0)
        if len(working):
            ended_after[working] = self.world.advance(running[working], useful[working])
        held = np.minimum(seconds, pause + ended_after * state.slowness[running])
        state.charge(running, held, (held - pause) / state.slowness[running])
        over = np.isfinite(ended_after)
        for job, after in zip(running[over].tolist(), held[over].tolist(), strict=True):
            self._close(job, now + after)
            self.floor.release(job)
            state.end(job, now + after)
        failed = self.faults.failures(running[~over], seconds)
        for job in failed.tolist():
            self.floor.release(job)
            self._stop(job, now + seconds, lost=True)
