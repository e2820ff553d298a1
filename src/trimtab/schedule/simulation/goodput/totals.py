"""How much work jobs of an application have, as far as others of it have shown."""

from collections import defaultdict

import numpy as np

_UNKNOWN = 1.5  # times what the furthest has done, while nobody has ended


class Totals:
    """Known to nobody until a job of the application has ended; then the mean of those that have."""

    def __init__(self) -> None:
        self._furthest: dict[str, float] = defaultdict(float)
        self._ended: dict[str, tuple[float, int]] = {}

    def reached(self, application: str, progress: float) -> None:
        """A job of this application has come so far."""
        self._furthest[application] = max(self._furthest[application], progress)

    def ended(self, application: str, progress: float) -> None:
        """A job of this application has ended with so much progress."""
        total, count = self._ended.get(application, (0.0, 0))
        self._ended[application] = (total + progress, count + 1)

    def known(self, application: str) -> bool:
        """Whether a job of this application has ended."""
        return application in self._ended

    def of(self, application: str) -> float:
        """What a job of this application is believed to have to do; NaN where nobody has begun."""
        if application in self._ended:
            total, count = self._ended[application]
            return total / count
        furthest = self._furthest[application]
        return _UNKNOWN * furthest if furthest > 0 else np.nan
