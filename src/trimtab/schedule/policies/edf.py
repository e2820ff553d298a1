"""Earliest deadline first, preemptive. A hard one is promised when the job comes, or the job is refused."""

from dataclasses import dataclass, field

import numpy as np

from trimtab.core import Clock
from trimtab.schedule.allocation import WAITING, Allocation, Bools, Jobs
from trimtab.schedule.cluster import Cluster, Floats
from trimtab.schedule.policies.filling import Filling, WaitingReasons


@dataclass(frozen=True, slots=True)
class EdfSettings:
    """How sure a promise must be."""

    margin: float = 1.0  # what a job is believed to have left is multiplied by this before it is promised


@dataclass(slots=True)
class Edf:
    """Jobs that can still be in time by deadline, then those that are late anyway, then those without one."""

    settings: EdfSettings = field(default_factory=EdfSettings)
    _promised: set[str] = field(default_factory=set, init=False, repr=False)

    def allocate(self, jobs: Jobs, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        filling = Filling(jobs, cluster, previous)
        due = jobs.deadline - clock.now()
        with np.errstate(invalid="ignore"):
            late = due < jobs.remaining / filling.best_speed()
        refused = self._refused(filling, due)
        for row in refused:
            filling.refuse(row)
        rank = np.where(np.isfinite(jobs.deadline), np.where(late, 1, 0), 2)
        order = np.lexsort((jobs.submitted, ~filling.running, np.nan_to_num(jobs.deadline, nan=np.inf), rank))
        filling.fill(order)
        filling.improve(order)
        why = WaitingReasons(filling.shape, order, filling.possible, "deadline", refused)
        return Allocation(filling.shape, order, why, tuple(refused))

    def _refused(self, filling: Filling, due: Floats) -> dict[int, str]:
        """New jobs whose hard deadline would be missed, or would make a promised one be missed, and why."""
        jobs = filling.jobs
        hard = jobs.hard & np.isfinite(jobs.deadline)
        promised = hard & self._begun(jobs, filling.previous)
        plan = _Plan(filling, due, self.settings.margin)
        new = np.flatnonzero(hard & ~promised & filling.possible).tolist()
        missed: set[int] = plan.missed(promised) if new else set()
        refused = {}
        for row in new:
            promised[row] = plan.seconds_alone(row) <= due[row]
            if promised[row] and plan.missed(promised) <= missed:
                continue
            promised[row] = False
            refused[row] = plan.sentence(row)
        self._promised = {jobs.ids[row] for row in np.flatnonzero(promised).tolist()}
        return refused

    def _begun(self, jobs: Jobs, previous: Allocation) -> Bools:
        """Jobs that were promised their deadline: remembered so, or at work already."""
        known = np.fromiter((job in self._promised for job in jobs.ids), dtype=bool, count=len(jobs))
        return np.asarray(known | (previous.shape != WAITING) | (jobs.attained > 0))


class _Plan:
    """Jobs that would miss a deadline if certain jobs ran alone, each in the group where it ends first."""

    def __init__(self, filling: Filling, due: Floats, margin: float) -> None:
        self._filling, self._due, self._margin = filling, due, margin
        self._ways: dict[int, list[tuple[int, int, float]]] = {}

    def missed(self, rows: Bools) -> set[int]:
        """Jobs that would end too late, planned one after the other by deadline."""
        free = [np.zeros(group.nodes * max(1, group.gpus)) for group in self._filling.cluster.groups]
        chosen = np.flatnonzero(rows)
        late = set()
        for row in chosen[np.argsort(self._due[chosen], kind="stable")].tolist():
            if not self._place(row, free):
                late.add(row)
        return late

    def _place(self, row: int, free: list[Floats]) -> bool:
        """Put a job where it ends first; whether that is in time. A job of unknown length always is."""
        best: tuple[float, int, int] | None = None
        for group, taken, seconds in self._ways_of(row):
            if len(free[group]) >= taken:
                end = float(free[group][taken - 1] + seconds) if taken else seconds
                best = min(best or (end, group, taken), (end, group, taken))
        if best is None:
            return True
        end, group, taken = best
        free[group][:taken] = end
        free[group].sort()
        return bool(end <= self._due[row])

    def seconds_alone(self, row: int) -> float:
        """How long a job takes at least; nothing where that is not known."""
        return min((seconds for _, _, seconds in self._ways_of(row)), default=0.0)

    def _ways_of(self, row: int) -> list[tuple[int, int, float]]:
        if row not in self._ways:
            self._ways[row] = self._find_ways(row)
        return self._ways[row]

    def _find_ways(self, row: int) -> list[tuple[int, int, float]]:
        """For each group the accelerators and the seconds of the job's fastest shape, where known."""
        filling, jobs = self._filling, self._filling.jobs
        speed = np.where(filling.usable[row], jobs.speed[row], 0.0)
        found = []
        for group in range(len(filling.cluster.groups)):
            here = np.where(filling.cluster.shape_group == group, np.nan_to_num(speed), 0.0)
            shape = int(here.argmax())
            work = self._margin * jobs.remaining[row]
            if here[shape] > 0 and np.isfinite(work):
                begun = filling.own[row] == shape
                seconds = float(work / here[shape]) + (0.0 if begun else float(jobs.restart_seconds[row]))
                taken = int(np.ceil(filling.cluster.shape_workers[shape] * jobs.gpus[row] - 1e-9))
                found.append((group, taken, seconds))
        return found

    def sentence(self, row: int) -> str:
        """Why a job cannot be promised its deadline."""
        alone = self.seconds_alone(row)
        if alone > self._due[row]:
            return f"refused: it takes at least {alone:.0f} s and its deadline is in {self._due[row]:.0f} s"
        return f"refused: with jobs promised before, its deadline in {self._due[row]:.0f} s cannot be met"
