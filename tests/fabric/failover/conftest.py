"""A host with two uplinks, and what is at their other ends, in two network namespaces."""

import json
import os
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from waiting import until

from trimtab.fabric import FabricHost, host_of
from trimtab.fabric.failover.keeper import Failover, PathKeeper, UplinkNow
from trimtab.kernel import Owner

OTHER = "10.255.0.2"


@dataclass
class Wires:
    """`near` is the host's namespace, `far` the other one; devices are p1 and p2 here, q1 and q2 there."""

    near: str
    far: str
    host: FabricHost
    folder: Path
    failovers: list[Failover] = field(default_factory=list)

    def ip(self, words: str, far: bool = False) -> str:
        """Run `ip` in a namespace."""
        command = ["ip", "-n", self.far if far else self.near, *words.split()]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def write_route(self, *numbers: int, to: str = OTHER, protocol: str = "bgp") -> None:
        """As zebra would write a route over these uplinks."""
        hops = "".join(f" nexthop via 172.16.{number}.3 dev p{number}" for number in numbers)
        self.ip(f"route replace {to}/32 proto {protocol} metric 20{hops}")

    def devices(self, to: str = OTHER) -> set[str]:
        """Devices of a route in the kernel."""
        told = json.loads(self.ip(f"-j route show {to}/32"))
        return {hop["dev"] for route in told for hop in route.get("nexthops", [route])}

    def wait_for(self, *devices: str, to: str = OTHER) -> None:
        """Until a route has these devices."""
        until(lambda: self.devices(to) == set(devices))

    @contextmanager
    def keeping(
        self, host: FabricHost | None = None, before: Iterable[UplinkNow] = ()
    ) -> Iterator[PathKeeper]:
        """A keeper of the host, at work; no bfdd runs."""
        bfd = self.folder / "bfdd.sock"
        kept = PathKeeper(host or self.host, bfd, self.near, self.failovers.append, before=before)
        thread = threading.Thread(target=kept.run)
        thread.start()
        try:
            assert kept.ready.wait(5)
            yield kept
        finally:
            kept.stop()
            thread.join()


@pytest.fixture(scope="module")
def bare_wires(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wires]:
    """The namespaces, made once."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make network namespaces")
    near, far = (Owner.current().name(label) for label in ("near", "far"))
    host = host_of(
        "the test",
        {
            "host": "near",
            "loopback": "10.255.0.1",
            "asn": 65001,
            "hold": 0.3,
            "settle": 0.2,
            "uplinks": [
                {
                    "device": f"p{number}",
                    "address": f"172.16.{number}.2/31",
                    "peer": f"172.16.{number}.3",
                    "peer_asn": 65100 + number,
                }
                for number in (1, 2)
            ],
        },
    )
    wires = Wires(near, far, host, tmp_path_factory.mktemp("frr"))
    try:
        for namespace in (near, far):
            subprocess.run(["ip", "netns", "add", namespace], check=True)
        wires.ip("link set lo up")
        wires.ip("link set lo up", far=True)
        wires.ip("addr add 10.255.0.1/32 dev lo")
        wires.ip(f"addr add {OTHER}/32 dev lo", far=True)
        for number in (1, 2):
            wires.ip(f"link add p{number} type veth peer name q{number} netns {far}")
            wires.ip(f"addr add 172.16.{number}.2/31 dev p{number}")
            wires.ip(f"addr add 172.16.{number}.3/31 dev q{number}", far=True)
            wires.ip(f"link set q{number} up", far=True)
            wires.ip(f"link set p{number} up")
        yield wires
    finally:
        for namespace in (near, far):
            subprocess.run(["ip", "netns", "del", namespace], check=False)


@pytest.fixture
def wires(bare_wires: Wires) -> Iterator[Wires]:
    """All is well, and there is one route over both uplinks."""
    for number in (1, 2):
        bare_wires.ip(f"link set q{number} up", far=True)
        bare_wires.ip(f"link set p{number} up")
    bare_wires.ip("route flush proto bgp")
    bare_wires.failovers.clear()
    until(lambda: "NO-CARRIER" not in bare_wires.ip("link show up"))
    bare_wires.write_route(1, 2)
    return bare_wires


@pytest.fixture
def keeper(wires: Wires) -> Iterator[PathKeeper]:
    """Of the host, at work; no bfdd runs."""
    with wires.keeping() as kept:
        yield kept
