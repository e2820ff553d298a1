"""Shapes that pack without holes, and what groups have."""

import pytest
from hypothesis import given, strategies as st

from trimtab.schedule import Cluster, Group, Shape, usual_shapes

groups = st.builds(
    Group,
    name=st.just("a"),
    accelerator=st.just("a"),
    nodes=st.integers(0, 9),
    gpus=st.integers(0, 9),
    cpus=st.just(8.0),
    memory=st.just(1.0),
)


def test_powers_of_two_in_a_node_and_whole_nodes_beyond() -> None:
    pair = (Group("a", "a", 3, 4, 8.0, 1.0), Group("b", "b", 1, 6, 8.0, 1.0))
    shapes = usual_shapes(pair)
    assert [shape.workers for shape in shapes if shape.group == 0] == [1, 2, 4, 8, 12]
    assert [shape.workers for shape in shapes if shape.group == 1] == [1, 2, 4, 6]


@given(groups, st.none() | st.integers(1, 40))
def test_no_shape_is_larger_than_its_group_or_what_is_asked(group: Group, most: int | None) -> None:
    shapes = usual_shapes([group], most)
    total = max(1, group.gpus) * group.nodes
    sizes = [shape.workers for shape in shapes]
    assert sizes == sorted(set(sizes))
    assert all(1 <= size <= min(total, most or total) for size in sizes)
    assert bool(sizes) == (group.nodes > 0)


def test_what_groups_have() -> None:
    pair = (Group("a", "a", 3, 4, 8.0, 16.0, price=4.0), Group("cpu", "", 2, 0, 8.0, 16.0, price=3.0))
    cluster = Cluster(pair, (Shape(0, 2), Shape(1, 1)))
    assert cluster.capacity.tolist() == [[12.0, 24.0, 48.0], [0.0, 16.0, 32.0]]
    assert cluster.gpu_price.tolist() == [1.0, 3.0]
    assert cluster.shape_group.tolist() == [0, 1]
    assert cluster.shape_workers.tolist() == [2, 1]


def test_a_cluster_without_groups_has_nothing() -> None:
    assert Cluster((), ()).capacity.shape == (0, 3)
    assert usual_shapes([]) == ()
    assert pytest.approx(0.0) == Cluster((), ()).gpu_price.sum()
