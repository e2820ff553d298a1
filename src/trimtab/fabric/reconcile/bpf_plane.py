"""The data plane for kernels and cards without flower: a program with a map from MACs to hosts.

It is on every port where a worker's frames enter the tenant's bridge. A frame to a MAC of the map is
wrapped there and then, and sent by the routing table; everything else goes on to the bridge. Three things
follow:

- The tunnel of the tenant wraps all flows for one uplink, because it keeps the route of the first (the
  source port that tells flows apart is not part of what it remembers). A frame wrapped here is routed by
  itself, so flows spread over all uplinks instead of taking one.
- The bridge no longer sees the workers' frames, and would forget where they are: their MACs are pinned to
  the ports.
- Nobody is needed for it to go on, which is dangerous: unless `trust` is renewed it steps aside, and the
  bridge and what zebra last wrote into the tunnel take over.

The programs are compiled ahead (the object lies beside its source, a test compares them), so a host needs
neither clang nor bpftool. They are found again by what runs on the ports, so nothing is pinned on any file
system.
"""

import functools
import hashlib
import struct
import sys
import time
from importlib import resources

from trimtab.core import TrimtabError
from trimtab.fabric.reconcile.bpf_call import BpfMap, number_of, program_of_id, run_program
from trimtab.fabric.reconcile.bpf_object import OBJECT, LoadedPrograms
from trimtab.fabric.reconcile.changes import Changes, Table, mac_bytes
from trimtab.fabric.reconcile.forwarding import pin
from trimtab.fabric.reconcile.netlink import Netlink
from trimtab.fabric.reconcile.plane import PlaneError
from trimtab.fabric.reconcile.program_hooks import EGRESS, INGRESS, OURS, Hook, attach, attached, detach
from trimtab.fabric.reconcile.sender import SENDER, SENDING_PORT, TUNNEL_PORT, put_sender, remove_sender
from trimtab.fabric.topology import Host, Tenant

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
        with Netlink() as netlink:
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
        with Netlink() as netlink:
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

    def _prepare_host(self, netlink: Netlink) -> int:
        """What all tenants share; each sees to it."""
        hooks = self._host_hooks()
        lacking = [hook for hook in hooks if hook.is_there and not self._serves(netlink, hook)]
        if lacking:
            with LoadedPrograms.load() as shared:
                shared.maps["settings"].set(_FIRST, self._shared())
                for hook in lacking:
                    attach(netlink, hook, self._name, shared.programs[hooks[hook]])
        return len(lacking)

    def _serves(self, netlink: Netlink, hook: Hook) -> bool:
        """Whether a program of ours is there, with the addresses and ports of now if it has any."""
        number = attached(netlink, hook, self._name)
        if number is None:
            return False
        with LoadedPrograms.of({"": program_of_id(number)}) as running:
            settings = running.maps.get("settings")
            return settings is None or settings.get(_FIRST) == self._shared()

    def _own(self, netlink: Netlink) -> LoadedPrograms:
        """The tenant's own program and maps: kept, else those that run on one of its ports, else new ones."""
        if self._loaded is None:
            running = [attached(netlink, hook, self._name) for hook in self._ports]
            number = next((each for each in running if each is not None), None)
            if number is None:
                self._loaded = LoadedPrograms.load()
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
        with LoadedPrograms.load() as loaded:
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
    return hashlib.sha256(resources.files(__package__).joinpath(OBJECT).read_bytes()).hexdigest()[:8]
