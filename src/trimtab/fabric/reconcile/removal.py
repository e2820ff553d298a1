"""Data planes taken away by what the kernel has of them, whoever put them up."""

import socket

from trimtab.fabric.reconcile.netlink import Netlink
from trimtab.fabric.reconcile.program_hooks import EGRESS, INGRESS, Hook, detach
from trimtab.fabric.reconcile.sender import remove_sender


def remove_planes() -> int:
    """Those of all tenants in this network namespace: how many programs and rules there were.

    While nothing sends through a plane any more, the bridges and tunnels do. No reconciler should be at work.
    """
    taken = 0
    with Netlink() as netlink:
        for parent in (INGRESS, EGRESS):  # first nothing is handed to the sender, then nothing comes from it
            for _, device in socket.if_nameindex():
                taken += detach(netlink, Hook(device, parent), also_rules=True)
        remove_sender(netlink)
    return taken
