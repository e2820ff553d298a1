"""Devices named on the command line, and the links that come with their machines."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.catalog import accelerator, accelerators
from trimtab.core import BadInputError, NotFoundError, TrimtabError
from trimtab.partition import devices_of, parse_devices
from trimtab.partition.devices import with_more


def test_each_kind_is_one_machine_and_the_network_joins_them() -> None:
    devices = devices_of("a100-40:2,t4:4", network="25Gbit")
    assert [d.name for d in devices.devices] == ["A100:0", "A100:1", "T4:0", "T4:1", "T4:2", "T4:3"]
    assert [d.machine for d in devices.devices] == [0, 0, 1, 1, 1, 1]
    assert devices[0].memory == 40e9
    assert devices.bandwidth[0, 1] == accelerator("A100").interconnect.bandwidth
    assert devices.bandwidth[2, 3] == 16e9
    assert devices.bandwidth[0, 2] == 25e9 / 8
    assert devices.latency[0, 1] < devices.latency[2, 3] < devices.latency[0, 2]


@pytest.mark.parametrize(("text", "per"), [("t4:5/2", None), ("t4:5", 2), ("t4:5/2", 4)])
def test_devices_are_spread_over_machines(text: str, per: int | None) -> None:
    assert [d.machine for d in devices_of(text, per_machine=per).devices] == [0, 0, 1, 1, 2]


def test_bridges_join_pairs_and_the_rest_goes_over_the_host() -> None:
    devices = devices_of("rtx-a6000:4")
    assert devices.bandwidth[0, 1] == devices.bandwidth[2, 3] == 56.25e9
    assert devices.bandwidth[1, 2] == 32e9


def test_cpus_share_this_machine() -> None:
    devices = devices_of("cpu:2x8")
    assert [(d.kind, d.cores) for d in devices.devices] == [("cpu", 8.0), ("cpu", 8.0)]
    assert devices[0].memory + devices[1].memory == devices_of("cpu").memory[0]


def test_an_accelerator_costs_its_share_of_the_cheapest_machine_that_has_it() -> None:
    price = devices_of("t4")[0].price
    assert price is not None
    assert 0.01 < price * 3600 < 2.0


def test_what_is_assumed_is_said() -> None:
    assert parse_devices("t4:2").assumed == ()
    assert "10Gbit" in parse_devices("t4:2,l4:2").assumed[0]
    assert parse_devices("t4:2,l4:2", network="25Gbit").assumed == ()


def test_machines_may_be_apart() -> None:
    devices = devices_of("t4:2,l4:2", network="none")
    assert devices.bandwidth[0, 1] > 0
    assert devices.bandwidth[0, 2] == 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "--devices"),
        ("t4:0", "--devices"),
        (" , ", "--devices"),
        ("t4:x", '"t4:x"'),
        ("t4:-1", '"t4:-1"'),
        ("t4:2/0", '"t4:2/0"'),
        ("t4:2x8", '"t4:2x8"'),
        ("cpu:2x0", '"cpu:2x0"'),
        ("t4:999999", "4,096"),
        ("nowhere.yaml", "nowhere.yaml"),
    ],
)
def test_bad_devices_are_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(TrimtabError, match=sentence) as refused:
        devices_of(text)
    assert "\n" not in str(refused.value)


def test_an_unknown_device_is_refused_with_what_is_near() -> None:
    with pytest.raises(NotFoundError, match=r"a101-40.*A100"):
        devices_of("a101-40:2")


@pytest.mark.parametrize("network", ["25", "fast", "0Gbit", "-1Gbit", "1e999Gbit"])
def test_a_network_that_is_no_bandwidth_is_refused(network: str) -> None:
    with pytest.raises(BadInputError, match="not a bandwidth"):
        devices_of("t4:1,l4:1", network=network)


@given(
    st.lists(
        st.tuples(st.sampled_from([a.name for a in accelerators()]), st.integers(1, 5), st.integers(1, 3)),
        min_size=1,
        max_size=4,
    )
)
def test_links_are_the_same_both_ways_and_fastest_inside_a_machine(
    machines: list[tuple[str, int, int]],
) -> None:
    devices = devices_of(",".join(f"{kind}:{count}/{per}" for kind, count, per in machines), network="1Gbit")
    assert len(devices) == sum(count for _, count, _ in machines)
    assert np.array_equal(devices.bandwidth, devices.bandwidth.T)
    assert np.array_equal(devices.latency, devices.latency.T)
    machine = np.array([d.machine for d in devices.devices])
    together = machine[:, None] == machine[None, :]
    assert (devices.bandwidth[together] > 1e9 / 8).all()
    assert (devices.bandwidth[~together] == 1e9 / 8).all()


def test_more_devices_come_in_machines_of_the_same_size() -> None:
    devices = devices_of("a100:2,t4:4/2", network="25Gbit")
    more = with_more(devices, "A100", 3)
    assert [d.machine for d in more.devices] == [0, 0, 1, 1, 2, 2, 3, 3, 4]
    assert (more.bandwidth[:6, :6] == devices.bandwidth).all()
    assert more.bandwidth[6, 7] == devices.bandwidth[0, 1]
    assert more.bandwidth[0, 6] == more.bandwidth[7, 8] == more.bandwidth[6, 2] == 25e9 / 8
    assert np.array_equal(more.bandwidth, more.bandwidth.T)


def test_a_second_machine_is_joined_by_the_usual_network() -> None:
    more = with_more(devices_of("t4:2"), "T4", 1)
    assert more.bandwidth[0, 2] == 10e9 / 8
