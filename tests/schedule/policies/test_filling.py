"""Greedy filling: what is given is what a plain loop would give, only faster."""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

from trimtab.schedule import WAITING, Allocation, Cluster, GangShape, JobColumns, NodeGroup, usual_shapes
from trimtab.schedule.policies.filling import Filling

RoundOf = Callable[..., JobColumns]
PARTS = (NodeGroup("a", "a", 2, 4, 8.0, 20.0), NodeGroup("b", "b", 1, 8, 16.0, 30.0))
CLUSTER = Cluster(PARTS, usual_shapes(PARTS))

rows = st.lists(
    st.fixed_dictionaries(
        {
            "least": st.sampled_from([1, 1, 2, 4]),
            "gpus": st.sampled_from([0.5, 1.0]),
            "memory": st.sampled_from([0.0, 1.0, 5.0]),
            "speed": st.tuples(st.sampled_from([0.0, 1.0, 3.0]), st.sampled_from([0.0, 2.0])),
        }
    ),
    min_size=1,
    max_size=14,
)


def plainly(jobs: JobColumns, order: list[int], own: np.ndarray) -> list[int]:
    """One job after the other: its own shape if that fits, else the fastest that does."""
    free = CLUSTER.capacity.copy()
    shape = [WAITING] * len(jobs)
    for row in order:
        able = [s for s in range(len(CLUSTER.shapes)) if CLUSTER.shape_workers[s] == jobs.least[row]]
        able = [s for s in able if jobs.speed[row, s] > 0]
        able.sort(key=lambda s: (s != own[row], -jobs.speed[row, s], s))
        for each in able:
            need = CLUSTER.shape_workers[each] * jobs.demand[row]
            if (need <= free[CLUSTER.shape_group[each]] + 1e-9).all():
                free[CLUSTER.shape_group[each]] -= need
                shape[row] = each
                break
    return shape


@given(jobs_of=rows, data=st.data())
@settings(max_examples=150, deadline=None)
def test_filling_is_a_plain_loop(round_of: RoundOf, jobs_of: Any, data: st.DataObject) -> None:
    jobs = round_of(CLUSTER, jobs_of)
    nothing = np.full(len(jobs), WAITING)
    first = data.draw(st.permutations(range(len(jobs))))
    before = np.array(plainly(jobs, first[: data.draw(st.integers(0, len(jobs)))], nothing))
    order = data.draw(st.permutations(range(len(jobs))))
    filling = Filling(jobs, CLUSTER, Allocation(before, np.arange(len(jobs))))
    filling.fill(np.array(order))
    assert filling.shape.tolist() == plainly(jobs, order, before)


def test_an_elastic_job_does_not_take_workers_that_do_nothing(round_of: RoundOf) -> None:
    jobs = round_of(CLUSTER, [{"least": 1, "most": 8, "speed": [0.0, 1.0]}])
    two = CLUSTER.shapes.index(GangShape(1, 2))
    jobs.speed[0, two + 1 :] = jobs.speed[0, two]
    filling = Filling(jobs, CLUSTER, Allocation.nothing(1))
    filling.fill(np.array([0]))
    assert CLUSTER.shapes[filling.shape[0]].workers in (2, 4)


def test_a_running_job_moves_to_a_much_faster_shape_only(round_of: RoundOf) -> None:
    slow = CLUSTER.shapes.index(GangShape(0, 1))
    fast = CLUSTER.shapes.index(GangShape(1, 1))
    jobs = round_of(CLUSTER, [{"speed": [1.0, 2.0]}, {"speed": [1.0, 1.2]}])
    filling = Filling(jobs, CLUSTER, Allocation(np.array([slow, slow]), np.arange(2)))
    filling.fill(np.arange(2))
    filling.improve(np.arange(2))
    assert filling.shape.tolist() == [fast, slow]
    assert [round(left[0]) for left in filling.free] == [7, 7]
