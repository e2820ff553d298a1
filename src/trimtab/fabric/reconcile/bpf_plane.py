"""Programs on devices: where tc runs them on what enters (ingress) or leaves (egress)."""

import errno
import functools
import hashlib
import struct
import sys
import time
from dataclasses import dataclass
from importlib import resources

from trimtab.core import TrimtabError
from trimtab.fabric.reconcile.forwarding import pin
from trimtab.fabric.reconcile.planes import Changes, PlaneError, Table, mac_bytes
from trimtab.fabric.reconcile.sender import SENDER, SENDING_PORT, TUNNEL_PORT, put_sender, remove_sender
from trimtab.fabric.topology import Host, Tenant
from trimtab.kernel import BpfMap, LoadedPrograms, number_of, program_of_id, rtnetlink, run_program

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
        return rtnetlink.index_of(self.device) is not None

    def index(self) -> int:
        """The device's number; raises where it is not there."""
        index = rtnetlink.index_of(self.device)
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


def filters(netlink: rtnetlink.Netlink, hook: Hook) -> list[Filter]:
    """All on a hook; none where there is no such device."""
    index = rtnetlink.index_of(hook.device)
    if index is None:
        return []
    asked = _FORM.pack(0, index, 0, hook.parent, 0)
    found = (_filter(message) for message in netlink.dump("list filters", _GET_FILTERS, asked))
    return [each for each in found if each.handle]


def _filter(message: bytes) -> Filter:
    """What the kernel tells; only of programs the name and number."""
    _, _, handle, _, info = _FORM.unpack_from(message)
    told = rtnetlink.attributes(message, _FORM.size)
    kind = _text(told[_KIND])
    options = rtnetlink.attributes(told.get(_OPTIONS, b"")) if kind == "bpf" else {}
    number = int.from_bytes(options.get(_NUMBER, b""), "little")
    return Filter(kind, info >> 16, handle, _text(options.get(_NAME, b"")), number)


def attached(netlink: rtnetlink.Netlink, hook: Hook, name: str) -> int | None:
    """The number of the program of that name on a hook."""
    found = (each.program for each in filters(netlink, hook) if each.is_ours and each.name == name)
    return next(found, None)


def attach(netlink: rtnetlink.Netlink, hook: Hook, name: str, program: int) -> None:
    """Run a program (its descriptor) on a hook, in place of an earlier one of ours."""
    index = hook.index()
    if any(each.priority == PRIORITY and not each.is_ours for each in filters(netlink, hook)):
        raise PlaneError(
            f"{hook.device} has a filter of somebody else with the priority {PRIORITY}, which ours needs; "
            f"give it another"
        )
    body = _FORM.pack(0, index, _CLSACT_HANDLE, _CLSACT, 0) + rtnetlink.text(_KIND, "clsact")
    try:
        netlink.request(
            f"prepare {hook.device} for programs", _NEW_QDISC, rtnetlink.CREATE | rtnetlink.EXCLUSIVE, body
        )
    except rtnetlink.NetlinkError as error:
        if error.number != errno.EEXIST:
            raise
    options = (
        rtnetlink.number(_DESCRIPTOR, program)
        + rtnetlink.text(_NAME, name)
        + rtnetlink.number(_FLAGS, _DIRECT)
    )
    body = (
        _FORM.pack(0, index, _HANDLE, hook.parent, _INFO)
        + rtnetlink.text(_KIND, "bpf")
        + rtnetlink.attribute(_OPTIONS, options)
    )
    netlink.request(f"run {name} on {hook.device}", _NEW_FILTER, rtnetlink.CREATE | rtnetlink.REPLACE, body)


def detach(netlink: rtnetlink.Netlink, hook: Hook, also_rules: bool = False) -> int:
    """Take our programs, and perhaps our flower rules, off a hook: how many there were.

    A device on which nobody else has filters is left as it was before.
    """
    ours = [each for each in filters(netlink, hook) if each.is_ours]
    rules = [each for each in filters(netlink, hook) if (each.kind, each.priority) == ("flower", PRIORITY)]
    for each in ours:
        body = _FORM.pack(0, hook.index(), each.handle, hook.parent, _INFO) + rtnetlink.text(_KIND, "bpf")
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


_SETTINGS = struct.Struct("=Q6I")  # alive_until, sender, vni, loopback, tunnel_port, sending_port, unused
_FIRST = bytes(4)
_REDIRECTED = 7


