"""How fast a job is in a shape: as told, else as measured, else by its accelerators' peak rates."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trimtab.schedule.job import Job
from trimtab.schedule.kinds import peak

DOUBLING = 0.95
"""What is left of each worker's speed when their number doubles."""

_REFERENCE = 65e12  # FLOP/s of a T4, which stands for accelerators that nobody has published


@dataclass(frozen=True, slots=True)
class Speeds:
    """Units of work per second of one worker on each kind of accelerator.

    `own` says that the units are the job's own. Otherwise they are seconds of a T4, or of a node without
    accelerators: good for comparing kinds, and for nothing else.
    """

    rates: Mapping[str, float]
    own: bool

    def of(self, kind: str, workers: int) -> float:
        """Units of work per second of so many workers."""
        return self.one(kind) * together(workers)

    def one(self, kind: str) -> float:
        """Of one worker; on a kind nobody has tried, in proportion to peak rates."""
        if kind in self.rates:
            return self.rates[kind]
        known = [rate / _peak(other) for other, rate in self.rates.items()]
        scale = math.fsum(known) / len(known) if known else 1.0 / _REFERENCE
        return _peak(kind) * scale


def speeds_of(job: Job, measured: Mapping[str, float]) -> Speeds:
    """What is known of a job: `measured` are rates of itself or of others of its application."""
    rates = {**measured, **job.speeds}
    return Speeds(rates, own=bool(rates))


def together(workers: int) -> float:
    """How many times as fast as one so many workers are."""
    return float(workers * DOUBLING ** math.log2(max(1, workers)))


def _peak(kind: str) -> float:
    return peak(kind) or _REFERENCE
