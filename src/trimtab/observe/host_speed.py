"""How fast the host is just now: a fixed piece of work, timed now and then."""

import math
import time
from dataclasses import dataclass

_LOOPS = 150_000
_EVERY = 0.2  # s


@dataclass(slots=True)
class HostSpeed:
    """Remembers its last look, which is good for a moment."""

    _seconds: float = 0.0
    _since: float = -math.inf

    def probe(self) -> float:
        """Seconds that the piece of work takes now, or took a moment ago."""
        start = time.perf_counter()
        if start - self._since > _EVERY:
            total = 0
            for number in range(_LOOPS):
                total += number & 7
            self._since = time.perf_counter()
            self._seconds = self._since - start
        return self._seconds
