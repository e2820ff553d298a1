"""The interface of a policy: the jobs of a round as columns in, the shape of every job out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trimtab.core import Clock
from trimtab.schedule.cluster import Cluster, Floats, Ints

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Jobs:
    """One row per job that waits or runs, in order of submission. Seconds, bytes, dollars, units of work.

    What is not known is NaN; what is not limited is infinite. `submitted` and `deadline` are moments.
    `speed` is (jobs, shapes): units of work per second in each of the cluster's shapes as far as is known,
    0 where the job cannot run so; those with more workers than `most` it may have later. `remaining` is
    what is believed to be left, with `remaining_low` and `remaining_high` around it. `held` is (jobs,
    groups): accelerator-seconds each group has given. `settling` jobs have just been (re)started and do not
    work yet: who stops them wastes that. `fetch` is (jobs, groups): seconds until the job's data is there;
    `egress` the dollars that takes.
    """

    ids: tuple[str, ...]
    tenants: tuple[str, ...]
    tenant: Ints
    submitted: Floats
    priority: Floats
    deadline: Floats
    hard: Bools
    least: Ints
    most: Ints
    gpus: Floats
    cpus: Floats
    memory: Floats
    done: Floats
    remaining: Floats
    remaining_low: Floats
    remaining_high: Floats
    speed: Floats
    held: Floats
    attained: Floats
    restarts: Ints
    restart_seconds: Floats
    settling: Bools
    fetch: Floats
    egress: Floats
    spent: Floats
    budget: Floats

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def demand(self) -> Floats:
        """Accelerators, CPUs and bytes of one worker of each job, as rows."""
        return np.column_stack((self.gpus, self.cpus, self.memory))


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
    """Decides which jobs run, and in which shape. Knows neither simulator nor engine.

    It is asked once per round with all jobs that wait or run. `previous` is what they have now, row by row.
    It may remember what it likes between rounds, and must do well when it has forgotten everything.
    """

    def allocate(self, jobs: Jobs, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation: ...
