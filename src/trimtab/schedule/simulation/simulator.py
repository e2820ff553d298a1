"""A cluster in a loop: jobs arrive and progress, the policy decides once per round, faults happen in between.

Within a round time is exact: a job ends when its work does, and its accelerators are given away at the next
round. Everything is a function of the jobs, the world, the policy and one seed.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from trimtab.core import BadInputError, SimulatedClock
from trimtab.schedule.allocation import WAITING, Allocation, SchedulingPolicy
from trimtab.schedule.cluster import Cluster, Ints
from trimtab.schedule.job import Job
from trimtab.schedule.placing import NodeOccupancy, Placement
from trimtab.schedule.simulation.faults import RandomFaults
from trimtab.schedule.simulation.replay import Replay, RunSegment
from trimtab.schedule.simulation.state import SimulationState, World

NOTED = 25
"""The number of jobs, those that wait longest, whose reasons a simulation keeps."""

_FRAGMENTED = "the free accelerators are on too many nodes: no free nodes hold its workers together"


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """How often the policy decides, and when to give up.

    `round` is in seconds. `moving` lets jobs change nodes for free, in the same form. `most_rounds` ends a
    simulation that would not end.
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
    faults: RandomFaults | None = None,
    progress: Callable[[int], None] | None = None,
) -> Replay:
    """Replay the jobs until all have ended or been refused; `progress` is called with their number."""
    late = next((b.id for a, b in pairwise(jobs) if b.submitted < a.submitted), None)
    if late is not None:
        raise BadInputError(
            f"jobs must be in order of submission: {late} is submitted before the job ahead of it"
        )
    settings = settings or SimulationSettings()
    if not 0 < settings.round < np.inf:
        raise BadInputError(f"a round cannot take {settings.round:g} seconds; the number must be above 0")
    return _Simulation(jobs, cluster, world, policy, settings, faults or RandomFaults(), progress).run()


class _Simulation:
    def __init__(
        self,
        jobs: Sequence[Job],
        cluster: Cluster,
        world: World,
        policy: SchedulingPolicy,
        settings: SimulationSettings,
        faults: RandomFaults,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.cluster = cluster
        self.world = world
        self.policy = policy
        self.settings = settings
        self.faults, self.has_faults = faults, faults.active
        self.progress = progress
        self.state = SimulationState.of(jobs, cluster, world)
        self.floor = NodeOccupancy(cluster.groups, settings.moving)
        self.clock = SimulatedClock()
        self.segments: list[RunSegment] = []
        self.open: dict[int, tuple[Placement, float]] = {}
        self.job_rounds = 0
        self.rounds = 0
        self.why: dict[int, str] = {}
        self.usable = cluster

    def run(self) -> Replay:
        state, step = self.state, self.settings.round
        while state.arriving or len(state.active):
            now = self.clock.now()
            if not len(state.active) and state.next_arrival > now:
                # Nothing to do: on to the round after the next arrival.
                self.clock.advance(np.ceil((state.next_arrival - now) / step) * step)
                now = self.clock.now()
                self._apply_faults(now)
            state.arrive(now)
            if len(state.active):
                self._decide(now)
                self._work(now, step, self._apply_faults(now + step))
            self.clock.advance(step)
            self.rounds += 1
            if self.rounds > self.settings.most_rounds:
                first = f", such as {state.ids[state.active[0]]}" if len(state.active) else ""
                raise BadInputError(f"jobs have not ended after {self.rounds} rounds{first}")
            if self.progress:
                self.progress(state.finished)
        return Replay.of(
            self.state, self.cluster, self.segments, self.why, self.rounds, self.job_rounds, self.clock.now()
        )

    def _apply_faults(self, until: float) -> dict[Hashable, float]:
        """Apply losses and returns of nodes; returns the jobs that lost workers, and when."""
        hit: dict[Hashable, float] = {}
        for fault in self.faults.until(until):
            if fault.back:
                self.floor.restore(fault.group, fault.node)
            else:
                hit.update(dict.fromkeys(self.floor.fail(fault.group, fault.node), fault.time))
        return hit

    def _decide(self, now: float) -> None:
        state = self.state
        rows = state.active
        cluster = self._usable()
        jobs = state.columns(rows, self.world)
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
        refused = [row for row in allocation.refused if keys[row] not in self.open]
        for row in refused:
            self.why[keys[row]] = allocation.why.get(row, "its hard deadline cannot be met")
        state.refuse(rows[refused])

    def _note(self, rows: Ints, now: float, allocation: Allocation, unplaced: Sequence[int]) -> None:
        """Keep the reasons of the jobs that have waited longest so far."""
        waiting = np.flatnonzero(self.state.shape[rows] == WAITING)
        if len(waiting) > NOTED:
            waited = now - self.state.submitted[rows[waiting]] - self.state.ran[rows[waiting]]
            waiting = waiting[np.argpartition(waited, -NOTED)[-NOTED:]]
        for row in waiting.tolist():
            fragmented = _FRAGMENTED if row in unplaced else ""
            self.why[int(rows[row])] = fragmented or allocation.why.get(
                row, "the policy preferred other jobs"
            )

    def _usable(self) -> Cluster:
        if not self.has_faults:
            return self.cluster
        groups = tuple(
            replace(group, nodes=self.floor.usable(index)) for index, group in enumerate(self.cluster.groups)
        )
        if groups != self.usable.groups:
            self.usable = Cluster(groups, self.cluster.shapes)
        return self.usable

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
            self.segments.append(RunSegment(job, placement.group, placement.workers, since, now))

    def _work(self, now: float, seconds: float, hit: Mapping[Hashable, float]) -> None:
        """Jobs that have nodes finish their restart, and work for the rest of the round.

        Jobs that are `hit`, or fail by themselves, work until that moment, and lose their unsaved work.
        """
        state = self.state
        running = state.active[state.shape[state.active] != WAITING]
        if not len(running):
            return
        breaks = self.faults.lifetimes(running)
        for job, moment in hit.items():
            at = np.searchsorted(running, job)  # type: ignore[call-overload]
            breaks[at] = min(breaks[at], moment - now)
        most = np.minimum(breaks, seconds)
        pause = np.minimum(state.pause[running], most)
        state.pause[running] -= pause
        useful = (most - pause) / state.slowness[running]
        ended_after = np.full(len(running), np.inf)
        working = np.flatnonzero(useful > 0)
        if len(working):
            ended_after[working] = self.world.advance(running[working], useful[working])
        held = np.minimum(most, pause + ended_after * state.slowness[running])
        state.charge(running, held, (held - pause) / state.slowness[running])
        self.faults.lived(running, held)
        over = np.isfinite(ended_after)
        for job, after in zip(running[over].tolist(), held[over].tolist(), strict=True):
            self._close(job, now + after)
            self.floor.release(job)
        broken = ~over & (breaks <= seconds)
        for job, after in zip(running[broken].tolist(), held[broken].tolist(), strict=True):
            self.floor.release(job)
            self._stop(job, now + after, lost=True)
        state.end(running[over], now + held[over])
