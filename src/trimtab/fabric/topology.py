"""A host of the fabric: its uplinks, its tenants' networks and the devices that workers bind to."""

from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface

TUNNEL_OVERHEAD = 50
"""Bytes that VXLAN over IPv4 adds to a packet."""


@dataclass(frozen=True, slots=True)
class Uplink:
    """A port to a switch: its own address there, and the switch's address and autonomous system."""

    device: str
    address: IPv4Interface
    peer: IPv4Address
    peer_asn: int


@dataclass(frozen=True, slots=True)
class VirtualFunction:
    """An SR-IOV virtual function: its card's port, its index there, and its representor."""

    device: str
    index: int
    representor: str


@dataclass(frozen=True, slots=True)
class WorkerDevice:
    """A device that a worker binds to: a virtual function, or one end of a veth pair.

    A `namespace` is a network namespace by name, for workers in containers; "" is the host's own.
    """

    name: str
    address: IPv4Interface
    mac: str
    namespace: str = ""
    function: VirtualFunction | None = None

    @property
    def port(self) -> str:
        """The end that sits in the bridge."""
        return self.function.representor if self.function else f"{self.name[:12]}-br"


@dataclass(frozen=True, slots=True)
class TenantNetwork:
    """An isolated network: devices with one VNI reach each other on all hosts, and nothing else."""

    name: str
    vni: int
    devices: tuple[WorkerDevice, ...]

    @property
    def bridge(self) -> str:
        return f"fbr{self.vni}"

    @property
    def tunnel(self) -> str:
        return f"fvx{self.vni}"


@dataclass(frozen=True, slots=True)
class Echo:
    """Probes that a switch sends straight back: one per `interval` (s); `multiplier` lost mean dead."""

    interval: float = 0.005
    multiplier: int = 6


@dataclass(frozen=True, slots=True)
class Timers:
    """Seconds. For BFD a path is dead after `multiplier` silent intervals; `hold` later it is used again.

    All state is compared and repaired every `settle` seconds. Without `echo`, BFD alone notices a silent
    failure.
    """

    interval: float = 0.050
    multiplier: int = 3
    hold: float = 2.0
    settle: float = 1.0
    echo: Echo | None = Echo()


@dataclass(frozen=True, slots=True)
class FabricHost:
    """A host as its file describes it."""

    name: str
    loopback: IPv4Address
    asn: int
    uplinks: tuple[Uplink, ...]
    tenants: tuple[TenantNetwork, ...] = ()
    mtu: int = 9000  # of uplinks
    timers: Timers = field(default_factory=Timers)
    management: tuple[str, ...] = ()  # devices that are never changed
    rto_min: float = 0.020  # s, of workers' TCP connections; 0 leaves it to the kernel

    @property
    def worker_mtu(self) -> int:
        return self.mtu - TUNNEL_OVERHEAD
