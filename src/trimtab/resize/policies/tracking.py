"""Trimtab's own rule: stay above the peaks of the last seconds; when throttled, jump to the last crest.

A limit follows the recent peak of use, which decays within seconds, with some headroom. A throttle says only
that more was needed, not how much; so the limit doubles with every throttle in a row, and the first one
already takes it to the crest, the highest use of the last minutes: a container that has burst before bursts
again. Where a pool is full, actual use comes first, then throttled containers, and headroom last.
"""

from dataclasses import dataclass, field

import numpy as np

from trimtab.resize.policies.policy import CpuPeriod, Indices, SlotColumns, Wishes


@dataclass(frozen=True, slots=True)
class TrackingSettings:
    """Half-lives of the state, and room above use."""

    headroom: float = 1.0  # of the recent peak
    margin: float = 0.2  # of the mean use, part of the need
    peak_half_life: float = 2.0  # s in which the recent peak decays by half towards use
    mean_half_life: float = 0.5  # s for the mean
    crest_half_life: float = 60.0  # s for the crest
    still: float = 0.05  # relative change of a limit that is not worth a write, where it would shrink
    doublings: float = 4.0  # at most so many in a row


@dataclass(slots=True)
class Tracking:
    """Follows use; jumps on a throttle."""

    settings: TrackingSettings = field(default_factory=TrackingSettings)
    name: str = "trimtab"
    traps: bool = True
    saves: bool = True
    _state: SlotColumns = field(
        init=False, repr=False, default_factory=lambda: SlotColumns(peak=0.0, mean=0.0, crest=0.0, streak=0.0)
    )

    def target(self, period: CpuPeriod) -> Wishes:
        s, slot, used = self.settings, period.slot, period.used
        self._state.reach(slot)
        peak, mean, crest, streak = (self._state[name] for name in ("peak", "mean", "crest", "streak"))
        peak[slot] = np.maximum(used, used + _decay(period, s.peak_half_life) * (peak[slot] - used))
        mean[slot] = used + _decay(period, s.mean_half_life) * (mean[slot] - used)
        crest[slot] = np.maximum(used, crest[slot] * _decay(period, s.crest_half_life))
        streak[slot] = np.where(period.throttled, np.minimum(streak[slot] + 1, s.doublings), 0.0)

        follow = peak[slot] * (1 + s.headroom)
        jump = np.maximum(period.limit * 2.0 ** streak[slot], crest[slot] * (1 + s.headroom))
        target = np.maximum(np.where(period.throttled, jump, follow), period.floor)
        still = (target < period.limit) & (target > (1 - s.still) * period.limit)
        need = np.maximum(mean[slot], np.where(period.throttled, used, 0.0)) * (1 + s.margin)
        return Wishes(np.where(still, period.limit, target), need)

    def forget(self, slots: Indices) -> None:
        self._state.forget(slots)


def _decay(period: CpuPeriod, half_life: float) -> float:
    return float(0.5 ** (period.seconds / half_life))
