"""Earliest deadline first, preemptive. A hard deadline is promised at arrival, or the job is refused."""

from dataclasses import dataclass, field

import numpy as np

from trimtab.core import Clock
from trimtab.schedule.allocation import WAITING, Allocation, Bools, JobColumns
from trimtab.schedule.cluster import Cluster, Floats
from trimtab.schedule.policies.filling import Filling, deadline_missed


@dataclass(frozen=True, slots=True)
class EdfSettings:
    """How sure a promise must be."""

    margin: float = 1.0  # factor on a job's expected remaining work when its deadline is promised


@dataclass(slots=True)
class Edf:
    """Jobs that can still be in time by deadline, then late ones, then jobs without a deadline."""

    settings: EdfSettings = field(default_factory=EdfSettings)
    _promised: set[str] = field(default_factory=set, init=False, repr=False)

    def allocate(self, jobs: JobColumns, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        filling = Filling(jobs, cluster, previous)
        due = jobs.deadline - clock.now()
        with np.errstate(invalid="ignore"):
            late = due < jobs.remaining / filling.best_speed()
        refused = self._refused(filling, due)
        for row in refused:
            filling.refuse(row)
        rank = np.where(np.isfinite(jobs.deadline), np.where(late, 1, 0), 2)
        order = np.lexsort((jobs.submitted, ~filling.running, np.nan_to_num(jobs.deadline, nan=np.inf), rank))
        return filling.allocation(order, "deadline", refused)

    def _refused(self, filling: Filling, due: Floats) -> dict[int, str]:
        """New jobs whose hard deadline would be missed, or would make a promised one be missed, and why."""
        jobs = filling.jobs
        hard = jobs.hard & np.isfinite(jobs.deadline)
        accepted = np.fromiter((job in self._promised for job in jobs.ids), dtype=bool, count=len(jobs))
        promised = hard & (accepted | (filling.previous.shape != WAITING) | (jobs.attained > 0))
        plan = _Plan(filling, due, self.settings.margin)
        new = np.flatnonzero(hard & ~promised & filling.possible).tolist()
        missed: set[int] = plan.missed(promised) if new else set()
        refused = {}
        for row in new:
            alone = min((seconds for _, _, seconds in plan.ways(row)), default=0.0)
            promised[row] = alone <= due[row]
            if promised[row] and plan.missed(promised) <= missed:
                continue
            note = ", besides the jobs whose deadlines are already promised" if promised[row] else ""
            promised[row] = False
            refused[row] = deadline_missed(alone, float(due[row])) + note
        self._promised = {jobs.ids[row] for row in np.flatnonzero(promised).tolist()}
        return refused


class _Plan:
    """Jobs that would miss a deadline if certain jobs ran alone, each in the group where it ends first."""

    def __init__(self, filling: Filling, due: Floats, margin: float) -> None:
        self._filling, self._due, self._margin = filling, due, margin
        self._ways: dict[int, list[tuple[int, int, float]]] = {}

    def missed(self, rows: Bools) -> set[int]:
        """Jobs of known length that would end too late, planned one after the other by deadline."""
        free = [np.zeros(group.nodes * max(1, group.gpus)) for group in self._filling.cluster.groups]
        chosen = np.flatnonzero(rows)
        late = set()
        for row in chosen[np.argsort(self._due[chosen], kind="stable")].tolist():
            ends = [
                (float(free[group][gpus - 1] + seconds) if gpus else seconds, group, gpus)
                for group, gpus, seconds in self.ways(row)
                if len(free[group]) >= gpus
            ]
            if ends:
                end, group, gpus = min(ends)
                free[group][:gpus] = end
                free[group].sort()
                if end > self._due[row]:
                    late.add(row)
        return late

    def ways(self, row: int) -> list[tuple[int, int, float]]:
        """Group, accelerators and seconds of the job's fastest shape in each group where they are known."""
        if row not in self._ways:
            filling, jobs = self._filling, self._filling.jobs
            speed = np.where(filling.usable[row], jobs.speed[row], 0.0)
            work = self._margin * jobs.remaining[row]
            self._ways[row] = []
            for group in range(len(filling.cluster.groups)):
                group_speed = np.where(filling.cluster.shape_group == group, np.nan_to_num(speed), 0.0)
                shape = int(group_speed.argmax())
                if group_speed[shape] > 0 and np.isfinite(work):
                    restart = 0.0 if filling.own[row] == shape else float(jobs.restart_seconds[row])
                    gpus = int(np.ceil(filling.cluster.shape_workers[shape] * jobs.gpus[row] - 1e-9))
                    self._ways[row].append((group, gpus, float(work / group_speed[shape]) + restart))
        return self._ways[row]