class BpfPlane:
    """Of one tenant of a host, in the network namespace of the thread that calls."""

    name = "bpf"

    def __init__(self, host: Host, tenant: Tenant) -> None:
        self._host = host
        self._tenant = tenant
        self._macs = {Hook(device.port, INGRESS): mac_bytes(device.mac) for device in tenant.devices}
        self._ports = tuple(self._macs)
        self._loaded: LoadedPrograms | None = None
        self._sender = 0
        self._name = f"{OURS}{_version()}"

    @property
    def devices(self) -> frozenset[str]:
        """What it lives on."""
        return frozenset(hook.device for hook in (*self._ports, *self._host_hooks()))

    def prepare(self) -> int:
        """The sender, the programs of the host and of this tenant's ports, and the workers' MACs.

        Uplinks and ports that are not there at the moment are passed over.
        """
        ports = [hook for hook in self._ports if hook.is_there]
        if not ports:
            raise PlaneError(
                f"none of the ports of tenant {self._tenant.name} is here "
                f"({', '.join(hook.device for hook in self._ports)}); `trimtab fabric up` makes them"
            )
        with rtnetlink.Netlink() as netlink:
            self._sender, was_wrong = put_sender(netlink, self._host.worker_mtu)
            wrong = int(was_wrong) + self._prepare_host(netlink)
            send = self._own(netlink)
            self._tell(send.maps["settings"])
            number = number_of(send.programs["send"])
            for hook in ports:
                wrong += pin(netlink, hook.index(), self._macs[hook])
                if attached(netlink, hook, self._name) != number:
                    attach(netlink, hook, self._name, send.programs["send"])
                    wrong += 1
        return wrong

    def entries(self) -> Table:
        """The map's content; nothing before there is one."""
        return self._loaded.maps["remotes"].entries() if self._loaded is not None else {}

    def apply(self, changes: Changes) -> None:
        """First what is new or moved, then what is gone."""
        if self._loaded is None:
            raise PlaneError("the BPF plane is not there; it has to be prepared before it can be changed")
        remotes = self._loaded.maps["remotes"]
        remotes.update(changes.put)
        remotes.delete(changes.forget)

    def trust(self, seconds: float) -> None:
        """Until then frames may go this way."""
        if self._loaded is not None:
            self._tell(self._loaded.maps["settings"], time.monotonic_ns() + int(seconds * 1e9))

    def remove(self) -> None:
        """Off the tenant's ports; with the host's last tenant, off the uplinks and with the sender too.

        The workers' MACs stay pinned: they are behind those ports for as long as the ports exist.
        """
        with rtnetlink.Netlink() as netlink:
            for hook in self._ports:
                detach(netlink, hook)
            others = [
                Hook(device.port, INGRESS) for tenant in self._host.tenants for device in tenant.devices
            ]
            if all(attached(netlink, hook, self._name) is None for hook in others):
                for hook in self._host_hooks():
                    detach(netlink, hook)
                remove_sender(netlink)
        self.close()

    def close(self) -> None:
        """Let go of it, and leave it as it is."""
        if self._loaded is not None:
            self._loaded.close()
            self._loaded = None

    def _host_hooks(self) -> dict[Hook, str]:
        hooks = {Hook(uplink.device, EGRESS): "leave" for uplink in self._host.uplinks}
        return {**hooks, Hook(SENDER, INGRESS): "refuse"}

    def _prepare_host(self, netlink: rtnetlink.Netlink) -> int:
        """What all tenants share; each sees to it."""
        hooks = self._host_hooks()
        lacking = [hook for hook in hooks if hook.is_there and not self._serves(netlink, hook)]
        if lacking:
            with LoadedPrograms.load(fast_path()) as shared:
                shared.maps["settings"].set(_FIRST, self._shared())
                for hook in lacking:
                    attach(netlink, hook, self._name, shared.programs[hooks[hook]])
        return len(lacking)

    def _serves(self, netlink: rtnetlink.Netlink, hook: Hook) -> bool:
        """Whether a program of ours is there, with the addresses and ports of now if it has any."""
        number = attached(netlink, hook, self._name)
        if number is None:
            return False
        with LoadedPrograms.of({"": program_of_id(number)}) as running:
            settings = running.maps.get("settings")
            return settings is None or settings.get(_FIRST) == self._shared()

    def _own(self, netlink: rtnetlink.Netlink) -> LoadedPrograms:
        """The tenant's own program and maps: kept, else those that run on one of its ports, else new ones."""
        if self._loaded is None:
            running = [attached(netlink, hook, self._name) for hook in self._ports]
            number = next((each for each in running if each is not None), None)
            if number is None:
                self._loaded = LoadedPrograms.load(fast_path())
            else:
                self._loaded = LoadedPrograms.of({"send": program_of_id(number)})
        return self._loaded

    def _tell(self, settings: BpfMap, alive_until: int | None = None) -> None:
        """Write the settings where they differ; without a time, trust ends if anything else differs."""
        held = settings.get(_FIRST) or bytes(_SETTINGS.size)
        if alive_until is None:
            kept = _settings(self._host, _SETTINGS.unpack(held)[0], self._sender, self._tenant.vni)
            alive_until = _SETTINGS.unpack(held)[0] if kept == held else 0
        told = _settings(self._host, alive_until, self._sender, self._tenant.vni)
        if told != held:
            settings.set(_FIRST, told)

    def _shared(self) -> bytes:
        """Settings of the host's own programs, whichever tenant sees to them."""
        return _settings(self._host)


def bpf_unavailable() -> str | None:
    """Why this plane cannot be used here; None where it can. Tried, on a frame that goes nowhere."""
    if sys.byteorder != "little":
        return "the BPF plane is compiled for little-endian machines, and this is not one"
    here, mac = bytes([127, 0, 0, 1]), bytes([2, 0, 0, 0, 0, 1])
    try:
        with LoadedPrograms.load(fast_path()) as loaded:
            loaded.maps["remotes"].set(mac, here)
            loaded.maps["settings"].set(_FIRST, _SETTINGS.pack(2**63, 1, 1, 0x7F000001, 0, 0, 0))
            verdict, _ = run_program(loaded.programs["send"], mac + bytes(58))
    except TrimtabError as error:
        return str(error)
    if verdict != _REDIRECTED:
        return "this kernel cannot give a tunnel its source address from BPF; Linux 6.0 and newer can"
    return None


def _settings(host: Host, alive_until: int = 0, sender: int = 0, vni: int = 0) -> bytes:
    return _SETTINGS.pack(alive_until, sender, vni, int(host.loopback), TUNNEL_PORT, SENDING_PORT, 0)


@functools.cache
def _version() -> str:
    """Tells the programs of this version from those of others."""
    return hashlib.sha256(fast_path()).hexdigest()[:8]


def fast_path() -> bytes:
    """The compiled programs, as an ELF object."""
    return resources.files(__package__).joinpath("fast_path.bpf.o").read_bytes()
