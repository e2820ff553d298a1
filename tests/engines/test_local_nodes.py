"""Nodes of this machine, and who gets which accelerator."""

import contextlib
import os

import pytest
from hypothesis import given, strategies as st

from trimtab.core import BadInputError, Launch, Node, NotFoundError, Workload
from trimtab.engines.local.nodes import assign_devices, environments, nodes_at
from trimtab.engines.local.supervisor import WorkerDevices


def test_this_machine_is_one_node_called_local() -> None:
    (node,) = nodes_at("")
    assert node.name == "local"
    assert 0 < node.cpus <= (os.cpu_count() or 1)
    assert node.memory > 2**20
    assert bool(node.accelerator) == bool(node.gpus)


def test_a_machine_can_pretend_to_be_several() -> None:
    assert nodes_at("?nodes=2&cpus=2.5&memory=4GiB&gpus=4&accelerator=t4") == (
        Node("local-1", 2.5, 2.0**32, "t4", 4),
        Node("local-2", 2.5, 2.0**32, "t4", 4),
    )


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ("here", "here"),
        ("?node=3", "node.*did you mean nodes"),
        ("?nodes=0", "nodes .*'0'"),
        ("?nodes=three", "nodes .*'three'"),
        ("?cpus=-1", "cpus .*'-1'"),
        ("?cpus=nan", "cpus .*'nan'"),
        ("?memory=0", "memory .*'0'"),
        ("?memory=much", "memory .*'much'"),
    ],
)
def test_a_bad_address_is_refused_with_field_and_value(address: str, named: str) -> None:
    with pytest.raises(BadInputError, match=f"local://.*{named}"):
        nodes_at(address)


NODES = {name: Node(name, 8.0, 2.0**33, "t4", 4) for name in ("a", "b")}


def launch(gpus: float, **parts: int) -> Launch:
    return Launch("k", Workload("w"), tuple(parts.items()), 1.0, 0.0, gpus)


@given(st.lists(st.tuples(st.sampled_from([0.1, 0.25, 0.5, 0.75, 1.0, 2.0, 3.0]), st.integers(1, 4))))
def test_no_accelerator_is_given_out_more_than_whole(wishes: list[tuple[float, int]]) -> None:
    taken: list[WorkerDevices] = []
    for gpus, workers in wishes:
        with contextlib.suppress(NotFoundError):
            taken += assign_devices(launch(gpus, a=workers), NODES, taken)
    loads = [sum(g.share for g in taken if device in g.devices) for device in range(4)]
    assert max(loads) <= 1 + 1e-9
    assert all(len(set(g.devices)) == max(1, round(g.share * len(g.devices))) for g in taken)


def test_a_share_goes_where_others_share_already() -> None:
    taken = [WorkerDevices("a", (2,), 0.5)]
    assert assign_devices(launch(0.5, a=1), NODES, taken) == (WorkerDevices("a", (2,), 0.5),)
    assert assign_devices(launch(0.75, a=1), NODES, taken) == (WorkerDevices("a", (0,), 0.75),)


def test_one_and_a_half_cannot_be_given() -> None:
    with pytest.raises(BadInputError, match=r"1\.5 accelerators"):
        assign_devices(launch(1.5, a=1), NODES, [])


def test_more_than_a_node_has_cannot_be_given() -> None:
    with pytest.raises(BadInputError, match=r"node a .*4 accelerators.* 5$"):
        assign_devices(launch(5.0, a=1), NODES, [])


def test_workers_see_the_whole_accelerators_of_their_run_on_their_node() -> None:
    gang = launch(2.0, a=2, b=1)
    seen = list(environments(gang, assign_devices(gang, NODES, []), 29500))
    assert [(v["RANK"], v["LOCAL_RANK"], v["CUDA_VISIBLE_DEVICES"]) for v in seen] == [
        ("0", "0", "0,1,2,3"),
        ("1", "1", "0,1,2,3"),
        ("2", "0", "0,1"),
    ]


def test_workers_without_accelerators_are_told_nothing_of_them() -> None:
    gang = launch(0.0, a=1)
    (variables,) = environments(gang, assign_devices(gang, NODES, []), 29500)
    assert "CUDA_VISIBLE_DEVICES" not in variables
