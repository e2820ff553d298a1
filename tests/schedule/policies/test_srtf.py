"""Shortest remaining time first."""

from collections.abc import Callable

import numpy as np

from trimtab.core import SimulatedClock
from trimtab.schedule import WAITING, Allocation, Cluster, JobColumns, NodeGroup, usual_shapes
from trimtab.schedule.policies import policy

RoundOf = Callable[..., JobColumns]
PARTS = (NodeGroup("t4", "t4", 1, 1, 8.0, 1e9), NodeGroup("a100", "a100", 1, 1, 8.0, 1e9))
CLUSTER = Cluster(PARTS, usual_shapes(PARTS))


def ask(jobs: JobColumns, previous: Allocation) -> list[int]:
    return policy("srtf").allocate(jobs, CLUSTER, previous, SimulatedClock()).shape.tolist()


def test_the_shortest_gets_the_fastest(round_of: RoundOf) -> None:
    rows = [{"remaining": left, "speed": [1.0, 4.0]} for left in (300.0, 100.0, 200.0)]
    assert ask(round_of(CLUSTER, rows), Allocation.nothing(3)) == [WAITING, 1, 0]


def test_what_is_left_counts_by_speed(round_of: RoundOf) -> None:
    rows = [{"remaining": 300.0, "speed": [0.0, 10.0]}, {"remaining": 100.0, "speed": [0.0, 1.0]}]
    assert ask(round_of(CLUSTER, rows), Allocation.nothing(2)) == [1, WAITING]


def test_a_long_job_is_stopped_for_a_much_shorter_one_only(round_of: RoundOf) -> None:
    only_fast = {"speed": [0.0, 1.0]}
    running = Allocation(np.array([1, WAITING]), np.arange(2))
    much = round_of(CLUSTER, [{"remaining": 100.0, **only_fast}, {"remaining": 50.0, **only_fast}])
    little = round_of(CLUSTER, [{"remaining": 100.0, **only_fast}, {"remaining": 95.0, **only_fast}])
    assert ask(much, running) == [WAITING, 1]
    assert ask(little, running) == [1, WAITING]


def test_of_unknown_jobs_who_has_had_least_goes_first(round_of: RoundOf) -> None:
    rows = [{"attained": had, "speed": [0.0, 1.0]} for had in (500.0, 20.0, 90.0)]
    assert ask(round_of(CLUSTER, rows), Allocation.nothing(3)) == [WAITING, 1, WAITING]
