"""Earliest deadline first, and promises."""

from collections.abc import Callable

import numpy as np

from trimtab.core import SimulatedClock
from trimtab.schedule import WAITING, Allocation, Cluster, GangShape, JobColumns, NodeGroup
from trimtab.schedule.policies import policy

RoundOf = Callable[..., JobColumns]
PARTS = (NodeGroup("t4", "t4", 1, 2, 8.0, 1e9),)
CLUSTER = Cluster(PARTS, (GangShape(0, 1), GangShape(0, 2)))


def ask(jobs: JobColumns) -> Allocation:
    return policy("edf").allocate(jobs, CLUSTER, Allocation.nothing(len(jobs)), SimulatedClock())


def test_deadlines_then_the_late_then_those_without(round_of: RoundOf) -> None:
    due = [float("inf"), 5.0, 300.0, 200.0]
    jobs = round_of(CLUSTER, [{"least": 2, "remaining": 40.0, "deadline": when} for when in due])
    assert ask(jobs).order.tolist() == [3, 2, 1, 0]
    assert ask(jobs).shape.tolist() == [WAITING, WAITING, WAITING, 1]


def test_a_hard_deadline_that_no_machine_can_meet_is_refused(round_of: RoundOf) -> None:
    rows = [{"remaining": 100.0, "deadline": 50.0, "hard": True}, {"remaining": 100.0, "deadline": 50.0}]
    answer = ask(round_of(CLUSTER, rows))
    assert answer.refused == (0,)
    assert all(amount in answer.why[0] for amount in ("1m40s", "50 s"))
    assert answer.shape.tolist() == [WAITING, 0]


def test_one_promise_too_many_is_refused_and_earlier_ones_are_kept(round_of: RoundOf) -> None:
    hard = {"least": 2, "remaining": 200.0, "hard": True}
    rows = [{**hard, "deadline": 210.0}, {**hard, "deadline": 150.0}, {**hard, "deadline": 220.0}]
    # Each takes both accelerators for 100 s: two can be in time, whatever the third.
    answer = ask(round_of(CLUSTER, rows))
    assert answer.refused == (2,)
    assert "deadline" in answer.why[2]
    assert answer.shape.tolist() == [WAITING, 1, WAITING]


def test_a_promise_is_kept_though_estimates_change(round_of: RoundOf) -> None:
    chosen, clock = policy("edf"), SimulatedClock()
    row = {"least": 2, "remaining": 200.0, "deadline": 150.0, "hard": True}
    given = chosen.allocate(round_of(CLUSTER, [row]), CLUSTER, Allocation.nothing(1), clock)
    worse = round_of(CLUSTER, [{**row, "remaining": 9000.0}])
    again = chosen.allocate(worse, CLUSTER, Allocation.nothing(1), clock)
    assert given.refused == again.refused == ()
    assert again.shape.tolist() == [1]


def test_a_job_of_unknown_length_is_taken(round_of: RoundOf) -> None:
    answer = ask(round_of(CLUSTER, [{"deadline": 1.0, "hard": True}]))
    assert answer.refused == ()
    assert np.all(answer.shape == 0)
