"""The data plane of BPF programs: tc runs them on frames that enter (ingress) or leave (egress) a device."""

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
from trimtab.fabric.topology import FabricHost, TenantNetwork
from trimtab.kernel import BpfMap, LoadedPrograms, number_of, program_of_id, rtnetlink, run_program

INGRESS, EGRESS = 0xFFFFFFF2, 0xFFFFFFF3
PRIORITY = 4789
"""Priority of our filters; those of other programs with a lower one run first."""
OURS = "trimtab-"
"""Prefix of the names of our programs."""
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
    """A device and a direction of packets."""

    device: str
    parent: int

    @property
    def exists(self) -> bool:
        return rtnetlink.index_of(self.device) is not None

    def index(self) -> int:
        """The device's index; PlaneError where it does not exist."""
        index = rtnetlink.index_of(self.device)
        if index is None:
            raise PlaneError(f"there is no device {self.device} here any more")
        return index


@dataclass(frozen=True, slots=True)
class Filter:
    """A tc filter on a hook."""

    kind: str
    priority: int
    handle: int
    name: str
    program: int

    @property
    def is_ours(self) -> bool:
        """Whether it is a program of this or another version of Trimtab."""
        return self.kind == "bpf" and self.priority == PRIORITY and self.name.startswith(OURS)


def filters(netlink: rtnetlink.Netlink, hook: Hook) -> list[Filter]:
    """All filters on a hook, with names and numbers of BPF programs; none where the device is missing."""
    index = rtnetlink.index_of(hook.device)
    if index is None:
        return []
    listed = list[Filter]()
    for message in netlink.dump("list filters", _GET_FILTERS, _FORM.pack(0, index, 0, hook.parent, 0)):
        _, _, handle, _, info = _FORM.unpack_from(message)
        attributes = rtnetlink.attributes(message, _FORM.size)
        kind = _text(attributes[_KIND])
        options = rtnetlink.attributes(attributes.get(_OPTIONS, b"")) if kind == "bpf" else {}
        number = int.from_bytes(options.get(_NUMBER, b""), "little")
        if handle:
            listed.append(Filter(kind, info >> 16, handle, _text(options.get(_NAME, b"")), number))
    return listed


def attached(netlink: rtnetlink.Netlink, hook: Hook, name: str) -> int | None:
    """The number of the program of that name on a hook."""
    own = (found for found in filters(netlink, hook) if found.is_ours and found.name == name)
    return next((found.program for found in own), None)


def attach(netlink: rtnetlink.Netlink, hook: Hook, name: str, program: int) -> None:
    """Run a program (its descriptor) on a hook, in place of an earlier one of ours."""
    index = hook.index()
    if any(other.priority == PRIORITY and not other.is_ours for other in filters(netlink, hook)):
        raise PlaneError(
            f"{hook.device} has another program's filter with the priority {PRIORITY}, which ours needs; "
            f"give that filter another priority"
        )
    body = _FORM.pack(0, index, _CLSACT_HANDLE, _CLSACT, 0) + rtnetlink.text(_KIND, "clsact")
    try:
        netlink.request(
            f"prepare {hook.device} for programs", _NEW_QDISC, rtnetlink.CREATE | rtnetlink.EXCLUSIVE, body
        )
    except rtnetlink.NetlinkError as error:
        if error.number != errno.EEXIST:
            raise
    options = rtnetlink.number(_DESCRIPTOR, program) + rtnetlink.text(_NAME, name)
    options += rtnetlink.number(_FLAGS, _DIRECT)
    body = _FORM.pack(0, index, _HANDLE, hook.parent, _INFO) + rtnetlink.text(_KIND, "bpf")
    body += rtnetlink.attribute(_OPTIONS, options)
    netlink.request(f"run {name} on {hook.device}", _NEW_FILTER, rtnetlink.CREATE | rtnetlink.REPLACE, body)


