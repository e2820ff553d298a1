"""What jobs that have ended teach about those that have not."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from trimtab.core import Estimate
from trimtab.store import JobRecord

_FEWEST = 3  # ended jobs of an application from which something is learned
_SPREAD = 0.1  # of the ended jobs lie below the range, and as many above


@dataclass(frozen=True, slots=True)
class Asked:
    """A job about whose end somebody asks: units done so far, and what it is."""

    application: str
    tenant: str
    accelerators: float
    done: float


Left = Callable[[Asked], Estimate | None]
"""How many units a job has left, where that can be said."""


class History:
    """Total work and measured rates of ended jobs, by application."""

    def __init__(self, ended: Iterable[JobRecord] = ()) -> None:
        self._work: dict[str, list[float]] = defaultdict(list)
        self._rates: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for record in ended:
            self.learn(record)

    def learn(self, record: JobRecord) -> None:
        """One more has ended."""
        if record.done > 0:
            self._work[record.application].append(record.done)
        for kind, rate in record.run.rates.items():
            self._rates[record.application][kind].append(rate)

    def rates(self, application: str) -> Mapping[str, float]:
        """Units per second of one worker on each kind of accelerator: medians of those that have ended."""
        known = self._rates.get(application, {})
        return {kind: statistics.median(rates) for kind, rates in known.items()}

    def left(self, asked: Asked) -> Estimate | None:
        """The median of what those did that went on for longer, less what is done."""
        longer = sorted(work for work in self._work.get(asked.application, ()) if work > asked.done)
        if len(longer) < _FEWEST:
            return None
        low, high = (longer[round(share * (len(longer) - 1))] for share in (_SPREAD, 1 - _SPREAD))
        middle = statistics.median(longer)
        done = asked.done
        return Estimate(middle - done, low - done, high - done, 1 - 2 * _SPREAD, "units")
