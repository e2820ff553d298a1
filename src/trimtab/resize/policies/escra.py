"""Escra's rule from its paper (thesis, section 2.4.4.1), with its symbols in the comments."""

from dataclasses import dataclass, field

import numpy as np

from trimtab.resize.policies.policy import Array, CpuPeriod, Indices, SlotWindow


@dataclass(frozen=True, slots=True)
class EscraSettings:
    """The paper's experiments use κ = 0.8, γ = 0.2 and Υ = 20; here γ is a part of the pool's cap."""

    window: int = 5  # n: periods that throttles and slack are averaged over
    grow: float = 1.0  # Υ: part of the free CPU that an always throttled container takes
    slack: float = 0.02  # γ: unused CPU, as a part of the pool's cap, above which a limit shrinks
    shrink: float = 0.8  # κ: part of the mean unused CPU that is taken


@dataclass(slots=True)
class Escra:
    """Grows by what is free when throttled, shrinks by unused CPU when there is much of it."""

    settings: EscraSettings = field(default_factory=EscraSettings)
    name: str = "escra"
    traps: bool = True
    saves: bool = False
    _throttles: SlotWindow = field(init=False, repr=False)
    _unused: SlotWindow = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._throttles = SlotWindow(self.settings.window)
        self._unused = SlotWindow(self.settings.window)

    def target(self, period: CpuPeriod) -> Array:
        s = self.settings
        unused = np.maximum(period.limit - period.used, 0.0)
        throttles = self._throttles.push(period.slot, period.throttled.astype(float))
        mean_unused = self._unused.push(period.slot, unused)
        # q[t+1] = q[t] + mean(th) Υ (Ω - Σ q[t]) where it was throttled in this period
        more = throttles * s.grow * np.maximum(period.free, 0.0)[period.pool]
        # q[t+1] = q[t] - κ mean(q - u) where q - u > γ
        less = s.shrink * mean_unused
        shrinks = unused > s.slack * period.cap[period.pool]
        change = np.where(period.throttled, more, np.where(shrinks, -less, 0.0))
        return np.asarray(period.limit + change)

    def forget(self, slots: Indices) -> None:
        self._throttles.forget(slots)
        self._unused.forget(slots)
