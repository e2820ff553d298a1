"""A machine's network of our own: a namespace with two ports to another one, and perhaps some for workers."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from trimtab.fabric import FabricHost, host_of
from trimtab.kernel import Owner


@dataclass(frozen=True)
class Network:
    """Names of network namespaces: where a host is, where its switches are, and for its workers."""

    host: str
    switch: str
    workers: tuple[str, ...]

    @property
    def name(self) -> str:
        """A name that no other fabric has."""
        return self.host

    def ip(self, *words: str) -> str:
        """Output of a command in the host's namespace."""
        return ip("-n", self.host, *words)

    def tc(self, *words: str) -> str:
        """Output of a command in that namespace."""
        return _run("tc", "-n", self.host, *words)


@contextmanager
def namespace(label: str) -> Iterator[str]:
    """An empty network namespace of our own; its name."""
    if os.geteuid() != 0:
        pytest.skip("needs root to make network namespaces")
    name = Owner.current().name(label)
    ip("netns", "add", name)
    try:
        yield name
    finally:
        ip("netns", "del", name)


@contextmanager
def network(*workers: str) -> Iterator[Network]:
    """A host with the ports p1 and p2, down, to a switch's s1 and s2, up; a namespace for each worker."""
    with ExitStack() as stack:
        host, switch, *others = (
            stack.enter_context(namespace(label)) for label in ("host", "switch", *workers)
        )
        for n in (1, 2):
            pair = ("type", "veth", "peer", "name", f"s{n}", "netns", switch)
            ip("-n", host, "link", "add", f"p{n}", *pair)
            ip("-n", switch, "link", "set", f"s{n}", "up")
        yield Network(host, switch, tuple(others))


def ip(*words: str) -> str:
    """Output of a command."""
    return _run("ip", *words)


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def described(name: str, **changes: Any) -> dict[str, Any]:
    """A host of two uplinks and a tenant with one device, as a file says it, but for what the test says."""
    uplinks = [
        {"device": f"p{n}", "address": f"172.16.{n}.2/31", "peer": f"172.16.{n}.3", "peer_asn": 65100 + n}
        for n in (1, 2)
    ]
    tenants = {"blue": {"vni": 100, "devices": [{"name": "w0", "address": "10.100.0.1/24"}]}}
    told = {"host": name, "loopback": "10.255.0.1", "asn": 65001, "uplinks": uplinks, "tenants": tenants}
    return {**told, **changes}


def some_host(name: str, **changes: Any) -> FabricHost:
    """The host so described."""
    return host_of("host.yaml", described(name, **changes))
