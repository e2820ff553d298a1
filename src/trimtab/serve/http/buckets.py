"""How often somebody may ask: a bucket that fills with time, and from which every request takes one."""

import math
from dataclasses import dataclass, field

_MOST = 20_000


@dataclass(slots=True)
class Buckets:
    """Buckets by name; each takes in `rate` per second and holds `burst`. A rate of 0 is no limit."""

    rate: float
    burst: float
    _filled: dict[str, tuple[float, float]] = field(default_factory=dict)

    def take(self, name: str, now: float) -> float:
        """Take one; 0.0, or how many seconds are left until there is one to take."""
        if self.rate <= 0:
            return 0.0
        level, then = self._filled.get(name, (self.burst, now))
        level = min(self.burst, level + (now - then) * self.rate)
        if level < 1.0:
            self._filled[name] = (level, now)
            return (1.0 - level) / self.rate
        if len(self._filled) >= _MOST:
            self._forget(now)
        self._filled[name] = (level - 1.0, now)
        return 0.0

    def _forget(self, now: float) -> None:
        """Full buckets are as good as none."""
        kept = {
            name: (level, then)
            for name, (level, then) in self._filled.items()
            if level + (now - then) * self.rate < self.burst
        }
        self._filled = kept if len(kept) < _MOST else {}


def retry_after(seconds: float) -> str:
    """As the header says it."""
    return str(max(1, math.ceil(seconds)))
