"""Which data plane a tenant gets on this machine."""

from collections.abc import Callable

from trimtab.core import BadInputError
from trimtab.fabric.reconcile.bpf_plane import BpfPlane, bpf_unavailable
from trimtab.fabric.reconcile.changes import mac_bytes
from trimtab.fabric.reconcile.flower_plane import FlowerPlane, flower_unavailable
from trimtab.fabric.reconcile.kernel_plane import KernelPlane
from trimtab.fabric.reconcile.plane import DataPlane
from trimtab.fabric.reconcile.reconciler import Reconciler
from trimtab.fabric.reconcile.tunnel_view import TunnelView
from trimtab.fabric.topology import Host, Tenant

PLANES = ("flower", "bpf", "kernel")
_UNAVAILABLE: dict[str, Callable[[], str | None]] = {
    "flower": flower_unavailable,
    "bpf": bpf_unavailable,
    "kernel": lambda: None,
}


def reconciler_of(host: Host, tenant: Tenant, wanted: str | None = None) -> Reconciler:
    """Of a tenant in the network namespace of this thread, with the plane asked for, else the best one."""
    plane = plane_of(host, tenant, wanted)
    local = [mac_bytes(device.mac) for device in tenant.devices]
    return Reconciler(TunnelView(tenant.tunnel, local, plane.devices), plane, host.timers.settle)


def plane_of(host: Host, tenant: Tenant, wanted: str | None = None) -> DataPlane:
    """Flower where a card has workers' ports and forwards for them, else BPF, else the kernel's own."""
    if wanted is not None and wanted not in PLANES:
        raise BadInputError(f"there is no data plane {wanted}; there are {', '.join(PLANES)}")
    if wanted is not None:
        reason = _UNAVAILABLE[wanted]()
        if reason is not None:
            raise BadInputError(f"the data plane {wanted} cannot be used: {reason}")
        return _made(wanted, host, tenant)
    has_card = any(device.function is not None for device in tenant.devices)
    order = ("flower", "bpf", "kernel") if has_card else ("bpf", "kernel")
    return _made(next(name for name in order if _UNAVAILABLE[name]() is None), host, tenant)


def _made(name: str, host: Host, tenant: Tenant) -> DataPlane:
    if name == "kernel":
        return KernelPlane()
    return FlowerPlane(host, tenant) if name == "flower" else BpfPlane(host, tenant)
