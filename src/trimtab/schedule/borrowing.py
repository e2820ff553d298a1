"""Quotas over any policy: idle guarantees are lent, and taken back by stopping who borrowed."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.core import Clock
from trimtab.schedule.allocation import WAITING, Allocation, SchedulingPolicy
from trimtab.schedule.cluster import Cluster, Ints
from trimtab.schedule.jobs import Jobs
from trimtab.schedule.policies.filling import Filling, workers_of
from trimtab.schedule.quota import Line, Quotas, limit_of

_SLACK = 1e-9


@dataclass(slots=True)
class WithQuotas:
    """Any policy, within quotas.

    What the policy decides stands as far as guarantees and limits allow. Jobs within their tenant's guarantee
    come first, then those within the guarantee of a tenant above it, then those that borrow what is idle.
    Of borrowers, the lowest priority gives way first, then the tenant that has borrowed most for its weight,
    then the youngest.
    """

    policy: SchedulingPolicy
    quotas: Quotas

    def allocate(self, jobs: Jobs, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        wanted = self.policy.allocate(jobs, cluster, previous, clock)
        lines = [self.quotas.line(name) for name in jobs.tenants]
        if _in_order(jobs, cluster, wanted, lines):
            return wanted
        corrected = _Correction(jobs, cluster, wanted, lines)
        shape = corrected.run()
        why = {**wanted.why}
        for row in np.flatnonzero(shape != wanted.shape).tolist():
            why[row] = corrected.reason(row)
        return Allocation(shape, wanted.order, why, wanted.refused)


def _in_order(jobs: Jobs, cluster: Cluster, wanted: Allocation, lines: Sequence[Line]) -> bool:
    """Whether nobody is above a limit, and nobody waits who would be within a guarantee."""
    runs = wanted.shape != WAITING
    size = np.where(runs, workers_of(cluster, wanted.shape), jobs.least) * jobs.gpus
    used: defaultdict[str, float] = defaultdict(float)
    of_tenant = np.bincount(jobs.tenant[runs], weights=size[runs], minlength=len(lines))
    for line, amount in zip(lines, of_tenant.tolist(), strict=True):
        for tenant in line:
            used[tenant.name] += amount
    if any(used[tenant.name] > limit_of(tenant) + _SLACK for line in lines for tenant in line):
        return False
    owed = np.array([max(tenant.guarantee - used[tenant.name] for tenant in line) for line in lines])
    return not bool((~runs & (size > 0) & (size <= owed[jobs.tenant] + _SLACK)).any())


class _Correction:
    """The shapes a policy wanted, changed so that guarantees and limits hold."""

    def __init__(self, jobs: Jobs, cluster: Cluster, wanted: Allocation, lines: Sequence[Line]) -> None:
        self._jobs, self._cluster, self._wanted, self._lines = jobs, cluster, wanted, lines
        self._filling = Filling(jobs, cluster, wanted)
        for row in wanted.refused:
            self._filling.refuse(row)
        self._used: defaultdict[str, float] = defaultdict(float)
        self._borrowed: defaultdict[str, float] = defaultdict(float)
        # What the policy leaves idle: who is owed something gets it from there, before anybody is stopped.
        self._idle = cluster.capacity.copy()
        for row in np.flatnonzero(wanted.shape != WAITING).tolist():
            self._idle[self._group(row)] -= self._filling.need(row, int(wanted.shape[row]))

    def run(self) -> Ints:
        """Those within guarantees, those who borrow what the policy gave them, those who find a place."""
        jobs, shape = self._jobs, self._filling.shape
        order = self._wanted.order
        chosen = order[self._wanted.shape[order] != WAITING].tolist()
        waiting = np.flatnonzero((self._wanted.shape == WAITING) & self._filling.possible)
        others = waiting[np.lexsort((jobs.submitted[waiting], -jobs.priority[waiting]))].tolist()
        for level in range(max((len(line) for line in self._lines), default=0)):
            for row in (*chosen, *others):
                if shape[row] == WAITING:
                    self._give_owed(row, level)
        self._let_borrow([row for row in chosen if shape[row] != self._wanted.shape[row]])
        for row in others:
            if shape[row] == WAITING:
                self._give_within(row, self._below_limits(row))
        return shape

    def reason(self, row: int) -> str:
        """Why a job has not got what the policy wanted for it."""
        name = self._jobs.tenants[self._jobs.tenant[row]]
        if self._wanted.shape[row] == WAITING:
            return f"runs within what {name} may use"
        wanted = self._size(row, int(self._wanted.shape[row]))
        for tenant in self._line(row):
            if (
                self._used[tenant.name] + self._size(row, int(self._wanted.shape[row]))
                > limit_of(tenant) + _SLACK
            ):
                return f"{tenant.name} may use at most {tenant.limit:g} accelerators at a time"
        return f"the {wanted:g} accelerators it would borrow for {name} are guaranteed to others"

    def _line(self, row: int) -> Line:
        return self._lines[int(self._jobs.tenant[row])]

    def _group(self, row: int) -> int:
        return int(self._cluster.shape_group[self._wanted.shape[row]])

    def _size(self, row: int, shape: int) -> float:
        """The accelerators of a job in a shape."""
        return float(self._cluster.shape_workers[shape] * self._jobs.gpus[row])

    def _below_limits(self, row: int) -> float:
        """How many accelerators a job may have before a limit is reached."""
        return min(limit_of(tenant) - self._used[tenant.name] for tenant in self._line(row)) + _SLACK

    def _give_owed(self, row: int, level: int) -> None:
        """Give a job what fits into the guarantee of its tenant, or of one so many levels above."""
        line = self._line(row)
        if level < len(line) and line[level].guarantee > 0 and self._jobs.gpus[row] > 0:
            owed = line[level].guarantee - self._used[line[level].name] + _SLACK
            self._give_within(row, min(owed, self._below_limits(row)))

    def _give_within(self, row: int, most: float) -> None:
        """Give a job a shape of at most so many accelerators: the one wanted, an idle one, or the fastest."""
        shapes = [shape for shape in self._filling.fitting(row) if self._size(row, shape) <= most]
        if not shapes:
            return
        wanted = int(self._wanted.shape[row])
        idle = [shape for shape in shapes if self._is_idle(row, shape)]
        shape = wanted if wanted in shapes else (idle or shapes)[0]
        if shape in idle:
            self._idle[self._cluster.shape_group[shape]] -= self._filling.need(row, shape)
        self._give(row, shape)

    def _is_idle(self, row: int, shape: int) -> bool:
        idle = self._idle[self._cluster.shape_group[shape]] + _SLACK
        return bool((np.array(self._filling.need(row, shape)) <= idle).all())

    def _give(self, row: int, shape: int) -> None:
        self._filling.give(row, shape)
        for tenant in self._line(row):
            self._used[tenant.name] += self._size(row, shape)

    def _take(self, row: int) -> None:
        """Take back what a job was given."""
        shape = int(self._filling.shape[row])
        for tenant in self._line(row):
            self._used[tenant.name] -= self._size(row, shape)
        self._filling.take(row)

    def _let_borrow(self, rows: list[int]) -> None:
        """What the policy wanted for these, as far as there is room and limits allow.

        By priority, then the tenant that has borrowed least for its weight, then the oldest.
        """
        jobs = self._jobs
        queues: dict[float, dict[int, list[int]]] = {}
        for row in sorted(rows, key=lambda row: (-jobs.submitted[row], -row)):
            queues.setdefault(float(jobs.priority[row]), {}).setdefault(int(jobs.tenant[row]), []).append(row)
        for priority in sorted(queues, reverse=True):
            tenants = queues[priority]
            while tenants:
                tenant = min(
                    tenants, key=lambda each: (self._borrowing(each), jobs.submitted[tenants[each][-1]])
                )
                row = tenants[tenant].pop()
                if not tenants[tenant]:
                    del tenants[tenant]
                self._borrow(row)

    def _borrowing(self, tenant: int) -> float:
        return self._borrowed[self._lines[tenant][0].name] / self._lines[tenant][0].weight

    def _borrow(self, row: int) -> None:
        """Give a job all that was wanted for it, or what else it may run in, or leave it what it has."""
        had, tenant = int(self._filling.shape[row]), self._line(row)[0].name
        before = self._used[tenant]
        if had != WAITING:
            self._take(row)
        self._give_within(row, self._below_limits(row))
        if self._filling.shape[row] == WAITING and had != WAITING:
            self._give(row, had)
        self._borrowed[tenant] += self._used[tenant] - before
