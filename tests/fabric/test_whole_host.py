"""A whole host put up and taken down: refused before anything is changed, and nothing is forgotten."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from host_network import Network, described, network, some_host

from trimtab.core import BadInputError
from trimtab.fabric import FabricHost, put_up, put_up_commands, take_down
from trimtab.fabric.frr.configuration import host_files
from trimtab.fabric.frr.daemons import Daemons
from trimtab.fabric.journal import folder
from trimtab.fabric.machine import inside
from trimtab.fabric.reconcile.bpf_plane import bpf_unavailable
from trimtab.fabric.reconcile.reconciler import plane_of
from trimtab.kernel import file_lock

if not Path("/usr/lib/frr/zebra").exists():
    pytest.skip("needs FRR: apt-get install frr", allow_module_level=True)


@pytest.fixture
def place() -> Iterator[Network]:
    with network() as made:
        yield made


def test_what_cannot_go_on_is_refused_before_anything_is_changed(place: Network) -> None:
    host = some_host(place.name)
    before = place.ip("addr")
    edited = folder(host.name) / "bgpd.conf"
    edited.parent.mkdir(parents=True)
    edited.write_text("hostname mine\n")
    try:
        with pytest.raises(BadInputError, match=r"bgpd\.conf"):
            inside(place.host, lambda: put_up(host))
    finally:
        edited.unlink()
    lock = folder(host.name) / "agent.lock"
    with file_lock(lock, ""), pytest.raises(BadInputError, match="an agent runs"):
        inside(place.host, lambda: put_up(host))
    lock.unlink()
    lock.parent.rmdir()
    assert place.ip("addr") == before


def test_an_uplink_that_is_given_up_keeps_no_program(place: Network) -> None:
    missing = bpf_unavailable()
    if missing:
        pytest.skip(f"needs BPF: {missing}")
    place.ip("link", "add", "p3", "type", "veth", "peer", "name", "s3")
    uplinks = described(place.name)["uplinks"]
    first = some_host(place.name)
    second = some_host(place.name, uplinks=[uplinks[0], {**uplinks[1], "device": "p3"}])
    inside(place.host, lambda: (put_up(first), _prepare(first)))
    assert "clsact" in place.tc("qdisc", "show", "dev", "p2")
    inside(place.host, lambda: (put_up(second), _prepare(second)))
    assert "clsact" not in place.tc("qdisc", "show", "dev", "p2")
    assert "clsact" in place.tc("qdisc", "show", "dev", "p3")
    inside(place.host, lambda: take_down(place.name))
    assert "clsact" not in place.tc("qdisc")
    assert "fvxout" not in place.ip("link")


def _prepare(host: FabricHost) -> None:
    plane = plane_of(host, host.tenants[0])
    plane.prepare()
    plane.close()


def test_a_dry_run_says_which_daemons_run_already(place: Network) -> None:
    host = some_host(place.name)
    lines = inside(place.host, lambda: list(put_up_commands(host)))
    assert lines[-1].startswith("/usr/lib/frr/bgpd -f /run/trimtab/fabric/")
    assert any("neighbor 172.16.1.3 remote-as 65101" in line for line in lines)
    daemons = Daemons(folder(host.name), host_files(host), place.host)
    daemons.start()
    try:
        again = inside(place.host, lambda: list(put_up_commands(host)))
    finally:
        daemons.stop()
    assert [line.startswith("# already so: /usr/lib/frr/") for line in again[-3:]] == [True] * 3
