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

from dataclasses import replace

import numpy as np

from trimtab.core import Clock
from trimtab.schedule.allocation import WAITING, Allocation
from trimtab.schedule.assignment import Problem, assign
from trimtab.schedule.cluster import Cluster, Floats
from trimtab.schedule.jobs import Jobs
from trimtab.schedule.policies.bids import HOPELESS, Bids
from trimtab.schedule.policies.tenant_shares import TenantShares
from trimtab.schedule.policies.trimtab_settings import TrimtabSettings
from trimtab.schedule.policies.worth import Worth


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
        problem = Problem.of(worth.value(), cluster, jobs.demand, pinned)
        loyalty = settings.loyalty * float(np.mean(jobs.restart_seconds > 0))  # free moves disturb nobody
        answer = assign(problem, previous.shape, settings.seconds, loyalty)
        self._prices = (1.0 - settings.remember) * self._prices + settings.remember * answer.prices
        gain = problem.gains(answer.prices).max(axis=1, initial=-np.inf)
        shape = np.where(pinned == WAITING, answer.shape, pinned)
        order = np.argsort(-gain, kind="stable")
        why = Bids(cluster, problem, answer, pinned)
        return Allocation(shape, order, why, tuple(np.flatnonzero(worth.hopeless).tolist()))
