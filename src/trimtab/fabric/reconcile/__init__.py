"""Is the data plane what the control plane says? Which MAC is at which host, whatever gets lost."""

from trimtab.fabric.reconcile.bpf_plane import BpfPlane, bpf_unavailable
from trimtab.fabric.reconcile.changes import Changes, Table, difference, host_text, mac_bytes, mac_text
from trimtab.fabric.reconcile.choice import PLANES, plane_of, reconciler_of
from trimtab.fabric.reconcile.flower_plane import FlowerPlane, flower_unavailable
from trimtab.fabric.reconcile.kernel_plane import KernelPlane
from trimtab.fabric.reconcile.measure import ReconcileFigures, measure_reconciling
from trimtab.fabric.reconcile.plane import DataPlane, PlaneError
from trimtab.fabric.reconcile.reconciler import Counts, Reconciler, View
from trimtab.fabric.reconcile.removal import remove_planes
from trimtab.fabric.reconcile.tunnel_view import Heard, TunnelView

__all__ = [
    "PLANES",
    "BpfPlane",
    "Changes",
    "Counts",
    "DataPlane",
    "FlowerPlane",
    "Heard",
    "KernelPlane",
    "PlaneError",
    "ReconcileFigures",
    "Reconciler",
    "Table",
    "TunnelView",
    "View",
    "bpf_unavailable",
    "difference",
    "flower_unavailable",
    "host_text",
    "mac_bytes",
    "mac_text",
    "measure_reconciling",
    "plane_of",
    "reconciler_of",
    "remove_planes",
]
