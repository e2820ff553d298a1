"""Real jobs for questions that the workloads do not ask: a busy day and a half of Microsoft's Philly trace.

When jobs came, how long they took and on how many accelerators is as it was. Who they are, what they were
promised and what they run on is drawn or chosen by the section that asks.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from trimtab.core import Workload
from trimtab.schedule import Checkpoint, Cluster, Group, Job, Shape, policy
from trimtab.schedule.simulation.faults import RandomFaults
from trimtab.schedule.simulation.replay import Replay
from trimtab.schedule.simulation.simulator import SimulationSettings, simulate
from trimtab.schedule.simulation.tabular import TabularWorld

Floats = NDArray[np.float64]

JOBS, QUICK_JOBS = 1000, 150
LOAD, QUICK_LOAD = 0.75, 4.0
"""Work that comes per second over accelerators; a few jobs are gone before queues build up otherwise."""
_LARGEST = 16  # accelerators
_SHORTEST, _LONGEST = 60.0, 12 * 3600.0
_SECONDS_PER_JOB = 36 * 3600.0 / JOBS  # at least: the very busiest hour is one sweep of single accelerators
_NODE = Group("nodes", "v100", 1, 8, 64.0, 512e9)
_SAVING = Checkpoint(seconds=30.0, restart=30.0)
_ROUND = 60.0


@dataclass(frozen=True, slots=True)
class Stage:
    """Jobs and what they run on. A job has as much work as it has accelerators, times seconds."""

    jobs: tuple[Job, ...]
    groups: tuple[Group, ...]

    def loaded(self, times: float) -> "Stage":
        """The same on fewer nodes, loaded so many times as much."""
        groups = tuple(replace(group, nodes=ceil(group.nodes / times)) for group in self.groups)
        return replace(self, groups=groups)

    def run(
        self, name: str, faults: RandomFaults | None = None, wrong: Sequence[float] | None = None
    ) -> Replay:
        """A policy's rounds of 60 s; `wrong` is by how much it is mistaken about each job's work."""
        sizes = sorted({job.least for job in self.jobs})
        shapes = tuple(Shape(group, size) for group in range(len(self.groups)) for size in sizes)
        cluster = Cluster(self.groups, shapes)
        rates: dict[Hashable, Floats] = {
            size: np.where(cluster.shape_workers == size, float(size), 0.0) for size in sizes
        }
        work = np.array([job.work for job in self.jobs], dtype=float)
        believed = None if wrong is None else work * np.asarray(wrong)
        world = TabularWorld(self.jobs, cluster, [job.least for job in self.jobs], rates, work, believed)
        return simulate(self.jobs, cluster, world, policy(name), SimulationSettings(_ROUND), faults)


def busiest(trace: Sequence[Job], count: int, load: float) -> Stage:
    """The jobs in a row that brought most work per second, on as many nodes as they load so."""
    usual = [j for j in trace if j.least <= _LARGEST and _SHORTEST <= duration(j) <= _LONGEST]
    submitted = np.array([job.submitted for job in usual])
    total = np.concatenate(([0.0], np.cumsum([job.work for job in usual])))
    seconds = submitted[count - 1 :] - submitted[: len(usual) - count + 1]
    brought = np.where(seconds >= _SECONDS_PER_JOB * count, (total[count:] - total[:-count]) / seconds, 0.0)
    first = int(brought.argmax())
    jobs = tuple(
        replace(
            job, workload=Workload(job.id), submitted=job.submitted - submitted[first], checkpoint=_SAVING
        )
        for job in usual[first : first + count]
    )
    return Stage(jobs, (replace(_NODE, nodes=ceil(brought[first] / load / _NODE.gpus)),))


def duration(job: Job) -> float:
    """Seconds that a job of the trace took."""
    return (job.work or 0.0) / job.least


def draws(seed: int, section: str) -> np.random.Generator:
    """Chance for one section: the same for every policy."""
    return np.random.default_rng((seed, *section.encode()))
