"""Hosts of the fabric in network namespaces without names: they go with the test, whatever becomes of it."""

import os
import shlex
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Interface
from typing import TypeVar

from trimtab.fabric import FabricHost, TenantNetwork, Timers, Uplink, WorkerDevice
from trimtab.kernel import NetworkNamespace

Answer = TypeVar("Answer")
VNI = 100


class LoneHost:
    """A host of the fabric in a namespace of its own, as `trimtab fabric up` would leave it, without FRR."""

    def __init__(self, namespace: NetworkNamespace, number: int) -> None:
        self._namespace = namespace
        self._thread = ThreadPoolExecutor(1, initializer=namespace.enter)
        self.path = self.call(lambda: f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net")
        uplinks = tuple(
            Uplink(
                f"p{each}",
                IPv4Interface(f"172.16.{each}.{number}/24"),
                IPv4Address(f"172.16.{each}.254"),
                65100 + each,
            )
            for each in (1, 2)
        )
        worker = WorkerDevice("w0", IPv4Interface(f"10.100.0.{number}/24"), f"02:00:0a:64:00:{number:02x}")
        self.tenant = TenantNetwork("blue", VNI, (worker,))
        loopback = IPv4Address(f"10.255.0.{number}")
        self.host = FabricHost(
            f"h{number}", loopback, 65000 + number, uplinks, (self.tenant,), 1550, Timers()
        )

    def close(self) -> None:
        """With its namespace's handle closed too, nothing is left of it."""
        self._thread.shutdown()

    def enter(self) -> None:
        """Move the calling thread there."""
        self._namespace.enter()

    def call(self, work: Callable[[], Answer]) -> Answer:
        """Result of a function called in the host's namespace."""
        return self._thread.submit(work).result(timeout=60)

    def run(self, command: str, given: str = "") -> str:
        """Output of a command in the namespace."""
        return subprocess.run(
            shlex.split(command),
            input=given,
            text=True,
            capture_output=True,
            check=True,
            timeout=60,
            preexec_fn=self._namespace.enter,
        ).stdout

    def devices(self) -> list[str]:
        """The names of its devices."""
        return [line.split()[0] for line in self.run("ip -brief link show").splitlines()]

    def put_up(self) -> None:
        """The tenant's devices."""
        worker, mtu = self.tenant.devices[0], self.host.worker_mtu
        options = f"id {VNI} local {self.host.loopback} dstport 4789 nolearning"
        made = f"""
            addr add {self.host.loopback}/32 dev lo
            link add {self.tenant.bridge} type bridge
            link add {self.tenant.tunnel} mtu {mtu} type vxlan {options}
            link set {self.tenant.tunnel} master {self.tenant.bridge} up
            link add {worker.name} mtu {mtu} address {worker.mac} type veth peer name {worker.port} mtu {mtu}
            link set {worker.port} master {self.tenant.bridge} up
            link set {self.tenant.bridge} arp off up
            addr add {worker.address} dev {worker.name}
            link set {worker.name} up
        """
        self.run("ip -batch -", made)

    def learn(self, entries: dict[str, str]) -> None:
        """Add forwarding entries as zebra does for MACs at other hosts."""
        tunnel = self.tenant.tunnel
        lines = [
            f"fdb replace {mac} dev {tunnel} dst {host} self extern_learn" for mac, host in entries.items()
        ]
        lines += [f"fdb replace {mac} dev {tunnel} master extern_learn" for mac in entries]
        self.run("bridge -batch -", "\n".join(lines))

    def forget(self, entries: dict[str, str]) -> None:
        """Remove forwarding entries as zebra does."""
        tunnel = self.tenant.tunnel
        lines = [f"fdb del {mac} dev {tunnel} dst {host} self" for mac, host in entries.items()]
        self.run("bridge -batch -", "\n".join(lines))
