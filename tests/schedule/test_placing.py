"""Nodes are never given more than they have, whatever comes, goes, fails and is repaired."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.schedule import WAITING, Allocation, Cluster, GangShape, JobColumns, NodeGroup
from trimtab.schedule.placing import NodeOccupancy, Placement, PlacementChanges

RoundOf = Callable[..., JobColumns]
GROUPS = (NodeGroup("a", "a", 3, 4, 8.0, 64.0), NodeGroup("b", "b", 2, 8, 16.0, 64.0))
CLUSTER = Cluster(GROUPS, tuple(GangShape(group, size) for group in (0, 1) for size in (1, 2, 3, 4, 8, 12)))

demands = st.fixed_dictionaries(
    {
        "gpus": st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.5, 0.7, 1.0, 2.0, 3.0]),
        "cpus": st.sampled_from([0.0, 0.1, 1.0, 3.0]),
        "memory": st.sampled_from([0.0, 0.3, 7.0, 20.0]),
    }
)
wishes = st.integers(WAITING, len(CLUSTER.shapes) - 1)
events = st.one_of(
    st.lists(wishes, min_size=8, max_size=8),
    st.tuples(st.sampled_from([(0, 0), (0, 2), (1, 1)]), st.booleans()),
)


@settings(max_examples=60, deadline=None)
@given(
    moving=st.booleans(),
    rows=st.lists(demands, min_size=8, max_size=8),
    happens=st.lists(events, max_size=8),
)
def test_no_node_gives_more_than_it_has(
    moving: bool, rows: list[dict[str, Any]], happens: list[Any], round_of: RoundOf
) -> None:
    jobs, floor = round_of(CLUSTER, rows), NodeOccupancy(GROUPS, moving)
    keys = list(jobs.ids)
    shape = np.full(8, WAITING)
    for event in happens:
        if isinstance(event, list):
            before, wanted = shape, np.array(event)
            settled = _settle(floor, jobs, before, wanted)
            _nobody_is_lost(settled, before, wanted)
            shape = wanted.copy()
            shape[list(settled.unplaced)] = WAITING
        else:
            (group, node), fails = event
            if fails:
                shape[[keys.index(str(key)) for key in floor.fail(group, node)]] = WAITING
            else:
                floor.restore(group, node)
        _holds_what_it_says(floor, jobs, shape)
    for key in keys:
        floor.release(key)
    for group, size in enumerate(GROUPS):
        for node in range(size.nodes):
            assert floor.free(group, node) == (size.gpus, size.cpus, size.memory)


def _settle(
    floor: NodeOccupancy, jobs: JobColumns, before: np.ndarray, wanted: np.ndarray
) -> PlacementChanges:
    order = np.arange(len(jobs))
    return floor.settle(jobs.ids, jobs, CLUSTER, Allocation(before, order), Allocation(wanted, order))


def _nobody_is_lost(settled: PlacementChanges, before: np.ndarray, wanted: np.ndarray) -> None:
    """Who changes is placed, released or told to have no place; and never two of these."""
    told = [*settled.placed, *settled.released, *settled.unplaced]
    assert len(told) == len(set(told))
    assert set(np.flatnonzero(before != wanted).tolist()) <= set(told)
    assert all(wanted[row] == WAITING for row in settled.released)


def _holds_what_it_says(floor: NodeOccupancy, jobs: JobColumns, shape: np.ndarray) -> None:
    taken = {(group, node): np.zeros(3) for group, size in enumerate(GROUPS) for node in range(size.nodes)}
    for row, key in enumerate(jobs.ids):
        placement = floor.where(key)
        assert (placement is None) == (shape[row] == WAITING)
        if placement is None:
            continue
        wanted = CLUSTER.shapes[shape[row]]
        assert (placement.group, placement.workers) == (wanted.group, wanted.workers)
        for node, count in placement.parts:
            assert node in floor.up(placement.group)
            assert key in floor.on(placement.group, node)
            taken[placement.group, node] += count * jobs.demand[row]
    for (group, node), used in taken.items():
        has = np.array((GROUPS[group].gpus, GROUPS[group].cpus, GROUPS[group].memory))
        assert (used <= has + 1e-6).all()
        assert floor.free(group, node) == pytest.approx(tuple(has - used), abs=1e-6)


def test_shares_of_different_size_do_not_cross_accelerators(round_of: RoundOf) -> None:
    one = (NodeGroup("a", "a", 1, 2, 8.0, 64.0),)
    cluster = Cluster(one, (GangShape(0, 1), GangShape(0, 2)))
    jobs = round_of(cluster, [{"gpus": 0.6}, {"gpus": 0.6}, {"gpus": 0.6}, {"gpus": 0.4}])
    floor, order = NodeOccupancy(one), np.arange(4)
    nothing = Allocation.nothing(4)
    settled = floor.settle(jobs.ids, jobs, cluster, nothing, Allocation(np.zeros(4, dtype=np.int64), order))
    assert set(settled.placed) == {0, 1, 3}
    assert settled.unplaced == (2,)


def test_a_gang_goes_to_the_fewest_nodes_and_ends_on_the_fullest(round_of: RoundOf) -> None:
    groups = (NodeGroup("a", "a", 3, 4, 8.0, 64.0),)
    cluster = Cluster(groups, (GangShape(0, 2), GangShape(0, 6)))
    jobs = round_of(cluster, [{}, {"most": 6}])
    floor, order = NodeOccupancy(groups), np.arange(2)
    shape = np.array([0, 1])
    settled = floor.settle(jobs.ids, jobs, cluster, Allocation.nothing(2), Allocation(shape, order))
    (shared, _), *_ = settled.placed[0].parts
    assert [count for _, count in settled.placed[1].parts] == [4, 2]
    assert settled.placed[1].parts[1] == (shared, 2)


def test_the_order_says_who_chooses_first(round_of: RoundOf) -> None:
    groups = (NodeGroup("a", "a", 1, 4, 8.0, 64.0),)
    cluster = Cluster(groups, (GangShape(0, 4),))
    jobs = round_of(cluster, [{"least": 4}, {"least": 4}])
    shape = np.array([0, 0])
    settled = NodeOccupancy(groups).settle(
        jobs.ids, jobs, cluster, Allocation.nothing(2), Allocation(shape, np.array([1, 0]))
    )
    assert list(settled.placed) == [1]
    assert settled.unplaced == (0,)


def _in_pieces(round_of: RoundOf, moving: bool) -> PlacementChanges:
    """Two nodes half full of single workers, and a gang that needs a whole node."""
    groups = (NodeGroup("a", "a", 2, 4, 8.0, 64.0),)
    cluster = Cluster(groups, (GangShape(0, 2), GangShape(0, 4)))
    jobs = round_of(cluster, [{"least": 2}, {"least": 2}, {"least": 4, "cpus": 2.0}])
    floor = NodeOccupancy(groups, moving)
    for row in (0, 1):
        floor.hold(jobs.ids[row], Placement(0, ((row, 2),), (1.0, 1.0, 0.0)))
    before = Allocation(np.array([0, 0, WAITING]), np.arange(3))
    return floor.settle(jobs.ids, jobs, cluster, before, Allocation(np.array([0, 0, 1]), np.arange(3)))


def test_jobs_move_together_to_make_room(round_of: RoundOf) -> None:
    settled = _in_pieces(round_of, moving=True)
    assert not settled.unplaced
    assert settled.placed[2].form == (0, 4)
    assert all(settled.placed[row].form == (0, 2) for row in settled.placed if row != 2)


def test_nobody_moves_where_that_is_not_allowed(round_of: RoundOf) -> None:
    settled = _in_pieces(round_of, moving=False)
    assert not settled.released
    assert settled.placed[2].form == (0, 2, 2)


def test_moving_that_helps_nobody_is_undone(round_of: RoundOf) -> None:
    groups = (NodeGroup("a", "a", 2, 4, 8.0, 64.0),)
    cluster = Cluster(groups, (GangShape(0, 1),))
    rows = [{"gpus": 3.0}, {"gpus": 3.0}, {"gpus": 2.0}]
    jobs, floor = round_of(cluster, rows), NodeOccupancy(groups, moving=True)
    before = Allocation(np.array([0, 0, WAITING]), np.arange(3))
    for row in (0, 1):
        floor.hold(jobs.ids[row], Placement(0, ((1 - row, 1),), (3.0, 1.0, 0.0)))
    settled = floor.settle(jobs.ids, jobs, cluster, before, Allocation(np.zeros(3, dtype=int), np.arange(3)))
    assert settled == PlacementChanges({}, (), (2,))
    assert [floor.on(0, node) for node in (0, 1)] == [["job-1"], ["job-0"]]


def test_what_does_not_fit_is_not_held_in_part() -> None:
    floor = NodeOccupancy((NodeGroup("a", "a", 2, 2, 8.0, 64.0),))
    floor.hold("first", Placement(0, ((1, 1),), (1.5, 1.0, 0.0)))
    with pytest.raises(ValueError, match="node 1"):
        floor.hold("second", Placement(0, ((0, 2), (1, 2)), (1.0, 1.0, 0.0)))
    assert floor.where("second") is None
    assert floor.free(0, 0) == (2.0, 8.0, 64.0)


def test_a_closed_node_keeps_who_is_there_and_takes_nobody(round_of: RoundOf) -> None:
    groups = (NodeGroup("a", "a", 1, 4, 8.0, 64.0),)
    cluster = Cluster(groups, (GangShape(0, 1),))
    floor, jobs = NodeOccupancy(groups), round_of(cluster, [{}])
    floor.hold("there", Placement(0, ((0, 1),), (1.0, 1.0, 0.0)))
    floor.close(0, 0)
    assert floor.usable(0) == 0
    order = np.arange(1)
    settled = floor.settle(
        jobs.ids, jobs, cluster, Allocation.nothing(1), Allocation(np.zeros(1, dtype=int), order)
    )
    assert settled.unplaced == (0,)
    assert floor.on(0, 0) == ["there"]
