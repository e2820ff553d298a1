"""A host's file: what is right is read as written, and everything else gets one sentence."""

from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Any

import pytest
import yaml
from host_network import described
from hypothesis import given, strategies as st

from trimtab.core import BadInputError
from trimtab.fabric import Echo, Timers, VirtualFunction, host_of, read_host

UPLINKS = described("node-1")["uplinks"]


def blue(*devices: dict[str, Any], vni: object = 100) -> dict[str, Any]:
    return {"blue": {"vni": vni, "devices": list(devices)}}


def test_a_file_is_read_as_it_is_written(tmp_path: Path) -> None:
    description = described(
        "node-1",
        mtu=4000,
        bfd={"interval": "20ms"},
        echo={"interval": "10ms"},
        hold="3s",
        management="eth0",
        tenants=blue(
            {"name": "w0", "address": "10.100.0.1/24", "mac": "02:AA:00:00:00:01", "namespace": "jobs"},
            {
                "name": "w1",
                "address": "10.101.0.1/24",
                "vf": {"device": "pf0", "index": 3, "representor": "pf0vf3"},
            },
        ),
    )
    path = tmp_path / "host.yaml"
    path.write_text(yaml.safe_dump(description))
    host = read_host(path)
    assert (host.name, host.loopback, host.asn) == ("node-1", IPv4Address("10.255.0.1"), 65001)
    assert [(uplink.device, uplink.address, uplink.peer_asn) for uplink in host.uplinks] == [
        ("p1", IPv4Interface("172.16.1.2/31"), 65101),
        ("p2", IPv4Interface("172.16.2.2/31"), 65102),
    ]
    assert host.timers == Timers(interval=0.02, multiplier=3, hold=3.0, echo=Echo(0.01, 6))
    assert (host.mtu, host.worker_mtu, host.management) == (4000, 3950, ("eth0",))
    assert host.rto_min == 0.02
    first, second = host.tenants[0].devices
    assert (first.mac, first.namespace, first.port) == ("02:aa:00:00:00:01", "jobs", "w0-br")
    assert second.mac == "02:00:0a:65:00:01"
    assert second.function == VirtualFunction("pf0", 3, "pf0vf3")
    assert second.port == "pf0vf3"


