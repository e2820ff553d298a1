"""A host as its fabric sees it: who it is, its uplinks, its tenants and the devices workers bind to."""

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
    """A part of a network card that is a device of its own: of which port, and which one."""

    device: str
    index: int
    representor: str


@dataclass(frozen=True, slots=True)
class WorkerDevice:
    """What a worker binds to. Without a virtual function it is one end of a veth pair.

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
class Tenant:
    """A network of its own: devices of one number see each other, on whatever host, and nobody else."""

    name: str
    vni: int
    devices: tuple[WorkerDevice, ...]

    @property
    def bridge(self) -> str:
        """The device that joins its workers and its tunnel."""
        return f"fbr{self.vni}"

    @property
    def tunnel(self) -> str:
        """The device that wraps and unwraps its packets."""
        return f"fvx{self.vni}"


@dataclass(frozen=True, slots=True)
class Echo:
    """Probes that a switch sends straight back: one every `interval` seconds; `multiplier` lost say dead."""

    interval: float = 0.005
    multiplier: int = 6


@dataclass(frozen=True, slots=True)
class Timers:
    """Seconds. For BFD a path is dead after `multiplier` intervals of silence; `hold` later it is used again.

    `settle` is how often everything is compared with what it should be, although nothing was heard. Without
    `echo`, BFD alone notices a silent failure.
    """

    interval: float = 0.050
    multiplier: int = 3
    hold: float = 2.0
    settle: float = 1.0
    echo: Echo | None = Echo()


@dataclass(frozen=True, slots=True)
class Host:
    """All that a host's file says."""

    name: str
    loopback: IPv4Address
    asn: int
    uplinks: tuple[Uplink, ...]
    tenants: tuple[Tenant, ...] = ()
    mtu: int = 9000  # of uplinks
    timers: Timers = field(default_factory=Timers)
    management: tuple[str, ...] = ()  # never touched, whatever the rest says
    rto_min: float = 0.020  # s, of workers' TCP connections; 0 leaves it to the kernel

    @property
    def worker_mtu(self) -> int:
        """Of what workers bind to."""
        return self.mtu - TUNNEL_OVERHEAD

    def uplink(self, device: str) -> Uplink | None:
        """The uplink on that device."""
        return next((uplink for uplink in self.uplinks if uplink.device == device), None)
