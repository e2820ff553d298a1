"""The highest rate that a server stands: steps up until one is too much, or down until one is not."""

from collections.abc import Callable
from dataclasses import dataclass

LIMIT_MS = 50.0
"""Milliseconds that one answer in a hundred may take longer than."""

_STEP = 1.2
_ARRIVED = 0.97  # of what was sent must have been answered within the time


@dataclass(frozen=True, slots=True)
class Step:
    """What was seen at a rate: answers per second, their p99 in milliseconds, failures, the server's CPUs."""

    rate: float
    reached: float
    p99_ms: float
    errors: int
    server_cpus: float
    generator_cpus: float

    @property
    def stood(self) -> bool:
        """Whether the server kept up."""
        return self.errors == 0 and self.p99_ms < LIMIT_MS and self.reached >= _ARRIVED * self.rate


def steps_to_ceiling(measure: Callable[[float], Step], start: float, most: int) -> list[Step]:
    """At most so many steps from a rate on."""
    found = [measure(start)]
    factor = _STEP if found[0].stood else 1.0 / _STEP
    while len(found) < most and found[-1].stood is found[0].stood:
        found.append(measure(found[-1].rate * factor))
    return found


def ceiling(steps: list[Step]) -> float:
    """The most answers per second of a step that the server stood; 0 where it stood none."""
    return max((step.reached for step in steps if step.stood), default=0.0)
