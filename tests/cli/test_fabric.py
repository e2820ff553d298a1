"""`trimtab fabric up` and `down`, by root, in a network namespace of our own."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from host_network import Network, described, network

from trimtab.fabric.frr.daemons import Daemons
from trimtab.fabric.machine import inside

Trimtab = Callable[..., Any]
STATE = Path("/run/trimtab/fabric")


@pytest.fixture
def place() -> Iterator[Network]:
    with network() as made:
        yield made


def test_up_and_down(trimtab: Trimtab, place: Network, tmp_path: Path) -> None:
    if not Path("/usr/lib/frr/zebra").exists():
        pytest.skip("needs FRR: apt-get install frr")
    path = tmp_path / "host.yaml"
    path.write_text(yaml.safe_dump(described(place.name)))

    def fabric(*arguments: str) -> Any:
        return inside(place.host, lambda: trimtab("fabric", *arguments))

    shown = fabric("up", str(path), "--dry-run")
    assert shown.status == 0, shown.error
    assert "ip link add fbr100 type bridge\n" in shown.out
    assert "router bgp 65001\n" in shown.out
    assert "fbr100" not in place.ip("link")
    done = fabric("up", str(path), "--seconds", "1")
    assert done.status == 0, done.error
    assert "workers bind to w0 (10.100.0.1)" in done.out
    assert "10.100.0.1/24" in place.ip("addr", "show", "w0")
    assert "nothing to change" in fabric("up", str(path), "--seconds", "0.1").out
    shown = fabric("status", place.name)
    assert f"{place.name}: no agent runs since" in shown.out, shown.error
    assert "172.16.1.3" in shown.out
    told = json.loads(fabric("status", place.name, "--json").out)
    assert {each["device"]: each["state"] for each in told["uplinks"]} == {"p1": "dead", "p2": "dead"}
    assert set(told["sessions"]["bfd"]) == {"172.16.1.3", "172.16.2.3"}
    assert "trimtab_fabric_uplink_up" in fabric("status", place.name, "--prometheus").out
    again = fabric("up", str(path), "--dry-run").out
    assert again
    assert all(line.startswith("# already so: ") for line in again.splitlines())
    assert "ip link del fbr100\n" in fabric("down", place.name, "--dry-run").out
    ended = fabric("down", str(path))
    assert f"{place.name} is down" in ended.out, ended.error
    devices = [line.split()[0] for line in place.ip("-brief", "link").splitlines()]
    assert {device.split("@")[0] for device in devices} == {"lo", "p1", "p2"}
    assert "clsact" not in place.tc("qdisc")
    assert not (STATE / place.name).exists()
    refused = fabric("down", place.name)
    assert refused.status == 2
    assert place.name in refused.error


def test_what_is_refused_is_one_sentence(trimtab: Trimtab, tmp_path: Path) -> None:
    path = tmp_path / "host.yaml"
    for arguments, named in (
        (("up", str(path)), str(path)),
        (("down", str(path)), str(path)),
        (("down", "../../etc"), "../../etc"),
        (("down", "nobody-s"), "nobody-s"),
        (("status", "nobody-s"), "nobody-s"),
    ):
        called = trimtab("fabric", *arguments)
        assert called.status == 2
        assert named in called.error
        assert called.error.count("\n") == 1
    told = described("node-1")
    told["uplinks"][0]["device"] = "no-such-port"
    path.write_text(yaml.safe_dump(told))
    called = trimtab("fabric", "up", str(path), "--dry-run")
    assert called.status == 2
    assert "no-such-port" in called.error


def test_another_frr_in_the_same_network_is_not_joined(
    trimtab: Trimtab, place: Network, tmp_path: Path
) -> None:
    if not Path("/usr/lib/frr/zebra").exists():
        pytest.skip("needs FRR: apt-get install frr")
    path = tmp_path / "host.yaml"
    path.write_text(yaml.safe_dump(described(place.name)))
    other = Daemons(STATE / f"{place.name}-other", {"zebra": "hostname other\n"}, place.host)
    other.start()
    try:
        called = inside(place.host, lambda: trimtab("fabric", "up", str(path)))
    finally:
        other.stop()
    assert called.status == 2
    assert "FRR" in called.error
    assert "fbr100" not in place.ip("link")


def test_help_shows_a_file(trimtab: Trimtab) -> None:
    called = trimtab("fabric", "up", "--help")
    for words in ("uplinks:", "vni: 100", "GLOO_SOCKET_IFNAME=w0", "--dry-run"):
        assert words in called.out
