"""Sockets to the kernel in a network namespace. A socket stays in the one it was made in, whoever uses it."""

import ctypes
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from trimtab.core import BadInputError, NotFoundError

_NETLINK, _ADD_MEMBERSHIP, _STRICT = 270, 1, 12  # SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, NETLINK_GET_STRICT_CHK
_FORCED_BUFFER = 33  # SO_RCVBUFFORCE
_BUFFER = 4 << 20  # bytes of events that may wait for us
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_FOLDER = Path("/run/netns")

Made = TypeVar("Made")


def inside(namespace: str | None, make: Callable[[], Made]) -> Made:
    """What `make` makes in the network namespace of that name; None is this process' own."""
    if namespace is None:
        return make()
    try:
        handle = os.open(_FOLDER / namespace, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFoundError(f"there is no network namespace {namespace}") from None
    made = list[Made | BaseException]()
    # Entering a namespace is a thread's own affair: this one enters, makes, and ends.
    thread = threading.Thread(target=_enter_and_make, args=(handle, make, made))
    thread.start()
    thread.join()
    os.close(handle)
    if isinstance(made[0], BaseException):
        raise made[0]
    return made[0]


def _enter_and_make(handle: int, make: Callable[[], Made], made: list[Made | BaseException]) -> None:
    try:
        if ctypes.CDLL(None, use_errno=True).setns(handle, _NEW_NETWORK) != 0:
            raise BadInputError("entering a network namespace takes root; run this as root")
        made.append(make())
    except BaseException as error:
        made.append(error)


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
