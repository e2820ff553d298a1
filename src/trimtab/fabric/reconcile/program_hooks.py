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
OURS = "trimtab-"
"""How the names of our programs begin."""
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

    @property
    def is_there(self) -> bool:
        """Whether the device is."""
        return index_of(self.device) is not None

    def index(self) -> int:
        """The device's number; raises where it is not there."""
        index = index_of(self.device)
        if index is None:
            raise PlaneError(f"there is no device {self.device} here any more")
        return index


@dataclass(frozen=True, slots=True)
class Filter:
    """Something that looks at packets on a hook."""

    kind: str
    priority: int
    handle: int
    name: str
    program: int

    @property
    def is_ours(self) -> bool:
        """Whether it is a program of this or another version of us."""
        return self.kind == "bpf" and self.priority == PRIORITY and self.name.startswith(OURS)


def filters(netlink: Netlink, hook: Hook) -> list[Filter]:
    """All on a hook; none where there is no such device."""
    index = index_of(hook.device)
    if index is None:
        return []
    asked = _FORM.pack(0, index, 0, hook.parent, 0)
    found = (_filter(message) for message in netlink.dump("list filters", _GET_FILTERS, asked))
    return [each for each in found if each.handle]


def _filter(message: bytes) -> Filter:
    """What the kernel tells; only of programs the name and number."""
    _, _, handle, _, info = _FORM.unpack_from(message)
    told = attributes(message, _FORM.size)
    kind = _text(told[_KIND])
    options = attributes(told.get(_OPTIONS, b"")) if kind == "bpf" else {}
    number = int.from_bytes(options.get(_NUMBER, b""), "little")
    return Filter(kind, info >> 16, handle, _text(options.get(_NAME, b"")), number)


def attached(netlink: Netlink, hook: Hook, name: str) -> int | None:
    """The number of the program of that name on a hook."""
    found = (each.program for each in filters(netlink, hook) if each.is_ours and each.name == name)
    return next(found, None)


def attach(netlink: Netlink, hook: Hook, name: str, program: int) -> None:
    """Run a program (its descriptor) on a hook, in place of an earlier one of ours."""
    index = hook.index()
    if any(each.priority == PRIORITY and not each.is_ours for each in filters(netlink, hook)):
        raise PlaneError(
            f"{hook.device} has a filter of somebody else with the priority {PRIORITY}, which ours needs; "
            f"give it another"
        )
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


def detach(netlink: Netlink, hook: Hook, also_rules: bool = False) -> int:
    """Take our programs, and perhaps our flower rules, off a hook: how many there were.

    A device on which nobody else has filters is left as it was before.
    """
    ours = [each for each in filters(netlink, hook) if each.is_ours]
    rules = [each for each in filters(netlink, hook) if (each.kind, each.priority) == ("flower", PRIORITY)]
    for each in ours:
        body = _FORM.pack(0, hook.index(), each.handle, hook.parent, _INFO) + text(_KIND, "bpf")
        netlink.request(f"take a program off {hook.device}", _DELETE_FILTER, 0, body)
    if rules and also_rules:
        body = _FORM.pack(0, hook.index(), 0, hook.parent, _INFO)
        netlink.request(f"take rules off {hook.device}", _DELETE_FILTER, 0, body)
    taken = len(ours) + len(rules) * also_rules
    if taken and not any(filters(netlink, Hook(hook.device, parent)) for parent in (INGRESS, EGRESS)):
        body = _FORM.pack(0, hook.index(), _CLSACT_HANDLE, _CLSACT, 0)
        netlink.request(f"leave {hook.device} as it was", _DELETE_QDISC, 0, body)
    return taken


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode(errors="replace")
