"""FRR itself reads every line that is written for it, and what matters is in there."""

import os
import subprocess
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from trimtab.core import MissingDependencyError
from trimtab.fabric import FabricHost, Timers, Uplink
from trimtab.fabric.frr.configuration import Port, Switch, host_files, switch_files
from trimtab.fabric.frr.daemons import Programs, find_programs

HOST = FabricHost(
    "node-1",
    IPv4Address("10.255.0.1"),
    65001,
    (
        Uplink("p1", IPv4Interface("172.16.1.2/31"), IPv4Address("172.16.1.3"), 65101),
        Uplink("p2", IPv4Interface("172.16.2.2/31"), IPv4Address("172.16.2.3"), 4200000000),
    ),
    timers=Timers(interval=0.05, multiplier=4),
)
SWITCH = Switch(
    "tor-1", IPv4Address("10.254.0.1"), 65101, (Port("h1", IPv4Address("172.16.1.2"), 65001),), Timers()
)
FILES = {"host": host_files(HOST), "switch": switch_files(SWITCH)}


@pytest.fixture(scope="module")
def programs() -> Programs:
    try:
        found = find_programs()
    except MissingDependencyError as error:
        pytest.skip(f"needs FRR: {error}")
    if os.geteuid() != 0:
        pytest.skip("needs root: FRR's daemons become another user")
    return found


@pytest.mark.parametrize("daemon", ["zebra", "bfdd", "bgpd"])
@pytest.mark.parametrize("whose", FILES)
def test_frr_understands_it(programs: Programs, whose: str, daemon: str) -> None:
    def refused(text: str) -> int:
        with TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)  # FRR reads it as a user of its own
            path = Path(folder) / "checked.conf"
            path.write_text(text)
            words = ["unshare", "--net", programs.folder / daemon, "-C", "-f", path]
            told = subprocess.run(words, capture_output=True, text=True, check=True, timeout=20)
            return (told.stdout + told.stderr).count("config line")

    assert refused(FILES[whose][daemon]) == 0
    assert refused(FILES[whose][daemon] + "no such words\n") == 1


def test_every_uplink_has_a_session_with_the_hosts_timers() -> None:
    bfdd, bgpd = FILES["host"]["bfdd"], FILES["host"]["bgpd"]
    for uplink in HOST.uplinks:
        session = bfdd[bfdd.index(f"peer {uplink.peer} interface {uplink.device}\n") :].split("exit")[0]
        assert "receive-interval 50\n" in session
        assert "transmit-interval 50\n" in session
        assert "detect-multiplier 4\n" in session
        assert f"neighbor {uplink.peer} remote-as {uplink.peer_asn}\n" in bgpd
        assert f"neighbor {uplink.peer} bfd\n" in bgpd
    assert "debug bfd peer\n" in bfdd


def test_only_hosts_have_tenants() -> None:
    assert "advertise-all-vni" in FILES["host"]["bgpd"]
    assert "advertise-all-vni" not in FILES["switch"]["bgpd"]
