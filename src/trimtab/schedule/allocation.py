"""The interface of a policy: the jobs of a round as columns in, the shape of every job out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trimtab.core import Clock
from trimtab.schedule.cluster import Cluster, Floats, Ints
from trimtab.schedule.job import Job

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class JobColumns:
    """One row per job that waits or runs, in order of submission. Seconds, bytes, dollars, units of work.

    Unknown values are NaN, unlimited ones infinite. `submitted` and `deadline` are moments. `speed` is (jobs,
    shapes): units of work per second in each of the cluster's shapes, 0 where the job cannot run; shapes with
    more workers than `most` may become possible later. `remaining` is the expected work left, between
    `remaining_low` and `remaining_high`. `held` is (jobs, groups): accelerator-seconds received from each
    group. `settling` jobs have just been (re)started and do no useful work yet; stopping them wastes the
    restart. Jobs that are not `preemptible` keep their shape until they end. `fetch` is (jobs, groups): the
    seconds until the job's data is there; `egress` the dollars for that.
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
    preemptible: Bools
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

    def demand_of(self, row: int) -> Floats:
        """Accelerators, CPUs and bytes of one worker of a job."""
        return np.array((self.gpus[row], self.cpus[row], self.memory[row]))


def fixed_numbers(job: Job) -> tuple[float, ...]:
    """The numbers of a job that never change, for `static_columns`."""
    due, budget, work = job.due, job.budget, job.workload
    return (
        job.submitted,
        work.priority,
        np.inf if due is None else due,
        job.hard,
        job.least,
        job.most,
        job.worker.gpus,
        job.worker.cpus,
        job.worker.memory,
        np.inf if budget is None else budget,
    )


def static_columns(jobs: Sequence[Job], fixed: Sequence[tuple[float, ...]] | None = None) -> dict[str, Any]:
    """The columns of `JobColumns` that follow from the jobs alone and never change.

    `fixed` are the jobs' `fixed_numbers`, where they are known already.
    """
    names = [job.workload.tenant for job in jobs]
    tenants = tuple(dict.fromkeys(names))
    number = {name: index for index, name in enumerate(tenants)}
    table = np.array([fixed_numbers(job) for job in jobs] if fixed is None else fixed, dtype=float)
    columns = np.ascontiguousarray(table.reshape(len(jobs), _FIXED).T)
    submitted, priority, deadline, hard, least, most, gpus, cpus, memory, budget = columns
    return {
        "tenants": tenants,
        "tenant": np.array([number[name] for name in names], dtype=np.int64),
        "submitted": submitted,
        "priority": priority,
        "deadline": deadline,
        "hard": hard.astype(bool),
        "least": least.astype(np.int64),
        "most": most.astype(np.int64),
        "gpus": gpus,
        "cpus": cpus,
        "memory": memory,
        "budget": budget,
    }


_FIXED = 10  # numbers in `fixed_numbers`

WAITING = -1
"""The shape of a job that gets nothing in this round."""


@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
    """For each job of the round the index of its shape, or WAITING.

    `order` lists jobs in the order in which they choose nodes; `why` gives reasons for waiting or running, by
    row; `refused` are jobs whose hard deadline cannot be met. Jobs that are not `ready` must not start before
    the next round, even if nodes become free; None: all may.
    """

    shape: Ints
    order: Ints
    why: Mapping[int, str] = field(default_factory=dict)
    refused: tuple[int, ...] = ()
    ready: Bools | None = None

    @staticmethod
    def nothing(count: int) -> "Allocation":
        """An allocation in which all jobs wait."""
        return Allocation(np.full(count, WAITING, dtype=np.int64), np.arange(count))


class SchedulingPolicy(Protocol):
    """Decides once per round which jobs run, and in which shape. Knows neither simulator nor engine.

    `previous` is the present allocation of the same rows. A policy may keep state between rounds, and must
    work without it.
    """

    def allocate(
        self, jobs: JobColumns, cluster: Cluster, previous: Allocation, clock: Clock
    ) -> Allocation: ...
