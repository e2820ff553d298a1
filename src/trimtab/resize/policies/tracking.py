"""Trimtab's own rule: stay a little above what was used lately; when held back, jump to the last crest.

A limit follows the recent peak of use, which fades within seconds, with headroom for how much use wavers. A
throttle says only that more was wanted, not how much; so the limit doubles with every throttle in a row, and
the first one already takes it to the crest, the highest use of the last minutes: what has burst before
bursts again. Where a pool is full, everyone shares it fairly.
"""

from dataclasses import dataclass, field

import numpy as np

from trimtab.resize.policies.policy import Array, CpuPeriod, Indices, Memory


@dataclass(frozen=True, slots=True)
class TrackingSettings:
    """How fast things fade, and how much room there is above use."""

    headroom: float = 0.15  # of the recent peak
    waver: float = 1.0  # standard deviations of use
    peak_half_life: float = 0.5  # s in which the recent peak fades by half towards use
    crest_half_life: float = 60.0  # s for the crest
    still: float = 0.05  # relative change of a limit that is not worth a write, where it would shrink
    doublings: float = 4.0  # at most so many in a row


@dataclass(slots=True)
class Tracking:
    """Follow use; on a throttle, jump."""

    settings: TrackingSettings = field(default_factory=TrackingSettings)
    name: str = "trimtab"
    traps: bool = True
    _seen: Memory = field(
        init=False, repr=False, default_factory=lambda: Memory(peak=0.0, crest=0.0, streak=0.0, square=0.0)
    )

    def wanted(self, period: CpuPeriod) -> Array:
        s, slot, used = self.settings, period.slot, period.used
        self._seen.reach(slot)
        peak, crest = self._seen["peak"], self._seen["crest"]
        streak, square = self._seen["streak"], self._seen["square"]
        fades = 0.5 ** (period.seconds / s.peak_half_life)
        # How far use is from its recent peak says how much it wavers.
        square[slot] = fades * square[slot] + (1 - fades) * (used - peak[slot]) ** 2
        peak[slot] = np.maximum(used, used + fades * (peak[slot] - used))
        crest[slot] = np.maximum(used, crest[slot] * 0.5 ** (period.seconds / s.crest_half_life))
        streak[slot] = np.where(period.throttled, np.minimum(streak[slot] + 1, s.doublings), 0.0)

        above = np.maximum(s.headroom * peak[slot], s.waver * np.sqrt(square[slot]))
        follow = peak[slot] + np.minimum(above, peak[slot])
        jump = np.maximum(period.limit * 2.0 ** streak[slot], crest[slot] * (1 + s.headroom))
        wanted = np.maximum(np.where(period.throttled, jump, follow), period.floor)
        still = (wanted < period.limit) & (wanted > (1 - s.still) * period.limit)
        return np.where(still, period.limit, wanted)

    def forget(self, slots: Indices) -> None:
        self._seen.forget(slots)
