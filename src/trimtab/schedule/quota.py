"""Quotas of tenants in a tree, over any policy: idle guarantees are lent, and reclaimed from borrowers."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.core import BadInputError, Clock, did_you_mean
from trimtab.schedule.allocation import WAITING, Allocation, Jobs, SchedulingPolicy
from trimtab.schedule.cluster import Cluster, Ints
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
            raise BadInputError(f"tenant {twice[0]} is named twice; once is enough")
        self._tenants = {tenant.name: tenant for tenant in listed}
        for tenant in listed:
            _check_numbers(tenant)
            self._check_parent(tenant)
        for tenant in listed:
            self._check_guarantees(tenant)

    @property
    def tenants(self) -> Mapping[str, Tenant]:
        """By name."""
        return self._tenants

    def line(self, name: str) -> Line:
        """A tenant, its parent, and so on to the top."""
        found = [self._tenants.get(name) or Tenant(name)]
        while found[-1].parent is not None:
            found.append(self._tenants[found[-1].parent])
        return tuple(found)

    def _check_parent(self, tenant: Tenant) -> None:
        seen = [tenant.name]
        while (parent := self._tenants[seen[-1]].parent) is not None:
            if parent not in self._tenants:
                known = did_you_mean(parent, self._tenants) or "; name it as a tenant too"
                raise BadInputError(f"tenant {seen[-1]} has the parent {parent}, which is no tenant{known}")
            if parent in seen:
                circle = " → ".join([*seen[seen.index(parent) :], parent])
                raise BadInputError(f"tenants are in a circle: {circle}; one of them must have no parent")
            seen.append(parent)

    def _check_guarantees(self, tenant: Tenant) -> None:
        below = [each for each in self._tenants.values() if each.parent == tenant.name]
        promised = sum(each.guarantee for each in below)
        if promised > tenant.guarantee + _SLACK:
            names = " and ".join(each.name for each in below if each.guarantee)
            raise BadInputError(
                f"{names} below {tenant.name} {'are' if len(below) > 1 else 'is'} guaranteed {promised:g}"
                f" accelerators, more than the {tenant.guarantee:g} of {tenant.name} itself;"
                f" raise its guarantee or lower theirs"
            )


def _check_numbers(tenant: Tenant) -> None:
    if not 0 <= tenant.guarantee < np.inf:
        raise BadInputError(
            f"tenant {tenant.name}: a guarantee is 0 or more accelerators, not {tenant.guarantee:g}"
        )
    if not 0 < tenant.weight < np.inf:
        raise BadInputError(f"tenant {tenant.name}: a weight is above 0, not {tenant.weight:g}")
    if not limit_of(tenant) >= tenant.guarantee:
        raise BadInputError(
            f"tenant {tenant.name}: the limit {tenant.limit} is below the guarantee {tenant.guarantee:g}"
        )


def jain_index(shares: Iterable[float]) -> float:
    """How even shares are: 1 where all are equal, 1/n where one has everything; 1 where there are none."""
    values = np.array(list(shares), dtype=float)
    squares = float((values**2).sum())
    return float(values.sum() ** 2 / (len(values) * squares)) if squares > 0 else 1.0


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
        """Serve jobs within guarantees, then borrowers that the policy chose, then any job that fits."""
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
        """Give jobs what the policy wanted for them, as far as there is room and limits allow.

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
