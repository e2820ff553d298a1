"""Jobs and their data: nearer is never slower or dearer."""

import pytest
from hypothesis import given, settings, strategies as st

from trimtab.schedule import DISTANCES, DataSet, Distance, Group, Tier, fetch, tier_between

GB = 1e9
ZONES = ("aws/us-east-1/a", "aws/us-east-1/b", "aws/us-west-2/a", "gcp/us-east1/b")
GROUPS = tuple(Group(zone, "A100", 4, 8, 96.0, 1e12, zone=zone) for zone in ZONES)
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
    found = fetch([DataSet(ZONES[0], 1000 * GB), None], GROUPS)
    assert found.dollars[0] == pytest.approx([0.0, 20.0, 20.0, 90.0])
    assert found.seconds[0] == pytest.approx([800.0, 800.0, 1600.0, 1600.0])
    assert not found.seconds[1].any()
    assert not found.dollars[1].any()


def test_a_node_with_a_copy_serves_its_neighbours() -> None:
    found = fetch([DataSet(ZONES[3], GB, nodes=("2-1", "gone"))], GROUPS, NODES)
    assert found.tier[0].tolist() == [Tier.CLOUD, Tier.CLOUD, Tier.DISK, Tier.ZONE]
    assert found.dollars[0, 2] == 0.0


def test_memory_is_nearest() -> None:
    data = [DataSet(ZONES[0], GB, nodes=("1-0",))]
    found = fetch(data, GROUPS, NODES, in_memory={0: frozenset({"1-3"})})
    assert found.tier[0, 1] == Tier.MEMORY


def test_ones_own_network_counts() -> None:
    slow = {**DISTANCES, Tier.ZONE: Distance(1e6, 1e-9)}
    found = fetch([DataSet(ZONES[0], GB)], GROUPS[:1], distances=slow)
    assert found.seconds[0, 0] == 1000.0
    assert found.dollars[0, 0] == pytest.approx(1.0)


def test_nobody_and_nowhere() -> None:
    assert fetch([], GROUPS).seconds.shape == (0, 4)
    assert fetch([None], ()).seconds.shape == (1, 0)


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            DataSet,
            zone=st.sampled_from(ZONES),
            bytes=st.floats(0, 1e15),
            nodes=st.lists(st.sampled_from(sorted(NODES)), max_size=3).map(tuple),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_a_copy_never_makes_it_slower_or_dearer(data: list[DataSet]) -> None:
    without = fetch([DataSet(wanted.zone, wanted.bytes) for wanted in data], GROUPS, NODES)
    with_copies = fetch(data, GROUPS, NODES)
    assert (with_copies.seconds <= without.seconds).all()
    assert (with_copies.dollars <= without.dollars).all()
