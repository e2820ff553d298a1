"""Trimtab's own policy: an integer program over jobs and shapes for the least time that all spend waiting.

Suppose an accelerator-second costs others p seconds. A job that does v units of work per second in a shape
of k accelerators then costs (1 + p·k) / v per unit: its own seconds, and those of the jobs it delays. So a
unit of its work is worth c = min (1 + p·k) / v, and a second in a shape c·v. Each round chooses the shapes
with the largest total worth within the groups' capacity. The prices p come from the same programs: the worth
of one more accelerator in the last rounds.

Everything else is in that objective too, by the weights of `TrimtabSettings`: restarts and fetched data
shorten the time that a job works in a shape; nodes that are reclaimed slow it down; dollars are seconds at a
rate; deadlines, priorities, age, size and the tenant's share change the weight of a job's seconds. A rough
estimate of the remaining work is enough.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from trimtab.core import Clock
from trimtab.schedule.allocation import WAITING, Allocation, JobColumns
from trimtab.schedule.cluster import Cluster, Floats, Ints
from trimtab.schedule.policies.assignment import Assignment, AssignmentProblem, assign
from trimtab.schedule.policies.filling import NO_GROUP_HOLDS_IT
from trimtab.schedule.policies.worth import TrimtabSettings, Worth

_FADING = 3600.0  # seconds after which accelerator-seconds that a tenant has had count 1/e
_LEAST, _MOST = 0.5, 2.0


class TenantShares:
    """Accelerator-seconds of each tenant, fading; all tenants that have jobs are due equal shares."""

    def __init__(self) -> None:
        self._had: dict[str, float] = {}
        self._last: float | None = None

    def account(self, jobs: JobColumns, cluster: Cluster, previous: Allocation, now: float) -> None:
        """Add the accelerator-seconds that tenants have had since the last round."""
        passed = 0.0 if self._last is None else max(0.0, now - self._last)
        self._last = now
        fading = np.exp(-passed / _FADING)
        self._had = {name: amount * fading for name, amount in self._had.items()}
        rows = np.flatnonzero(previous.shape != WAITING)
        held = jobs.gpus[rows] * cluster.shape_workers[previous.shape[rows]] * passed
        amounts = np.bincount(jobs.tenant[rows], weights=held, minlength=len(jobs.tenants))
        for name, amount in zip(jobs.tenants, amounts.tolist(), strict=True):
            self._had[name] = self._had.get(name, 0.0) + amount

    def due(self, jobs: JobColumns, power: float) -> Floats:
        """The weight of each tenant's jobs, from half to twice; 1 where only one has any."""
        weights = np.ones(len(jobs.tenants))
        present = np.unique(jobs.tenant)
        had = np.array([self._had.get(jobs.tenants[tenant], 0.0) for tenant in present])
        total = float(had.sum())
        if len(present) > 1 and total > 0:
            share = np.maximum(had / total, 1e-3)
            weights[present] = np.clip((1.0 / len(present) / share) ** power, _LEAST, _MOST)
        return weights


class Bids(Mapping[int, str]):
    """By job: the value of its best shape to itself, and the cost to other jobs at the round's prices."""

    def __init__(self, worth: Worth, problem: AssignmentProblem, answer: Assignment, pinned: Ints) -> None:
        self._worth, self._problem, self._answer, self._pinned = worth, problem, answer, pinned

    def __getitem__(self, row: int) -> str:
        if not 0 <= row < len(self):
            raise KeyError(row)
        worth, value = self._worth, self._problem.value[row]
        if self._pinned[row] != WAITING:
            cause = "it has just started there" if worth.jobs.settling[row] else "it is not preemptible"
            return f"{self._named(int(self._pinned[row]))}: {cause}"
        if np.isneginf(value).all():
            return worth.why_impossible(row)
        charged = self._problem.workers * (
            self._problem.demand[row] @ self._answer.prices[self._problem.group].T
        )
        shape = int(self._answer.shape[row])
        best = int(np.argmax(value - charged)) if shape == WAITING else shape
        verbs = ("would save", "delay") if shape == WAITING else ("saves", "delays")
        bid = (
            f"{self._named(best)} {verbs[0]} it {value[best]:.2g} s of waiting per second"
            f" and {verbs[1]} other jobs by {charged[best]:.2g} s"
        )
        return f"other jobs gain more from the nodes now: {bid}" if shape == WAITING else bid

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        return len(self._answer.shape)

    def _named(self, shape: int) -> str:
        chosen = self._worth.cluster.shapes[shape]
        group = self._worth.cluster.groups[chosen.group]
        return f"{chosen.workers} worker{'s' if chosen.workers > 1 else ''} on {group.name}"


class Trimtab:
    """Least total waiting, by prices of capacity."""

    def __init__(self, settings: TrimtabSettings | None = None) -> None:
        self.settings = settings or TrimtabSettings()
        self._prices: Floats | None = None
        self._shares = TenantShares()

    def allocate(self, jobs: JobColumns, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        if not len(jobs) or not cluster.shapes:
            nothing = Allocation.nothing(len(jobs))
            return replace(nothing, why=dict.fromkeys(range(len(jobs)), NO_GROUP_HOLDS_IT))
        now, settings = clock.now(), self.settings
        if self._prices is None or self._prices.shape != cluster.capacity.shape:
            self._prices = np.zeros_like(cluster.capacity)
        self._shares.account(jobs, cluster, previous, now)
        due = self._shares.due(jobs, settings.fairness)
        worth = Worth(settings, jobs, cluster, previous, now, self._prices, due)
        # Stopping a job that is just restarting would waste the restart.
        pinned = np.where(jobs.settling | ~jobs.preemptible, previous.shape, WAITING)
        problem = AssignmentProblem.of(worth.value(), cluster, jobs.demand, pinned)
        loyalty = settings.loyalty * float(
            np.mean(jobs.restart_seconds > 0)
        )  # moves without a restart cost nothing
        answer = assign(problem, previous.shape, settings.seconds, loyalty)
        self._prices = (1.0 - settings.remember) * self._prices + settings.remember * answer.prices
        gain = problem.gains(answer.prices).max(axis=1, initial=-np.inf)
        shape = np.where(pinned == WAITING, answer.shape, pinned)
        order = np.argsort(-gain, kind="stable")
        why = Bids(worth, problem, answer, pinned)
        ready = np.asarray(np.isfinite(problem.value).any(axis=1))
        return Allocation(shape, order, why, tuple(np.flatnonzero(worth.hopeless).tolist()), ready)
