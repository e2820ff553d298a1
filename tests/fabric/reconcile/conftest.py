"""Hosts to break: one alone, or two with two cables between them."""

import contextlib
from collections.abc import Iterator

import pytest
from lone_host import LoneHost

from trimtab.kernel import NetworkNamespace, NoNamespaceError


@contextlib.contextmanager
def lone_host(number: int) -> Iterator[LoneHost]:
    try:
        namespace = NetworkNamespace()
    except NoNamespaceError as error:
        pytest.skip(str(error))
    with namespace:
        host = LoneHost(namespace, number)
        # Nobody talks who was not asked to.
        host.run("sysctl -eqw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")
        try:
            yield host
        finally:
            host.close()


@pytest.fixture
def host() -> Iterator[LoneHost]:
    """One host, with uplinks that lead nowhere."""
    with lone_host(1) as made:
        for uplink in made.host.uplinks:
            made.run(
                f"ip link add {uplink.device} mtu {made.host.mtu} up type veth peer name {uplink.device}x"
            )
        made.put_up()
        yield made


@pytest.fixture
def hosts() -> Iterator[tuple[LoneHost, LoneHost]]:
    """Two hosts that see each other over two cables, with equal-cost routes to each other's loopback."""
    with lone_host(1) as one, lone_host(2) as two:
        for each in (1, 2):
            one.run(f"ip link add p{each} mtu 1550 type veth peer name p{each} mtu 1550 netns {two.path}")
        for here, there in ((one, 2), (two, 1)):
            here.run("sysctl -qw net.ipv4.fib_multipath_hash_policy=1")
            for uplink in here.host.uplinks:
                here.run(f"ip addr add {uplink.address} dev {uplink.device}")
                here.run(f"ip link set {uplink.device} up")
            here.put_up()
            hops = " ".join(f"nexthop via 172.16.{each}.{there} dev p{each}" for each in (1, 2))
            here.run(f"ip route add 10.255.0.{there}/32 src {here.host.loopback} {hops}")
        for here, there in ((one, two), (two, one)):
            worker = there.tenant.devices[0]
            here.learn({worker.mac: str(there.host.loopback)})
            here.run(
                f"bridge fdb append 00:00:00:00:00:00 dev {here.tenant.tunnel} dst {there.host.loopback} self"
            )
        yield one, two