def detach(netlink: rtnetlink.Netlink, hook: Hook, also_rules: bool = False) -> int:
    """Remove our programs, and perhaps our flower rules, from a hook: how many there were.

    A device without other filters is left as it was before.
    """
    present = filters(netlink, hook)
    programs = [found for found in present if found.is_ours]
    rules = [
        found for found in present if also_rules and (found.kind, found.priority) == ("flower", PRIORITY)
    ]
    for program in programs:
        body = _FORM.pack(0, hook.index(), program.handle, hook.parent, _INFO) + rtnetlink.text(_KIND, "bpf")
        netlink.request(f"remove a program from {hook.device}", _DELETE_FILTER, 0, body)
    if rules:
        body = _FORM.pack(0, hook.index(), 0, hook.parent, _INFO)
        netlink.request(f"remove rules from {hook.device}", _DELETE_FILTER, 0, body)
    removed = len(programs) + len(rules)
    if removed and not any(filters(netlink, Hook(hook.device, parent)) for parent in (INGRESS, EGRESS)):
        body = _FORM.pack(0, hook.index(), _CLSACT_HANDLE, _CLSACT, 0)
        netlink.request(f"remove clsact from {hook.device}", _DELETE_QDISC, 0, body)
    return removed


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode(errors="replace")


_SETTINGS = struct.Struct("=Q6I")  # alive_until, sender, vni, loopback, tunnel_port, sending_port, unused
_FIRST = bytes(4)
_REDIRECTED = 7


class BpfPlane:
    """The plane of one tenant of a host, in the network namespace of the calling thread."""

    name = "bpf"

    def __init__(self, host: FabricHost, tenant: TenantNetwork) -> None:
        self._host = host
        self._tenant = tenant
        self._macs = {Hook(device.port, INGRESS): mac_bytes(device.mac) for device in tenant.devices}
        self._ports = tuple(self._macs)
        self._loaded: LoadedPrograms | None = None
        self._sender = 0
        self._name = f"{OURS}{_version()}"

    @property
    def devices(self) -> frozenset[str]:
        return frozenset(hook.device for hook in (*self._ports, *self._host_hooks()))

    def prepare(self) -> int:
        """Set up the sender, the programs of the host and of this tenant's ports, and the workers' MACs.

        Uplinks and ports that do not exist at the moment are skipped.
        """
        ports = [hook for hook in self._ports if hook.exists]
        if not ports:
            raise no_ports_error(self._tenant)
        with rtnetlink.Netlink() as netlink:
            self._sender, was_wrong = put_sender(netlink, self._host.worker_mtu)
            wrong = int(was_wrong) + self._prepare_host(netlink)
            send = self._own_programs(netlink)
            self._write_settings(send.maps["settings"])
            number = number_of(send.programs["send"])
            for hook in ports:
                wrong += pin(netlink, hook.index(), self._macs[hook])
                if attached(netlink, hook, self._name) != number:
                    attach(netlink, hook, self._name, send.programs["send"])
                    wrong += 1
        return wrong

    def entries(self) -> Table:
        """Entries of the map; none before it is made."""
        return self._loaded.maps["remotes"].entries() if self._loaded is not None else {}

    def apply(self, changes: Changes) -> None:
        """Set entries that are new or moved, then delete."""
        if self._loaded is None:
            raise PlaneError("the BPF plane must be prepared before it is changed")
        remotes = self._loaded.maps["remotes"]
        remotes.update(changes.put)
        remotes.delete(changes.forget)

    def trust(self, seconds: float) -> None:
        if self._loaded is not None:
            self._write_settings(self._loaded.maps["settings"], time.monotonic_ns() + int(seconds * 1e9))

    def remove(self) -> None:
        """Detach from the tenant's ports; with the host's last tenant, from the uplinks and the sender too.

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
        if self._loaded is not None:
            self._loaded.close()
            self._loaded = None

    def _host_hooks(self) -> dict[Hook, str]:
        hooks = {Hook(uplink.device, EGRESS): "leave" for uplink in self._host.uplinks}
        return {**hooks, Hook(SENDER, INGRESS): "refuse"}

    def _prepare_host(self, netlink: rtnetlink.Netlink) -> int:
        """Attach programs that all tenants share; how many were missing, or had old addresses or ports."""
        hooks, settings = self._host_hooks(), _settings(self._host)

        def is_current(hook: Hook) -> bool:
            number = attached(netlink, hook, self._name)
            if number is None:
                return False
            with LoadedPrograms.of({"": program_of_id(number)}) as running:
                written = running.maps.get("settings")
                return written is None or written.get(_FIRST) == settings

        missing = [hook for hook in hooks if hook.exists and not is_current(hook)]
        if missing:
            with LoadedPrograms.load(fast_path()) as shared:
                shared.maps["settings"].set(_FIRST, settings)
                for hook in missing:
                    attach(netlink, hook, self._name, shared.programs[hooks[hook]])
        return len(missing)

    def _own_programs(self, netlink: rtnetlink.Netlink) -> LoadedPrograms:
        """The tenant's program and maps: open already, else running on one of its ports, else loaded now."""
        if self._loaded is None:
            running = (attached(netlink, hook, self._name) for hook in self._ports)
            number = next((program for program in running if program is not None), None)
            if number is None:
                self._loaded = LoadedPrograms.load(fast_path())
            else:
                self._loaded = LoadedPrograms.of({"send": program_of_id(number)})
        return self._loaded

    def _write_settings(self, settings: BpfMap, alive_until: int | None = None) -> None:
        """Write the settings where they differ; without a time, trust ends if anything else differs."""
        before = settings.get(_FIRST) or bytes(_SETTINGS.size)
        if alive_until is None:
            alive_until = _SETTINGS.unpack(before)[0]
            if _settings(self._host, alive_until, self._sender, self._tenant.vni) != before:
                alive_until = 0
        after = _settings(self._host, alive_until, self._sender, self._tenant.vni)
        if after != before:
            settings.set(_FIRST, after)


