"""What a policy answers with: which shape every job gets, who is placed first, and why others wait."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from trimtab.core import Clock
from trimtab.schedule.cluster import Cluster, Ints
from trimtab.schedule.jobs import Jobs

WAITING = -1
"""The shape of a job that gets nothing in this round."""


@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
    """For each job of the round the index of its shape, or WAITING.

    `order` lists jobs in the order in which they choose nodes; `why` says of some jobs why they wait or run
    so; `refused` are jobs that can never be done in time and whose deadline is hard.
    """

    shape: Ints
    order: Ints
    why: Mapping[int, str] = field(default_factory=dict)
    refused: tuple[int, ...] = ()

    @staticmethod
    def nothing(count: int) -> "Allocation":
        """Everyone waits."""
        return Allocation(np.full(count, WAITING, dtype=np.int64), np.arange(count))


class SchedulingPolicy(Protocol):
    """Who runs next, and in which shape. Knows neither simulator nor engine.

    It is asked once per round with all jobs that wait or run. `previous` is what they have now, row by row.
    It may remember what it likes between rounds, and must do well when it has forgotten everything.
    """

    def allocate(self, jobs: Jobs, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation: ...
