"""Programs on devices: where tc runs them on what enters (ingress) or leaves (egress)."""

import errno
import struct
from dataclasses import dataclass

from trimtab.fabric.reconcile.netlink import (
    CREATE,
    EXCLUSIVE,
    REPLACE,
    Netlink,
    NetlinkError,
    attribute,
    attributes,
    index_of,
    number,
    text,
)
from trimtab.fabric.reconcile.plane import PlaneError

INGRESS, EGRESS = 0xFFFFFFF2, 0xFFFFFFF3
PRIORITY = 4789
"""Of our filters; lower ones of others go first."""
_NEW_QDISC, _DELETE_QDISC = 36, 37
_NEW_FILTER, _DELETE_FILTER, _GET_FILTERS = 44, 45, 46
_FORM = struct.Struct("=BxxxiIII")  # family, device, handle, parent, info
_CLSACT, _CLSACT_HANDLE = 0xFFFFFFF1, 0xFFFF0000
_KIND, _OPTIONS = 1, 2
_DESCRIPTOR, _NAME, _FLAGS, _NUMBER = 6, 7, 8, 11
_DIRECT = 1  # the program's answer is the verdict
_ANY_PROTOCOL = 0x0300  # ETH_P_ALL as the wire has it
_INFO = PRIORITY << 16 | _ANY_PROTOCOL
_HANDLE = 1


@dataclass(frozen=True, slots=True)
class Hook:
    """A device and a direction."""

    device: str
    parent: int

    def index(self) -> int:
        """The device's number; raises where it is not there."""
        index = index_of(self.device)
        if index is None:
            raise PlaneError(f"there is no device {self.device} here; `trimtab fabric up` makes it")
        return index


def attached(netlink: Netlink, hook: Hook, name: str) -> int | None:
    """The number of the program of that name on a hook."""
    index = index_of(hook.device)
    if index is None:
        return None
    for priority, handle, options in _filters(netlink, index, hook.parent):
        found = attributes(options)
        if (priority, handle) == (PRIORITY, _HANDLE) and found.get(_NAME, b"").rstrip(b"\0") == name.encode():
            return int.from_bytes(found.get(_NUMBER, bytes(4)), "little")
    return None


def attach(netlink: Netlink, hook: Hook, name: str, program: int) -> None:
    """Run a program (its descriptor) on a hook, in place of an earlier one of ours."""
    index = hook.index()
    body = _FORM.pack(0, index, _CLSACT_HANDLE, _CLSACT, 0) + text(_KIND, "clsact")
    try:
        netlink.request(f"prepare {hook.device} for programs", _NEW_QDISC, CREATE | EXCLUSIVE, body)
    except NetlinkError as error:
        if error.number != errno.EEXIST:
            raise
    options = number(_DESCRIPTOR, program) + text(_NAME, name) + number(_FLAGS, _DIRECT)
    body = (
        _FORM.pack(0, index, _HANDLE, hook.parent, _INFO) + text(_KIND, "bpf") + attribute(_OPTIONS, options)
    )
    netlink.request(f"run {name} on {hook.device}", _NEW_FILTER, CREATE | REPLACE, body)


def detach(netlink: Netlink, hook: Hook) -> None:
    """Run nothing of ours on a hook, and leave a device that nobody else uses so as it was before."""
    index = index_of(hook.device)
    if index is None:
        return
    if any(priority == PRIORITY for priority, _, _ in _filters(netlink, index, hook.parent)):
        body = _FORM.pack(0, index, _HANDLE, hook.parent, _INFO) + text(_KIND, "bpf")
        netlink.request(f"take a program off {hook.device}", _DELETE_FILTER, 0, body)
        if not any(_filters(netlink, index, parent) for parent in (INGRESS, EGRESS)):
            body = _FORM.pack(0, index, _CLSACT_HANDLE, _CLSACT, 0)
            netlink.request(f"leave {hook.device} as it was", _DELETE_QDISC, 0, body)


def _filters(netlink: Netlink, index: int, parent: int) -> list[tuple[int, int, bytes]]:
    """Priority, handle and options of each filter on a device."""
    found = list[tuple[int, int, bytes]]()
    for message in netlink.dump("list filters", _GET_FILTERS, _FORM.pack(0, index, 0, parent, 0)):
        _, _, handle, _, info = _FORM.unpack_from(message)
        options = attributes(message, _FORM.size).get(_OPTIONS)
        if handle and options is not None:
            found.append((info >> 16, handle, options))
    return found
