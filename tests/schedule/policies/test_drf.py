"""Dominant resource fairness."""

from collections.abc import Callable

import numpy as np

from trimtab.core import SimulatedClock
from trimtab.schedule import WAITING, Allocation, Cluster, JobColumns, NodeGroup, usual_shapes
from trimtab.schedule.policies import policy

RoundOf = Callable[..., JobColumns]


def test_the_example_of_the_paper(round_of: RoundOf) -> None:
    # 9 CPUs and 18 of memory; A's tasks take (1, 4), B's (3, 1): A gets 3 tasks and B gets 2.
    parts = (NodeGroup("node", "", 1, 0, 9.0, 18.0),)
    cluster = Cluster(parts, usual_shapes(parts))
    a = {"tenant": "A", "gpus": 0.0, "cpus": 1.0, "memory": 4.0}
    b = {"tenant": "B", "gpus": 0.0, "cpus": 3.0, "memory": 1.0}
    jobs = round_of(cluster, [a] * 10 + [b] * 10)
    answer = policy("drf").allocate(jobs, cluster, Allocation.nothing(20), SimulatedClock())
    assert np.bincount(jobs.tenant[answer.shape != WAITING]).tolist() == [3, 2]


def test_a_late_tenant_gets_its_half(round_of: RoundOf) -> None:
    parts = (NodeGroup("t4", "t4", 2, 4, 64.0, 1e9),)
    cluster = Cluster(parts, usual_shapes(parts))
    jobs = round_of(cluster, [{"tenant": "first"}] * 12 + [{"tenant": "late"}] * 12)
    shape = np.array([0] * 8 + [WAITING] * 16)
    answer = policy("drf").allocate(jobs, cluster, Allocation(shape, np.arange(24)), SimulatedClock())
    assert np.bincount(jobs.tenant[answer.shape != WAITING]).tolist() == [4, 4]
    again = policy("drf").allocate(jobs, cluster, answer, SimulatedClock())
    assert again.shape.tolist() == answer.shape.tolist()
