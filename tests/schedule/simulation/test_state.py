"""What is kept of every job."""

import numpy as np

from trimtab.core import Workload
from trimtab.schedule import Checkpoint, Cluster, GangShape, Job, NodeGroup
from trimtab.schedule.placing import Placement
from trimtab.schedule.simulation.state import SimulationState
from trimtab.schedule.simulation.tabular import TabularWorld

CLUSTER = Cluster((NodeGroup("a", "a", 2, 4, 8.0, 1.0, price=4.0),), (GangShape(0, 1), GangShape(0, 2)))
JOBS = [
    Job("a", Workload("a", tenant="x", deadline=50.0), 0.0, most=2, checkpoint=Checkpoint(restart=5.0)),
    Job("b", Workload("b", tenant="y", priority=10), 10.0, budget=3.0),
    Job("c", Workload("c", tenant="x"), 20.0),
]
WORLD = TabularWorld(JOBS, CLUSTER, ["any"] * 3, {"any": np.ones(2)}, np.full(3, 100.0))
ON_TWO = Placement(0, ((0, 2),), (1.0, 1.0, 0.0))


def test_jobs_arrive_in_turn_and_leave_together() -> None:
    state = SimulationState.of(JOBS, CLUSTER, WORLD)
    assert (state.arriving, state.next_arrival) == (True, 0.0)
    state.arrive(10.0)
    assert state.active.tolist() == [0, 1]
    assert state.next_arrival == 20.0
    state.arrive(25.0)
    assert not state.arriving
    state.end(np.array([0, 2]), np.array([30.0, 40.0]))
    assert state.active.tolist() == [1]
    state.refuse(np.array([1]))
    assert (state.finished, len(state.active)) == (3, 0)
    assert state.ended.tolist() == [30.0, np.inf, 40.0]
    assert state.refused.tolist() == [False, True, False]


def test_a_policy_sees_columns_of_those_who_are_there() -> None:
    state = SimulationState.of(JOBS, CLUSTER, WORLD)
    state.arrive(10.0)
    state.start(0, ON_TWO, 10.0, hazard=0.0)
    state.charge(np.array([0]), np.array([3.0]), np.array([0.0]))
    seen = state.columns(state.active, WORLD)
    assert seen.ids == ("a", "b")
    assert [seen.tenants[tenant] for tenant in seen.tenant] == ["x", "y"]
    assert seen.deadline.tolist() == [50.0, np.inf]
    assert seen.budget.tolist() == [np.inf, 3.0]
    assert seen.attained.tolist() == [6.0, 0.0]
    assert seen.held.tolist() == [[6.0], [0.0]]
    assert seen.spent.tolist() == [6.0, 0.0]
    assert seen.settling.tolist() == [True, False]
    assert seen.restarts.tolist() == [0, 0]


def test_work_is_saved_in_intervals_of_its_own_or_by_the_rule() -> None:
    own = Checkpoint(interval=40.0)
    jobs = [
        Job("own", Workload("own"), 0.0, checkpoint=own),
        Job("rule", Workload("rule"), 0.0, checkpoint=Checkpoint(seconds=2.0)),
        Job("never", Workload("never"), 0.0),
    ]
    world = TabularWorld(jobs, CLUSTER, ["any"] * 3, {"any": np.ones(2)}, np.full(3, 1e6))
    state, rows = SimulationState.of(jobs, CLUSTER, world), np.arange(3)
    for job in rows:
        state.start(job, Placement(0, ((0, 1),), (1.0, 1.0, 0.0)), 0.0, hazard=1e-4)
    state.charge(rows, np.full(3, 390.0), np.full(3, 390.0))
    assert state.unsaved(0) == 390.0 - 9 * 40.0
    assert 0 < state.unsaved(1) < 250.0  # the square root of 2 · 2 · 10,000 is 200
    assert state.unsaved(2) == 390.0
    assert state.saving(2) == 1.0
    assert state.saving(0) == 1.0 + 30.0 / 40.0
