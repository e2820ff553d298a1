"""Queues by class, and ageing."""

from collections.abc import Callable

import numpy as np

from trimtab.core import SimulatedClock
from trimtab.schedule import WAITING, Allocation, Cluster, JobColumns, NodeGroup, Priority, usual_shapes
from trimtab.schedule.policies import policy

RoundOf = Callable[..., JobColumns]
PARTS = (NodeGroup("t4", "t4", 1, 1, 8.0, 1e9),)
CLUSTER = Cluster(PARTS, usual_shapes(PARTS))


def test_a_higher_class_stops_a_lower_one(round_of: RoundOf) -> None:
    jobs = round_of(CLUSTER, [{"priority": float(Priority.LOW)}, {"priority": float(Priority.HIGH)}])
    running = Allocation(np.array([0, WAITING]), np.arange(2))
    answer = policy("priority").allocate(jobs, CLUSTER, running, SimulatedClock())
    assert answer.shape.tolist() == [WAITING, 0]


def test_equals_do_not_stop_each_other(round_of: RoundOf) -> None:
    running = Allocation(np.array([WAITING, 0]), np.arange(2))
    answer = policy("priority").allocate(round_of(CLUSTER, [{}, {}]), CLUSTER, running, SimulatedClock())
    assert answer.shape.tolist() == [WAITING, 0]


def test_who_waits_moves_up_and_stays_up_once_it_runs(round_of: RoundOf) -> None:
    chosen, clock = policy("priority:ageing=100"), SimulatedClock()
    jobs = round_of(CLUSTER, [{"priority": float(Priority.NORMAL)}, {"priority": float(Priority.HIGH)}])
    given = Allocation(np.array([WAITING, 0]), np.arange(2))
    history = []
    for _ in range(8):
        given = chosen.allocate(jobs, CLUSTER, given, clock)
        history.append(given.shape.tolist().index(0))
        clock.advance(50.0)
    # Level with the other after 100 s of waiting, above it after 200 s; then the other begins to age.
    assert history == [1, 1, 1, 1, 0, 0, 0, 0]


def test_nobody_ages_above_the_top_class(round_of: RoundOf) -> None:
    rows = [{"priority": float(Priority.LOW), "submitted": -1e9}, {"priority": float(Priority.URGENT) + 1}]
    answer = policy("priority").allocate(
        round_of(CLUSTER, rows), CLUSTER, Allocation.nothing(2), SimulatedClock()
    )
    assert answer.shape.tolist() == [WAITING, 0]