@pytest.mark.parametrize(
    ("line", "echo"),
    [
        ("", Echo(0.005, 6)),
        ("echo: on", Echo()),
        ("echo: off", None),
        ("echo: {multiplier: 9}", Echo(0.005, 9)),
    ],
)
def test_echoes_are_on_unless_they_are_off(tmp_path: Path, line: str, echo: Echo | None) -> None:
    path = tmp_path / "host.yaml"
    path.write_text(f"{yaml.safe_dump(described('node-1'))}{line}\n")
    assert read_host(path).timers.echo == echo


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"uplinks": UPLINKS[:1]}, "one uplink"),
        ({"uplinks": []}, "uplinks"),
        ({"uplinks": [UPLINKS[0], UPLINKS[0]]}, "device p1 "),
        ({"uplinks": [UPLINKS[0], {**UPLINKS[1], "peer": "172.16.1.3"}]}, "172.16.2.2/31"),
        ({"uplinks": [UPLINKS[0], {**UPLINKS[1], "peer": "172.16.2.2"}]}, "172.16.2.2/31"),
        (
            {"uplinks": [UPLINKS[0], {**UPLINKS[1], "address": "172.16.2.2"}]},
            "172.16.2.2",
        ),
        ({"uplinks": [UPLINKS[0], {**UPLINKS[1], "peer_asn": 65001}]}, "65001"),
        (
            {"uplinks": [UPLINKS[0], {**UPLINKS[1], "device": "a-name-of-16-chr"}]},
            "uplinks[1].device is 'a-name-of-16-chr'",
        ),
        ({"uplinks": [UPLINKS[0], {"device": "p2"}]}, "uplinks[1].address is missing"),
        ({"management": ["p2"]}, "p2 is the management interface"),
        ({"management": 7}, "management is 7"),
        ({"loopback": "172.16.1.2"}, "address 172.16.1.2 "),
        ({"loopback": "10.100.0.9"}, "10.100.0.0/24 of tenant blue overlaps 10.100.0.9/32"),
        ({"loopback": "host"}, "loopback is 'host'"),
        ({"loopback": "127.0.0.1"}, "loopback is '127.0.0.1'"),
        ({"asn": 0}, "asn is 0"),
        ({"asn": True}, "asn is True"),
        ({"mtu": 1300}, "mtu is 1300"),
        ({"bfd": {"interval": "1ms"}}, "bfd.interval is '1ms'"),
        ({"echo": {"interval": "1ms"}}, "echo.interval is '1ms'"),
        ({"echo": {"multiplier": 2}}, "echo.multiplier is 2"),
        ({"echo": {"interval": "5ms", "times": 6}}, "times"),
        ({"echo": "never"}, "echo is 'never'"),
        ({"bfd": {"interval": "soon"}}, "soon"),
        ({"bfd": {"multiplier": 1}}, "bfd.multiplier is 1"),
        ({"bfd": 3}, "bfd is 3"),
        ({"hold": -1}, "hold is -1"),
        ({"settle": "0s"}, "settle is '0s'"),
        ({"rto_min": True}, "rto_min is True"),
        ({"rto_min": "0.2ms"}, "rto_min is '0.2ms'"),
        ({"host": "../etc"}, "host is '../etc'"),
        ({"hosts": "node-1"}, "hosts"),
        ({"tenants": ["blue"]}, "tenants"),
        ({"tenants": {"blue": {"vni": 100}}}, "tenants.blue.devices is missing"),
        (
            {"tenants": blue({"name": "w0", "address": "10.100.0.1/24"}, vni=2**24)},
            "tenants.blue.vni is 16777216",
        ),
        (
            {"tenants": blue({"name": "w0", "address": "10.100.0.0/24"})},
            "tenants.blue.devices[0].address is '10.100.0.0/24'",
        ),
        ({"tenants": blue({"name": "w0", "address": "10.100.0.255/24"})}, "10.100.0.255/24"),
        ({"tenants": blue({"name": "p1", "address": "10.100.0.1/24"})}, "device p1 "),
        (
            {"tenants": blue({"name": "w0", "address": "10.100.0.1/24", "mac": "01:00:5e:00:00:01"})},
            "01:00:5e:00:00:01",
        ),
        (
            {"tenants": blue({"name": "w0", "address": "10.100.0.1/24", "vf": {"device": "pf0"}})},
            "vf.index is missing",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInputError) as raised:
        host_of("host.yaml", described("node-1", **changes))
    assert named in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: None, "there is no file"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: path.write_text("host: [node"), "cannot be read"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "cannot be read"),
        (lambda path: path.write_text(""), "loopback, asn, uplinks"),
    ],
)
def test_what_is_no_such_file_is_said_in_a_sentence(
    make: Callable[[Path], None], sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "host.yaml"
    make(path)
    with pytest.raises(BadInputError, match=sentence):
        read_host(path)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = ("host", "loopback", "asn", "uplinks", "tenants", "mtu", "bfd", "hold", "management", "settle")


@given(st.sampled_from(NAMES), JUNK)
def test_nothing_but_a_host_or_a_sentence_comes_of_junk(name: str, junk: Any) -> None:
    message = ""
    try:
        host_of("host.yaml", described("node-1", **{name: junk}))
    except BadInputError as error:
        message = str(error)
    assert "\n" not in message


@given(st.lists(st.integers(1, 2**24 - 1), min_size=1, max_size=8, unique=True))
def test_tenants_share_no_device_and_no_mac(numbers: list[int]) -> None:
    tenants = {
        f"t{vni}": {"vni": vni, "devices": [{"name": f"w{place}", "address": f"10.{place}.0.1/24"}]}
        for place, vni in enumerate(numbers)
    }
    host = host_of("host.yaml", described("node-1", tenants=tenants, loopback="192.168.0.1"))
    made = [name for tenant in host.tenants for name in (tenant.bridge, tenant.tunnel)]
    made += [
        name for tenant in host.tenants for device in tenant.devices for name in (device.name, device.port)
    ]
    assert len(set(made)) == len(made)
    assert all(len(name) <= 15 for name in made)
    macs = [device.mac for tenant in host.tenants for device in tenant.devices]
    assert len(set(macs)) == len(macs)
