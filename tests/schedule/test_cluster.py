"""Clusters: shapes of groups, distance of data, and jobs that no group can ever run."""

import pytest
from hypothesis import given, settings, strategies as st
from job_texts import parse_jobs

from trimtab.core import BadInputError, Node
from trimtab.schedule import (
    Cluster,
    Fleet,
    GangShape,
    JobData,
    NodeGroup,
    Tier,
    fetch,
    impossible,
    refuse_impossible,
    tier_between,
    usual_shapes,
)
from trimtab.schedule.job import Job

groups = st.builds(
    NodeGroup,
    name=st.just("a"),
    accelerator=st.just("a"),
    nodes=st.integers(0, 9),
    gpus=st.integers(0, 9),
    cpus=st.just(8.0),
    memory=st.just(1.0),
)


def test_powers_of_two_in_a_node_and_whole_nodes_beyond() -> None:
    pair = (NodeGroup("a", "a", 3, 4, 8.0, 1.0), NodeGroup("b", "b", 1, 6, 8.0, 1.0))
    shapes = usual_shapes(pair)
    assert [shape.workers for shape in shapes if shape.group == 0] == [1, 2, 4, 8, 12]
    assert [shape.workers for shape in shapes if shape.group == 1] == [1, 2, 4, 6]


@given(groups, st.none() | st.integers(1, 40))
def test_no_shape_is_larger_than_its_group_or_what_is_asked(group: NodeGroup, most: int | None) -> None:
    shapes = usual_shapes([group], most)
    total = max(1, group.gpus) * group.nodes
    sizes = [shape.workers for shape in shapes]
    assert sizes == sorted(set(sizes))
    assert all(1 <= size <= min(total, most or total) for size in sizes)
    assert bool(sizes) == (group.nodes > 0)


def test_what_groups_have() -> None:
    pair = (NodeGroup("a", "a", 3, 4, 8.0, 16.0, price=4.0), NodeGroup("cpu", "", 2, 0, 8.0, 16.0, price=3.0))
    cluster = Cluster(pair, (GangShape(0, 2), GangShape(1, 1)))
    assert cluster.capacity.tolist() == [[12.0, 24.0, 48.0], [0.0, 16.0, 32.0]]
    assert cluster.gpu_price.tolist() == [1.0, 3.0]
    assert cluster.shape_group.tolist() == [0, 1]
    assert cluster.shape_workers.tolist() == [2, 1]


def test_a_cluster_without_groups_has_nothing() -> None:
    assert Cluster((), ()).capacity.shape == (0, 3)
    assert usual_shapes([]) == ()
    assert pytest.approx(0.0) == Cluster((), ()).gpu_price.sum()


GB = 1e9
ZONES = ("aws/us-east-1/a", "aws/us-east-1/b", "aws/us-west-2/a", "gcp/us-east1/b")
GROUPS = tuple(NodeGroup(zone, "A100", 4, 8, 96.0, 1e12, zone=zone) for zone in ZONES)
NODES = {f"{group}-{n}": group for group in range(len(GROUPS)) for n in range(4)}


def test_zones_are_as_far_apart_as_their_names_say() -> None:
    assert [tier_between(ZONES[0], zone) for zone in ZONES] == [
        Tier.ZONE,
        Tier.REGION,
        Tier.CLOUD,
        Tier.ELSEWHERE,
    ]
    assert tier_between("hall-1", "hall-2") is Tier.REGION
    assert tier_between("", "hall-2") is Tier.ZONE
    assert tier_between("hall-1", ZONES[0]) is Tier.ELSEWHERE


def test_a_terabyte_costs_what_the_price_lists_say() -> None:
    found = fetch([JobData(ZONES[0], 1000 * GB), None], GROUPS)
    assert found.dollars[0] == pytest.approx([0.0, 20.0, 20.0, 90.0])
    assert found.seconds[0] == pytest.approx([800.0, 800.0, 1600.0, 1600.0])
    assert not found.seconds[1].any()
    assert not found.dollars[1].any()


def test_a_node_with_a_copy_serves_its_neighbours() -> None:
    found = fetch([JobData(ZONES[3], GB, nodes=("2-1", "gone"))], GROUPS, NODES)
    assert found.tier[0].tolist() == [Tier.CLOUD, Tier.CLOUD, Tier.DISK, Tier.ZONE]
    assert found.dollars[0, 2] == 0.0


def test_nobody_and_nowhere() -> None:
    assert fetch([], GROUPS).seconds.shape == (0, 4)
    assert fetch([None], ()).seconds.shape == (1, 0)


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            JobData,
            zone=st.sampled_from(ZONES),
            bytes=st.floats(0, 1e15),
            nodes=st.lists(st.sampled_from(sorted(NODES)), max_size=3).map(tuple),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_a_copy_never_makes_it_slower_or_dearer(data: list[JobData]) -> None:
    without = fetch([JobData(wanted.zone, wanted.bytes) for wanted in data], GROUPS, NODES)
    with_copies = fetch(data, GROUPS, NODES)
    assert (with_copies.seconds <= without.seconds).all()
    assert (with_copies.dollars <= without.dollars).all()


GIB = 2.0**30
FLEET = Fleet.of(
    [Node(f"a{n}", 64.0, 512 * GIB, "A100", 8) for n in range(2)]
    + [Node(f"t{n}", 16.0, 64 * GIB, "Tesla T4", 4) for n in range(6)]
    + [Node("c", 8.0, 32 * GIB)]
)


def job(text: str) -> Job:
    (found,) = parse_jobs(f"name: big\ncommand: 'true'\n{text}", "job.yaml")
    return found.job


@pytest.mark.parametrize(
    "text",
    [
        "resources: {gpus: 16, accelerators: a100}",
        "resources: {gpus: 24}",
        "resources: {gpus: 4..640, accelerators: [a100, t4]}",
        "resources: {share: 0.25}\nworkers: 96",
        "resources: {gpus: 16}\nworkers: 2",
        "workers: 8",
        "resources: {cpus: 64}",
    ],
)
def test_what_fits_on_empty_nodes_is_possible(text: str) -> None:
    assert impossible(job(text), FLEET.groups) is None
    refuse_impossible(job(text), FLEET.groups)


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        ("resources: {gpus: 64, accelerators: a100}", ["64 a100", "16 a100", "24 t4"]),
        ("resources: {gpus: 25}", ["25 accelerators", "16 a100", "24 t4"]),
        ("resources: {gpus: 2, accelerators: h100}", ["2 h100", "16 a100", "24 t4"]),
        ("resources: {gpus: 5, cpus: 32}", ["5 accelerators", "32 CPUs", "4 a100"]),
        ("resources: {gpus: 9, accelerators: a100}\nworkers: 1", ["9 a100", "1 CPU", "8 a100"]),
        ("resources: {gpus: 4, memory: 4TiB}", ["4 accelerators", "4 TiB", "8 a100", "512 GiB"]),
        ("resources: {cpus: 100}", ["100 CPUs", "8 CPUs and 32 GiB", "8 a100"]),
        ("workers: 1000", ["1000 workers", "1 CPU", "128"]),
    ],
)
def test_a_job_that_does_not_fit_is_refused_with_what_would(text: str, amounts: list[str]) -> None:
    with pytest.raises(BadInputError, match='"big"') as caught:
        refuse_impossible(job(text), FLEET.groups)
    position = 0
    for amount in amounts:
        position = str(caught.value).index(amount, position)


def test_without_nodes_nothing_is_possible() -> None:
    assert impossible(job(""), ())
