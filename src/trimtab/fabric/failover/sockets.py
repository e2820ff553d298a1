"""Sockets to the kernel in a network namespace. A socket stays in the one it was made in, whoever uses it."""

import socket
from collections.abc import Callable
from typing import TypeVar

from trimtab.core import BadInputError, NotFoundError
from trimtab.fabric.machine import NAMESPACES, inside

_NETLINK, _ADD_MEMBERSHIP, _STRICT = 270, 1, 12  # SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, NETLINK_GET_STRICT_CHK
_FORCED_BUFFER = 33  # SO_RCVBUFFORCE
_BUFFER = 4 << 20  # bytes of events that may wait for us

Made = TypeVar("Made")


def made_in(namespace: str | None, make: Callable[[], Made]) -> Made:
    """What `make` makes in the network namespace of that name; None is this thread's own."""
    if namespace is None:
        return make()
    if not (NAMESPACES / namespace).exists():
        raise NotFoundError(f"there is no network namespace {namespace}")
    return inside(namespace, make)


def kernel_socket(*groups: int) -> socket.socket:
    """For requests, or for events of these groups."""
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    try:
        if groups:
            made.setsockopt(socket.SOL_SOCKET, _FORCED_BUFFER, _BUFFER)
        made.setsockopt(_NETLINK, _STRICT, 1)
        made.bind((0, 0))
        for group in groups:
            made.setsockopt(_NETLINK, _ADD_MEMBERSHIP, group)
    except PermissionError:
        made.close()
        raise BadInputError("changing routes takes root; run this as root") from None
    made.setblocking(False)
    return made