def no_ports_error(tenant: TenantNetwork) -> PlaneError:
    names = ", ".join(device.port for device in tenant.devices)
    return PlaneError(
        f"none of the ports of tenant {tenant.name} exists ({names}); make them: trimtab fabric up"
    )


def bpf_unavailable() -> str | None:
    """Why this plane cannot be used here; None where it can. Tried on a frame that is not sent."""
    if sys.byteorder != "little":
        return "the BPF plane is compiled for little-endian machines; this one is big-endian"
    here, mac = bytes([127, 0, 0, 1]), bytes([2, 0, 0, 0, 0, 1])
    try:
        with LoadedPrograms.load(fast_path()) as loaded:
            loaded.maps["remotes"].set(mac, here)
            loaded.maps["settings"].set(_FIRST, _SETTINGS.pack(2**63, 1, 1, 0x7F000001, 0, 0, 0))
            verdict, _ = run_program(loaded.programs["send"], mac + bytes(58))
    except TrimtabError as error:
        return str(error)
    if verdict != _REDIRECTED:
        return "this kernel cannot set a tunnel's source address from BPF; Linux 6.0 and newer can"
    return None


def _settings(host: FabricHost, alive_until: int = 0, sender: int = 0, vni: int = 0) -> bytes:
    return _SETTINGS.pack(alive_until, sender, vni, int(host.loopback), TUNNEL_PORT, SENDING_PORT, 0)


@functools.cache
def _version() -> str:
    """Identifies the programs of this version."""
    return hashlib.sha256(fast_path()).hexdigest()[:8]


def fast_path() -> bytes:
    """The compiled programs, as an ELF object."""
    return resources.files(__package__).joinpath("fast_path.bpf.o").read_bytes()
