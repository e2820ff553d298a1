"""First come, first served: order, gaps, and the promise to the first in line."""

from collections.abc import Callable

import numpy as np

from trimtab.core import SimulatedClock
from trimtab.schedule import WAITING, Allocation, Cluster, GangShape, JobColumns, NodeGroup
from trimtab.schedule.policies import policy
from trimtab.schedule.policies.filling import NO_GROUP_HOLDS_IT

RoundOf = Callable[..., JobColumns]
PART = (NodeGroup("a100", "a100", 1, 8, 64.0, 1e12),)
CLUSTER = Cluster(PART, tuple(GangShape(0, workers) for workers in (1, 2, 4, 6, 8)))
FOUR = 2


def ask(jobs: JobColumns, running: dict[int, int], name: str = "fifo") -> Allocation:
    previous = Allocation.nothing(len(jobs))
    for row, shape in running.items():
        previous.shape[row] = shape
    return policy(name).allocate(jobs, CLUSTER, previous, SimulatedClock())


def runs(answer: Allocation) -> list[int]:
    return np.flatnonzero(answer.shape != WAITING).tolist()


def test_a_short_job_fills_the_gap_and_a_long_one_does_not(round_of: RoundOf) -> None:
    # Four of eight are taken for 100 s; the next wants six. A gap of four is open until then.
    first = [{"least": 4, "remaining": 400.0}, {"least": 6, "remaining": 10.0}]
    short = round_of(CLUSTER, [*first, {"least": 4, "remaining": 4 * 90.0}])
    long = round_of(CLUSTER, [*first, {"least": 4, "remaining": 4 * 200.0}])
    assert runs(ask(short, {0: FOUR})) == [0, 2]
    assert runs(ask(long, {0: FOUR})) == [0]


def test_a_long_job_may_use_what_the_first_in_line_will_leave(round_of: RoundOf) -> None:
    rows = [{"least": 4, "remaining": 400.0}, {"least": 6, "remaining": 10.0}]
    beside = [{"least": 1, "remaining": 1e6}] * 4
    answer = ask(round_of(CLUSTER, rows + beside), {0: FOUR})
    assert runs(answer) == [0, 2, 3]
    assert all(part in answer.why[1] for part in ("first in line", "a100", "1m40s"))


def test_nobody_passes_when_ends_are_unknown(round_of: RoundOf) -> None:
    jobs = round_of(CLUSTER, [{"least": 4}, {"least": 6, "remaining": 1.0}, {"least": 1, "remaining": 1.0}])
    answer = ask(jobs, {0: FOUR})
    assert runs(answer) == [0]
    assert "first in line" in answer.why[1]


def test_unknown_ends_in_one_group_do_not_close_another(round_of: RoundOf) -> None:
    parts = (*PART, NodeGroup("t4", "t4", 1, 4, 64.0, 1e12))
    cluster = Cluster(parts, (*CLUSTER.shapes, GangShape(1, 1)))
    jobs = round_of(cluster, [{"least": 4}, {"least": 6}, {"least": 1, "speed": [0.0, 1.0]}])
    previous = Allocation(np.array([FOUR, WAITING, WAITING]), np.arange(3))
    assert runs(policy("fifo").allocate(jobs, cluster, previous, SimulatedClock())) == [0, 2]


def test_without_backfill_order_is_strict(round_of: RoundOf) -> None:
    rows = [{"least": 4, "remaining": 400.0}, {"least": 6, "remaining": 1.0}, {"least": 1, "remaining": 1.0}]
    jobs = round_of(CLUSTER, rows)
    assert runs(ask(jobs, {0: FOUR})) == [0, 2]
    assert runs(ask(jobs, {0: FOUR}, "fifo:backfill=false")) == [0]


def test_a_job_that_never_fits_holds_up_nobody(round_of: RoundOf) -> None:
    jobs = round_of(CLUSTER, [{"least": 16}, {"least": 8}])
    answer = ask(jobs, {})
    assert runs(answer) == [1]
    assert answer.why[0] == NO_GROUP_HOLDS_IT


def test_running_jobs_are_left_alone(round_of: RoundOf) -> None:
    jobs = round_of(CLUSTER, [{"least": 8, "priority": 20.0}, {"least": 4, "remaining": 1e9}])
    assert runs(ask(jobs, {1: FOUR})) == [1]
