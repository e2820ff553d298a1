"""The jobs of one round as columns: all that a policy may know about them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.schedule.cluster import Floats, Ints

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
