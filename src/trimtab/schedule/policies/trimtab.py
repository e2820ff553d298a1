"""Trimtab's own policy: an integer program over jobs and shapes for the least time that all spend waiting.

Suppose an accelerator-second costs others p seconds. A job that does v units of work per second in a shape
of k accelerators then costs (1 + p·k) / v per unit: its own seconds, and those of whom it keeps waiting. So
a unit of its work is worth c = min (1 + p·k) / v, and a second in a shape c·v. Chosen is what is worth most
together within what groups have. The prices p come from the same programs: what one more accelerator would
have been worth in the last rounds.

All else is in that objective too, by the weights of `TrimtabSettings`: restarts and fetched data shorten
the time that a job works in a shape; nodes that are reclaimed slow it down; dollars are seconds at a rate;
deadlines, priorities, age, size and the tenant's share make a job's seconds count more or less. Of what is
left of a job it only needs a rough idea.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from trimtab.core import Clock
from trimtab.schedule.allocation import WAITING, Allocation, Jobs
from trimtab.schedule.cluster import Cluster, Floats, Ints
from trimtab.schedule.policies.assignment import Assignment, AssignmentProblem, assign
from trimtab.schedule.policies.worth import TrimtabSettings, Worth

_LATELY = 3600.0  # seconds after which what was had counts about a third
_LEAST, _MOST = 0.5, 2.0


class TenantShares:
    """Accelerator-seconds of each tenant, fading; equal shares are due to all who have jobs."""

    def __init__(self) -> None:
        self._had: dict[str, float] = {}
        self._seen: float | None = None

    def see(self, jobs: Jobs, cluster: Cluster, previous: Allocation, now: float) -> None:
        """Account what tenants have held since the last round."""
        passed = 0.0 if self._seen is None else max(0.0, now - self._seen)
        self._seen = now
        fading = np.exp(-passed / _LATELY)
        self._had = {name: amount * fading for name, amount in self._had.items()}
        rows = np.flatnonzero(previous.shape != WAITING)
        held = jobs.gpus[rows] * cluster.shape_workers[previous.shape[rows]] * passed
        amounts = np.bincount(jobs.tenant[rows], weights=held, minlength=len(jobs.tenants))
        for name, amount in zip(jobs.tenants, amounts.tolist(), strict=True):
            self._had[name] = self._had.get(name, 0.0) + amount

    def due(self, jobs: Jobs, power: float) -> Floats:
        """The weight of each tenant's jobs, from half to twice; 1 where only one has any."""
        weights = np.ones(len(jobs.tenants))
        present = np.unique(jobs.tenant)
        had = np.array([self._had.get(jobs.tenants[tenant], 0.0) for tenant in present])
        total = float(had.sum())
        if len(present) > 1 and total > 0:
            share = np.maximum(had / total, 1e-3)
            weights[present] = np.clip((1.0 / len(present) / share) ** power, _LEAST, _MOST)
        return weights


HOPELESS = "nothing in this cluster can hold it, even if it were empty, or what it costs is not in its budget"


class Bids(Mapping[int, str]):
    """For each job what its best shape is worth to it, and what that would cost others at these prices."""

    def __init__(
        self, cluster: Cluster, problem: AssignmentProblem, answer: Assignment, pinned: Ints
    ) -> None:
        self._cluster, self._problem, self._answer, self._pinned = cluster, problem, answer, pinned

    def __getitem__(self, row: int) -> str:
        if not 0 <= row < len(self):
            raise KeyError(row)
        if self._pinned[row] != WAITING:
            return f"{self._named(int(self._pinned[row]))}: it is just starting there, and left alone"
        shape = int(self._answer.shape[row])
        value = self._problem.value[row]
        if np.isneginf(value).all():
            return HOPELESS
        if shape != WAITING:
            return f"{self._named(shape)}: {self._compared(row, shape)}"
        best = int(np.argmax(value - self._charged(row)))
        return f"others gain more now. {self._named(best)}: {self._compared(row, best)}"

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        return len(self._answer.shape)

    def _charged(self, row: int) -> np.ndarray:
        problem = self._problem
        charged: np.ndarray = problem.workers * (problem.demand[row] @ self._answer.prices[problem.group].T)
        return charged

    def _named(self, shape: int) -> str:
        chosen = self._cluster.shapes[shape]
        group = self._cluster.groups[chosen.group]
        return f"{chosen.workers} worker{'s' if chosen.workers > 1 else ''} on {group.name}"

    def _compared(self, row: int, shape: int) -> str:
        worth, cost = float(self._problem.value[row, shape]), float(self._charged(row)[shape])
        return f"saves it {worth:.2g} s of waiting per second, costs others {cost:.2g}"


class Trimtab:
    """The least waiting for everybody, by prices."""

    def __init__(self, settings: TrimtabSettings | None = None) -> None:
        self.settings = settings or TrimtabSettings()
        self._prices: Floats | None = None
        self._shares = TenantShares()

    def allocate(self, jobs: Jobs, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        if not len(jobs) or not cluster.shapes:
            nothing = Allocation.nothing(len(jobs))
            return replace(nothing, why=dict.fromkeys(range(len(jobs)), HOPELESS))
        now, settings = clock.now(), self.settings
        if self._prices is None or self._prices.shape != cluster.capacity.shape:
            self._prices = np.zeros_like(cluster.capacity)
        self._shares.see(jobs, cluster, previous, now)
        due = self._shares.due(jobs, settings.fairness)
        worth = Worth(settings, jobs, cluster, previous, now, self._prices, due)
        # Who is just restarting is left alone, or the restart would be wasted.
        pinned = np.where(jobs.settling, previous.shape, WAITING)
        problem = AssignmentProblem.of(worth.value(), cluster, jobs.demand, pinned)
        loyalty = settings.loyalty * float(np.mean(jobs.restart_seconds > 0))  # free moves disturb nobody
        answer = assign(problem, previous.shape, settings.seconds, loyalty)
        self._prices = (1.0 - settings.remember) * self._prices + settings.remember * answer.prices
        gain = problem.gains(answer.prices).max(axis=1, initial=-np.inf)
        shape = np.where(pinned == WAITING, answer.shape, pinned)
        order = np.argsort(-gain, kind="stable")
        why = Bids(cluster, problem, answer, pinned)
        return Allocation(shape, order, why, tuple(np.flatnonzero(worth.hopeless).tolist()))
