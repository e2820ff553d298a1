"""Which plane a tenant gets."""

from ipaddress import IPv4Address, IPv4Interface

import pytest

from trimtab.core import BadInputError
from trimtab.fabric import FabricHost, TenantNetwork, VirtualFunction, WorkerDevice
from trimtab.fabric.reconcile.bpf_plane import bpf_unavailable
from trimtab.fabric.reconcile.flower_plane import flower_unavailable
from trimtab.fabric.reconcile.planes import Changes
from trimtab.fabric.reconcile.reconciler import plane_of

WORKER = WorkerDevice("w0", IPv4Interface("10.100.0.1/24"), "02:00:0a:64:00:01")
ON_A_CARD = WorkerDevice(
    "w0", IPv4Interface("10.100.0.1/24"), WORKER.mac, "", VirtualFunction("p1", 0, "p1_0")
)


def chosen(worker: WorkerDevice, wanted: str | None = None) -> str:
    tenant = TenantNetwork("blue", 100, (worker,))
    return plane_of(FabricHost("h", IPv4Address("10.255.0.1"), 65001, (), (tenant,)), tenant, wanted).name


def test_without_a_card_it_is_the_program_where_the_kernel_can_run_it() -> None:
    assert chosen(WORKER) == ("bpf" if bpf_unavailable() is None else "kernel")


def test_with_a_card_it_is_the_rules_where_the_kernel_has_them() -> None:
    expected = "flower" if flower_unavailable() is None else chosen(WORKER)
    assert chosen(ON_A_CARD) == expected


def test_the_kernels_own_can_be_asked_for_and_only_keeps_count() -> None:
    tenant = TenantNetwork("blue", 100, (WORKER,))
    plane = plane_of(FabricHost("h", IPv4Address("10.255.0.1"), 65001, (), (tenant,)), tenant, "kernel")
    plane.apply(Changes({bytes(6): bytes(4)}))
    plane.apply(Changes({b"mac..2": bytes(4)}, (bytes(6),)))
    assert plane.entries() == {b"mac..2": bytes(4)}


def test_a_plane_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"ebpf.*flower, bpf, kernel"):
        chosen(WORKER, "ebpf")


def test_one_that_cannot_be_used_here_says_why() -> None:
    reason = flower_unavailable()
    if reason is None:
        pytest.skip("this kernel has flower")
    with pytest.raises(BadInputError, match=r"flower .*cls_flower"):
        chosen(WORKER, "flower")
