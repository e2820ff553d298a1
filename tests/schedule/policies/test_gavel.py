"""Shares of time by what jobs gain."""

from collections.abc import Callable

import numpy as np
import pytest

from trimtab.core import SimulatedClock
from trimtab.schedule import WAITING, Allocation, Cluster, JobColumns, NodeGroup, usual_shapes
from trimtab.schedule.policies import policy

RoundOf = Callable[..., JobColumns]
PARTS = (NodeGroup("v100", "v100", 1, 1, 64.0, 1e9), NodeGroup("k80", "k80", 1, 1, 64.0, 1e9))
CLUSTER = Cluster(PARTS, usual_shapes(PARTS))


def rounds_by_group(name: str, jobs: JobColumns, rounds: int) -> np.ndarray:
    chosen, clock, given = policy(name), SimulatedClock(), Allocation.nothing(len(jobs))
    had = np.zeros((len(jobs), len(PARTS)))
    for _ in range(rounds):
        given = chosen.allocate(jobs, CLUSTER, given, clock)
        runs = np.flatnonzero(given.shape != WAITING)
        had[runs, CLUSTER.shape_group[given.shape[runs]]] += 1
        clock.advance(360.0)
    return had


def test_who_gains_most_gets_the_fast_accelerator(round_of: RoundOf) -> None:
    jobs = round_of(CLUSTER, [{"speed": [10.0, 1.0]}, {"speed": [2.0, 2.0]}])
    had = rounds_by_group("gavel", jobs, 40)
    assert had[0, 0] > 30
    assert had[1, 1] > 30


def test_the_least_normalised_throughput_is_as_large_as_it_can_be(round_of: RoundOf) -> None:
    # Three alike on two: each is to have a third of both.
    jobs = round_of(CLUSTER, [{"speed": [4.0, 1.0]}] * 3)
    had = rounds_by_group("gavel", jobs, 90)
    gained = had @ np.array([4.0, 1.0])
    assert gained == pytest.approx(gained.mean(), rel=0.1)


def test_throughput_starves_who_gains_little(round_of: RoundOf) -> None:
    jobs = round_of(CLUSTER, [{"speed": [10.0, 5.0]}, {"speed": [8.0, 4.0]}, {"speed": [1.0, 0.5]}])
    had = rounds_by_group("gavel:objective=throughput", jobs, 20)
    assert had[:2].sum() == 40
    assert had[2].sum() == 0


def test_shares_are_renewed_only_after_a_while(round_of: RoundOf) -> None:
    chosen, clock = policy("gavel:objective=fifo,renew_after=1000"), SimulatedClock()
    one = [{"id": "one", "speed": [2.0, 0.0]}]
    two = [*one, {"id": "two", "speed": [2.0, 1.0]}]
    given = chosen.allocate(round_of(CLUSTER, one), CLUSTER, Allocation.nothing(1), clock)
    assert given.shape.tolist() == [0]
    started = []
    given = Allocation(np.array([0, WAITING]), np.arange(2))
    for _ in range(4):
        clock.advance(360.0)
        given = chosen.allocate(round_of(CLUSTER, two), CLUSTER, given, clock)
        started.append(int(given.shape[1]))
    assert started == [WAITING, WAITING, 1, 1]
