"""How long answers took: from when a request was to be sent, whatever kept it back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Latency:
    """Of `count` answers, in milliseconds."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float


def latency(seconds: Iterable[float]) -> Latency:
    """Quantiles that were reached, not numbers between two of them; infinite where nothing was answered."""
    found = np.sort(np.fromiter(seconds, dtype=np.float64)) * 1e3
    if not len(found):
        return Latency(0, float("inf"), float("inf"), float("inf"))
    p50, p99 = (float(np.quantile(found, share, method="higher")) for share in (0.5, 0.99))
    return Latency(len(found), p50, p99, float(found[-1]))


@dataclass(frozen=True, slots=True)
class Measured:
    """What a generator saw in `seconds`: latencies (s) by operation, failures by what was wrong.

    `answered` is how many answers came within that time, of those whose latencies these are.
    `cpus` is how much CPU time per second the generator itself took; `acknowledged` has, where that was asked
    for, the operation and the id of every write whose success was heard of; `late` is how long, at worst, the
    generator was behind its own plan (s).
    """

    seconds: float
    latencies: Mapping[str, Sequence[float]]
    answered: Mapping[str, int]
    errors: Mapping[str, int]
    cpus: float
    late: float
    acknowledged: Sequence[tuple[str, str]] = ()

    def of(self, names: Iterable[str]) -> Latency:
        """Of some operations together."""
        return latency(each for name in names for each in self.latencies.get(name, ()))

    def per_second(self, names: Iterable[str]) -> float:
        """Answers to some operations that came in time."""
        return sum(self.answered.get(name, 0) for name in names) / self.seconds

    @property
    def failed(self) -> int:
        """How many requests were not answered as they should be."""
        return sum(self.errors.values())
