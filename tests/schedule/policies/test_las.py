"""Least attained service."""

from collections.abc import Callable

import numpy as np

from trimtab.core import SimulatedClock
from trimtab.schedule import WAITING, Allocation, Cluster, JobColumns, NodeGroup, usual_shapes
from trimtab.schedule.policies import policy

RoundOf = Callable[..., JobColumns]
PARTS = (NodeGroup("t4", "t4", 1, 1, 8.0, 1e9),)
CLUSTER = Cluster(PARTS, usual_shapes(PARTS))


def test_who_has_passed_a_threshold_gives_way(round_of: RoundOf) -> None:
    running = Allocation(np.array([0, WAITING]), np.arange(2))
    for attained, runs in ((900.0, 0), (1100.0, 1)):
        jobs = round_of(CLUSTER, [{"attained": attained}, {}])
        answer = policy("las:thresholds=1000").allocate(jobs, CLUSTER, running, SimulatedClock())
        assert answer.shape.tolist().index(0) == runs


def test_a_queue_is_first_come_first_served(round_of: RoundOf) -> None:
    jobs = round_of(CLUSTER, [{"attained": 800.0, "submitted": 0.0}, {"submitted": 1.0}])
    answer = policy("las:thresholds=1000/9000").allocate(
        jobs, CLUSTER, Allocation.nothing(2), SimulatedClock()
    )
    assert answer.shape.tolist() == [0, WAITING]


def test_a_starving_job_comes_back_up(round_of: RoundOf) -> None:
    chosen, clock = policy("las:thresholds=1000,starve=2"), SimulatedClock()
    given = Allocation(np.array([0, WAITING]), np.arange(2))
    ran = []
    attained = [950.0, 0.0]
    for _ in range(6):
        jobs = round_of(CLUSTER, [{"attained": had, "submitted": float(n)} for n, had in enumerate(attained)])
        given = chosen.allocate(jobs, CLUSTER, given, clock)
        ran.append(given.shape.tolist().index(0))
        attained[ran[-1]] += 100.0
        clock.advance(100.0)
    # Runs 100 s, sinks, waits twice as long, and is first again.
    assert ran == [0, 1, 1, 0, 0, 0]
