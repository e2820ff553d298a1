import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.predict import ScaleOutAssumptions, restart_factor
from trimtab.predict.cost.scale_out import all_reduce_seconds, exposed_seconds, input_seconds

ASSUME = ScaleOutAssumptions()
# Nothing is lost, so that the ring's own arithmetic shows.
IDEAL = ScaleOutAssumptions(link_efficiency=1.0, link_latency=0.0, network_latency=0.0)

gradients = st.floats(1e3, 1e11)
bandwidth = st.floats(1e8, 1e12)
counts = st.integers(1, 64)


@given(gradients, bandwidth, bandwidth)
def test_one_device_on_one_node_costs_nothing(size: float, link: float, network: float) -> None:
    assert all_reduce_seconds(size, 1, 1, link, network, ASSUME) == 0.0


@pytest.mark.parametrize(
    ("per_node", "nodes", "seconds"),
    [
        (2, 1, 1.0),  # 2 * 1/2 of 100 GB over 100 GB/s
        (8, 1, 1.75),  # 2 * 7/8
        (1, 2, 10.0),  # 2 * 1/2 of 100 GB over 10 GB/s
        (1, 4, 15.0),  # 2 * 3/4
        (8, 4, 16.75),  # one ring after the other
    ],
)
def test_a_ring_of_n_sends_twice_n_minus_one_nths_of_the_data(
    per_node: int, nodes: int, seconds: float
) -> None:
    assert all_reduce_seconds(100e9, per_node, nodes, 100e9, 10e9, IDEAL) == pytest.approx(seconds)


def test_links_lose_a_share_and_every_bucket_pays_each_hop() -> None:
    # 100 MiB are 4 buckets; 3 hops of 15 µs and 1 hop of 40 µs each way; 75 % of the bandwidth.
    size = 100 * 2**20
    expected = (2 * 3 / 4 * size / 75e9) + (2 * 1 / 2 * size / 7.5e9) + 4 * (6 * 15e-6 + 2 * 40e-6)
    assert all_reduce_seconds(size, 4, 2, 100e9, 10e9, ASSUME) == pytest.approx(expected)


@given(gradients, counts, counts, counts, bandwidth, bandwidth)
def test_more_nodes_are_never_cheaper(
    size: float, per_node: int, nodes: int, more: int, link: float, network: float
) -> None:
    few, many = (all_reduce_seconds(size, per_node, n, link, network, ASSUME) for n in (nodes, nodes + more))
    assert few <= many


@given(gradients, counts, counts, counts, bandwidth, bandwidth)
def test_more_devices_on_a_node_are_never_cheaper(
    size: float, per_node: int, nodes: int, more: int, link: float, network: float
) -> None:
    few, many = (
        all_reduce_seconds(size, n, nodes, link, network, ASSUME) for n in (per_node, per_node + more)
    )
    assert few <= many


@given(st.floats(0, 1e3), st.floats(0, 1e3))
def test_between_the_last_bucket_and_all_of_an_all_reduce_is_seen(reduce: float, step: float) -> None:
    seen = exposed_seconds(reduce, step, ASSUME)
    assert 0.1 * reduce <= seen <= reduce
    assert seen >= reduce - 0.45 * step


def test_what_the_backward_pass_covers_is_hidden() -> None:
    assert exposed_seconds(10.0, 10.0, ASSUME) == pytest.approx(10.0 - 4.5)
    assert exposed_seconds(1.0, 10.0, ASSUME) == pytest.approx(0.1)
    assert exposed_seconds(1.0, 0.0, ASSUME) == 1.0


def test_arrays_and_scalars_agree() -> None:
    per_node, nodes = np.array([1.0, 8.0, 8.0]), np.array([1.0, 1.0, 3.0])
    at_once = np.asarray(all_reduce_seconds(1e9, per_node, nodes, 1e11, 1e10, ASSUME))
    alone = [all_reduce_seconds(1e9, p, n, 1e11, 1e10, ASSUME) for p, n in zip(per_node, nodes, strict=True)]
    assert at_once.tolist() == pytest.approx(alone)


def test_data_loaded_in_the_training_process_is_always_waited_for() -> None:
    waits = input_seconds(True, 0.01, np.array([10.0, 20.0]), 64.0, np.array([5.0, 0.0]))
    assert np.asarray(waits).tolist() == pytest.approx([0.1, 0.2])


def test_loader_workers_are_waited_for_only_after_the_step() -> None:
    # 100 samples of 10 ms on 4 cores take 250 ms.
    assert input_seconds(False, 0.01, 100.0, 4.0, 0.1) == pytest.approx(0.15)
    assert input_seconds(False, 0.01, 100.0, 4.0, 0.3) == 0.0


def test_less_than_a_core_loads_like_one() -> None:
    assert input_seconds(False, 0.01, 100.0, 0.5, 0.0) == pytest.approx(1.0)


def test_a_lost_node_costs_a_restart_and_half_a_checkpoint_interval() -> None:
    # 0.5 losses an hour of each of 4 nodes, each costing 300 s + 1800 s / 2.
    assert restart_factor(0.5, 4, 300.0, 1800.0) == pytest.approx(1 + 0.5 * 4 * 1200 / 3600)
    assert restart_factor(0.0, 4, 300.0, 1800.0) == 1.0
    assert np.asarray(restart_factor(0.1, np.array([1, 2]), 60.0, 600.0)).tolist() == pytest.approx(
        [1.01, 1.02]
    )
