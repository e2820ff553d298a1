"""Who has had how much lately: tenants that had less than others gain weight."""

import numpy as np

from trimtab.schedule.allocation import WAITING, Allocation
from trimtab.schedule.cluster import Cluster, Floats
from trimtab.schedule.jobs import Jobs

_LATELY = 3600.0  # seconds after which what was had counts about a third
_LEAST, _MOST = 0.5, 2.0


class TenantShares:
    """Accelerator-seconds of each tenant, fading; equal shares are due to all who have jobs."""

    def __init__(self) -> None:
        self._had: dict[str, float] = {}
        self._seen: float | None = None

    def see(self, jobs: Jobs, cluster: Cluster, previous: Allocation, now: float) -> None:
        """What everyone has held since the last round."""
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
