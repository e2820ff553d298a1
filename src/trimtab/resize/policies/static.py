"""Limits that never change: what most people run with."""

from dataclasses import dataclass

import numpy as np

from trimtab.resize.policies.policy import Array, CpuPeriod, Indices


@dataclass(frozen=True, slots=True)
class Static:
    """Whatever the limit is, it stays."""

    name: str = "static"
    traps: bool = False
    saves: bool = False

    def wanted(self, period: CpuPeriod) -> Array:
        return np.array(period.limit)

    def forget(self, slots: Indices) -> None:
        """Nothing is remembered."""
