"""Quotas of tenants in a tree, over any policy: idle guarantees are lent, and reclaimed from borrowers."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab.core import BadInputError, Clock, did_you_mean
from trimtab.schedule.allocation import WAITING, Allocation, JobColumns, SchedulingPolicy
from trimtab.schedule.cluster import Cluster, Ints
from trimtab.schedule.job import Job
from trimtab.schedule.policies.filling import Filling, workers_of
from trimtab.store import Tenant

_SLACK = 1e-9

Line = tuple[Tenant, ...]
"""A tenant, its parent, and so on to the top."""


def limit_of(tenant: Tenant) -> float:
    """The most accelerators a tenant and all below it may have at a time."""
    return np.inf if tenant.limit is None else tenant.limit


class Quotas:
    """Tenants in a tree: a guarantee or limit is for a tenant and all below it together.

    A tenant that is not named has no guarantee, no limit and no parent.
    """

    def __init__(self, tenants: Iterable[Tenant]) -> None:
        listed = tuple(tenants)
        twice = [name for name, count in Counter(tenant.name for tenant in listed).items() if count > 1]
        if twice:
            raise BadInputError(f"tenant {twice[0]} is named twice; name it once")
        self.tenants: Mapping[str, Tenant] = {tenant.name: tenant for tenant in listed}
        for tenant in listed:
            if not 0 <= tenant.guarantee < np.inf:
                raise BadInputError(
                    f"tenant {tenant.name}: a guarantee is 0 or more accelerators, not {tenant.guarantee:g}"
                )
            if not 0 < tenant.weight < np.inf:
                raise BadInputError(f"tenant {tenant.name}: a weight is above 0, not {tenant.weight:g}")
            if not limit_of(tenant) >= tenant.guarantee:
                raise BadInputError(
                    f"tenant {tenant.name}: the limit {tenant.limit} is below the guarantee"
                    f" {tenant.guarantee:g}"
                )
            self._check_parents(tenant)
        for tenant in listed:
            self._check_guarantees(tenant)

    def line(self, name: str) -> Line:
        """A tenant, its parent, and so on to the top."""
        line = [self.tenants.get(name) or Tenant(name)]
        while line[-1].parent is not None:
            line.append(self.tenants[line[-1].parent])
        return tuple(line)

    def _check_parents(self, tenant: Tenant) -> None:
        names = [tenant.name]
        while (parent := self.tenants[names[-1]].parent) is not None:
            if parent not in self.tenants:
                hint = did_you_mean(parent, self.tenants) or "; name it as a tenant too"
                raise BadInputError(f"tenant {names[-1]} has the parent {parent}, which is no tenant{hint}")
            if parent in names:
                circle = " → ".join([*names[names.index(parent) :], parent])
                raise BadInputError(f"tenants are in a circle: {circle}; one of them must have no parent")
            names.append(parent)

    def _check_guarantees(self, tenant: Tenant) -> None:
        below = [child for child in self.tenants.values() if child.parent == tenant.name]
        promised = sum(child.guarantee for child in below)
        if promised > tenant.guarantee + _SLACK:
            names = " and ".join(child.name for child in below if child.guarantee)
            raise BadInputError(
                f"{names} below {tenant.name} {'are' if len(below) > 1 else 'is'} guaranteed {promised:g}"
                f" accelerators, more than the {tenant.guarantee:g} of {tenant.name} itself;"
                f" raise its guarantee or lower theirs"
            )


def refuse_above_limit(job: Job, quotas: Quotas) -> None:
    """Raise where a job needs more accelerators than its tenant, or one above it, may ever have."""
    needed = job.least * job.worker.gpus
    for tenant in quotas.line(job.workload.tenant):
        if needed > limit_of(tenant) + _SLACK:
            raise BadInputError(
                f'the job "{job.workload.name}" cannot run: it needs {needed:g} accelerators, and tenant'
                f" {tenant.name} may have at most {tenant.limit:g}"
            )


def jain_index(shares: Iterable[float]) -> float:
    """Evenness of shares: 1 where all are equal or none exist, 1/n where one of n has everything."""
    values = np.array(list(shares), dtype=float)
    squares = float((values**2).sum())
    return float(values.sum() ** 2 / (len(values) * squares)) if squares > 0 else 1.0


@dataclass(slots=True)
class WithQuotas:
    """Any policy, within quotas.

    The policy's allocation stands as far as guarantees and limits allow. Jobs within their tenant's guarantee
    come first, then those within the guarantee of a tenant above it, then those that borrow idle capacity.
    Of borrowers, the lowest priority gives way first, then the tenant that has borrowed most for its weight,
    then the youngest. Jobs that are not preemptible keep their shape even where they borrow.
    """

    policy: SchedulingPolicy
    quotas: Quotas

    def allocate(self, jobs: JobColumns, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        proposed = self.policy.allocate(jobs, cluster, previous, clock)
        lines = [self.quotas.line(name) for name in jobs.tenants]
        # Quotas are of accelerators: a job with any starts only in a round, where they are counted.
        ready = (jobs.gpus == 0) if proposed.ready is None else proposed.ready & (jobs.gpus == 0)
        if _in_order(jobs, cluster, proposed, lines):
            return replace(proposed, ready=ready)
        # A job that does not run yet has nothing to keep.
        starting = replace(jobs, preemptible=jobs.preemptible | (previous.shape == WAITING))
        corrected = _Correction(starting, cluster, proposed, lines)
        shape = corrected.run()
        why = {**proposed.why}
        for row in np.flatnonzero(shape != proposed.shape).tolist():
            why[row] = corrected.reason(row)
        return Allocation(shape, proposed.order, why, proposed.refused, ready)


def _in_order(jobs: JobColumns, cluster: Cluster, proposed: Allocation, lines: Sequence[Line]) -> bool:
    """Whether no tenant is above a limit, and no job waits that would be within a guarantee."""
    runs = proposed.shape != WAITING
    size = np.where(runs, workers_of(cluster, proposed.shape), jobs.least) * jobs.gpus
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
    """The policy's shapes, changed so that guarantees and limits hold."""

    def __init__(
        self, jobs: JobColumns, cluster: Cluster, proposed: Allocation, lines: Sequence[Line]
    ) -> None:
        self._jobs, self._cluster, self._proposed, self._lines = jobs, cluster, proposed, lines
        self._filling = Filling(jobs, cluster, proposed)
        for row in proposed.refused:
            self._filling.refuse(row)
        self._used: defaultdict[str, float] = defaultdict(float)
        self._borrowed: defaultdict[str, float] = defaultdict(float)
        # Tenants that are owed capacity get it from what the policy leaves idle before a job is stopped.
        self._idle = cluster.capacity.copy()
        for row in np.flatnonzero(proposed.shape != WAITING).tolist():
            shape = int(proposed.shape[row])
            self._idle[cluster.shape_group[shape]] -= self._filling.need(row, shape)
            if self._filling.shape[row] != WAITING:  # not preemptible
                self._count(row, shape)

    def run(self) -> Ints:
        """Serve jobs within guarantees, then borrowers that the policy chose, then any job that fits."""
        jobs, shape = self._jobs, self._filling.shape
        order = self._proposed.order
        chosen = order[self._proposed.shape[order] != WAITING].tolist()
        waiting = np.flatnonzero((self._proposed.shape == WAITING) & self._filling.possible)
        others = waiting[np.lexsort((jobs.submitted[waiting], -jobs.priority[waiting]))].tolist()
        for level in range(max((len(line) for line in self._lines), default=0)):
            for row in (*chosen, *others):
                line = self._line(row)
                if shape[row] == WAITING and level < len(line) and jobs.gpus[row] > 0:
                    owed = line[level].guarantee - self._used[line[level].name] + _SLACK
                    if line[level].guarantee > 0:
                        self._give_within(row, min(owed, self._below_limits(row)))
        self._let_borrow([row for row in chosen if shape[row] != self._proposed.shape[row]])
        for row in others:
            if shape[row] == WAITING:
                self._give_within(row, self._below_limits(row))
        return shape

    def reason(self, row: int) -> str:
        """The quota by which a job's shape differs from the policy's."""
        tenant = self._line(row)[0]
        guaranteed = f"{self._used[tenant.name]:g} of {tenant.guarantee:g} guaranteed accelerators are in use"
        if self._proposed.shape[row] == WAITING:
            return f"runs within the quota of tenant {tenant.name}: {guaranteed}"
        size = self._size(row, int(self._proposed.shape[row]))
        for above in self._line(row):
            used = self._used[above.name]
            if used + size > limit_of(above) + _SLACK:
                return (
                    f"quota of tenant {above.name}: {used:g} of at most {above.limit:g} accelerators are"
                    f" in use, and it needs {size:g}"
                )
        return (
            f"quota of tenant {tenant.name}: {guaranteed}, and the {size:g} that it would borrow are"
            " guaranteed to other tenants"
        )

    def _line(self, row: int) -> Line:
        return self._lines[int(self._jobs.tenant[row])]

    def _size(self, row: int, shape: int) -> float:
        """The accelerators of a job in a shape."""
        return float(self._cluster.shape_workers[shape] * self._jobs.gpus[row])

    def _below_limits(self, row: int) -> float:
        """Accelerators that a job may have before a limit is reached."""
        return min(limit_of(tenant) - self._used[tenant.name] for tenant in self._line(row)) + _SLACK

    def _give_within(self, row: int, most: float) -> None:
        """Give a job a shape of at most so many accelerators: the policy's, an idle one, or the fastest."""
        shapes = [shape for shape in self._filling.fitting(row) if self._size(row, shape) <= most]
        if not shapes:
            return
        proposed, group = int(self._proposed.shape[row]), self._cluster.shape_group
        need = {shape: np.array(self._filling.need(row, shape)) for shape in shapes}
        idle = [shape for shape in shapes if (need[shape] <= self._idle[group[shape]] + _SLACK).all()]
        shape = proposed if proposed in shapes else (idle or shapes)[0]
        if shape in idle:
            self._idle[group[shape]] -= need[shape]
        self._give(row, shape)

    def _give(self, row: int, shape: int) -> None:
        self._filling.give(row, shape)
        self._count(row, shape)

    def _count(self, row: int, shape: int, sign: int = 1) -> None:
        for tenant in self._line(row):
            self._used[tenant.name] += sign * self._size(row, shape)

    def _let_borrow(self, rows: list[int]) -> None:
        """Give jobs the policy's shapes, as far as there is room and limits allow.

        By priority, then the tenant that has borrowed least for its weight, then the oldest.
        """
        jobs = self._jobs
        queues: dict[float, dict[int, list[int]]] = {}
        for row in sorted(rows, key=lambda row: (-jobs.submitted[row], -row)):
            queues.setdefault(float(jobs.priority[row]), {}).setdefault(int(jobs.tenant[row]), []).append(row)
        for priority in sorted(queues, reverse=True):
            tenants = queues[priority]

            def turn(number: int, tenants: dict[int, list[int]] = tenants) -> tuple[float, float]:
                tenant = self._lines[number][0]
                return self._borrowed[tenant.name] / tenant.weight, jobs.submitted[tenants[number][-1]]

            while tenants:
                number = min(tenants, key=turn)
                row = tenants[number].pop()
                if not tenants[number]:
                    del tenants[number]
                self._borrow(row)

    def _borrow(self, row: int) -> None:
        """Give a job the policy's shape, or another that it may have, or leave it the one it has."""
        had, tenant = int(self._filling.shape[row]), self._line(row)[0].name
        before = self._used[tenant]
        if had != WAITING:
            self._count(row, had, -1)
            self._filling.take(row)
        self._give_within(row, self._below_limits(row))
        if self._filling.shape[row] == WAITING and had != WAITING:
            self._give(row, had)
        self._borrowed[tenant] += self._used[tenant] - before
