"""Real FRR in a namespace of its own: started, found again, restarted, stopped, and refused when edited."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path

import pytest
from waiting import until

from trimtab.core import BadInputError, MissingDependencyError, NotFoundError, TrimtabError
from trimtab.fabric import FabricHost, Uplink
from trimtab.fabric.frr import daemons as programs
from trimtab.fabric.frr.configuration import host_files
from trimtab.fabric.frr.daemons import DAEMONS, Daemons, find_programs
from trimtab.kernel import Owner

HOST = FabricHost(
    "node-1",
    IPv4Address("10.255.0.1"),
    65001,
    (
        Uplink("p1", IPv4Interface("172.16.1.2/31"), IPv4Address("172.16.1.3"), 65101),
        Uplink("p2", IPv4Interface("172.16.2.2/31"), IPv4Address("172.16.2.3"), 65102),
    ),
)
ANOTHER_PROCESS = """
import logging, sys
from pathlib import Path
from trimtab.fabric.frr.daemons import Daemons
logging.basicConfig(format="%(message)s")
files = {name: Path(sys.argv[3], name).read_text() for name in ("zebra", "bfdd", "bgpd")}
daemons = Daemons(Path(sys.argv[1]), files, sys.argv[2])
daemons.start()
daemons.restart("bfdd")
print("started", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def namespace() -> Iterator[str]:
    try:
        find_programs()
    except MissingDependencyError as error:
        pytest.skip(f"needs FRR: {error}")
    if os.geteuid() != 0:
        pytest.skip("needs root: daemons run in a network namespace of their own")
    name = Owner.current().name("frrtest")
    subprocess.run(["ip", "netns", "add", name], check=True)
    subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
    yield name
    subprocess.run(f"ip netns pids {name} | xargs -r kill -9; ip netns del {name}", shell=True, check=False)


@pytest.fixture
def make(namespace: str) -> Iterator[Callable[..., Daemons]]:
    """Daemons of one folder, which cannot be pytest's: FRR's user may not go there."""
    folder = Path("/run/trimtab/fabric") / namespace
    yield lambda host=HOST: Daemons(folder, host_files(host), namespace)
    Daemons(folder, {}).stop()
    subprocess.run(["rm", "-rf", folder], check=True)


def pids(daemons: Daemons) -> dict[str, int]:
    return {name: process.pid for name in DAEMONS if (process := daemons.process(name)) is not None}


def test_all_run_inside_and_only_the_prompt_one_has_bounded_priority(
    make: Callable[..., Daemons], namespace: str
) -> None:
    daemons = make()
    daemons.start()
    assert list(pids(daemons)) == list(DAEMONS)
    assert daemons.missing() == ()
    inside = os.stat(f"/run/netns/{namespace}").st_ino
    for name, pid in pids(daemons).items():
        assert os.stat(f"/proc/{pid}/ns/net").st_ino == inside
        limits = Path(f"/proc/{pid}/limits").read_text()
        bound = next(line.split()[3] for line in limits.splitlines() if "realtime timeout" in line)
        policy = os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK
        assert (name == "bfdd") == (policy == os.SCHED_FIFO) == (bound != "unlimited")
    assert "172.16.2.3" in daemons.vtysh("show bfd peers json")
    with pytest.raises(TrimtabError, match="'nonsense'"):
        daemons.vtysh("nonsense")


def test_what_runs_is_found_again_and_only_what_changed_starts_anew(make: Callable[..., Daemons]) -> None:
    make().start()
    before = pids(make())
    again = make()
    again.start()
    assert pids(again) == before
    assert again.missing() == ()
    faster = make(replace(HOST, timers=replace(HOST.timers, interval=0.2)))
    faster.start()
    now = pids(faster)
    assert (now["zebra"], now["bgpd"]) == (before["zebra"], before["bgpd"])
    assert now["bfdd"] != before["bfdd"]
    assert '"receive-interval":200' in faster.vtysh("show bfd peers json").replace(" ", "")


def test_they_outlive_who_started_them_and_a_missing_right_is_said_once(
    make: Callable[..., Daemons], namespace: str, tmp_path: Path
) -> None:
    for name, content in host_files(HOST).items():
        (tmp_path / name).write_text(content)
    folder = make().folder
    words = ["setpriv", "--bounding-set=-sys_nice", sys.executable, "-c", ANOTHER_PROCESS]
    child = subprocess.Popen(
        [*words, str(folder), namespace, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "started\n"
        before = pids(make())
        child.kill()
        assert child.stderr.read().count("without real-time priority") == 1
    daemons = make()
    daemons.start()
    assert pids(daemons) == before
    assert len(before) == len(DAEMONS)


def test_a_dead_one_is_missed_and_restarted_and_the_log_goes_on(make: Callable[..., Daemons]) -> None:
    daemons, other = make(), make()
    daemons.start()
    other.start()
    before = pids(daemons)
    (daemons.folder / "bgpd.conf").unlink()
    os.kill(before["bgpd"], signal.SIGKILL)
    until(lambda: daemons.missing() == ("bgpd",) == other.missing())
    daemons.restart("bgpd")
    assert daemons.missing() == () == other.missing()
    assert pids(daemons)["bgpd"] != before["bgpd"]
    assert pids(daemons)["zebra"] == before["zebra"]
    assert "65001" in daemons.vtysh("show bgp summary json"), "a file that was removed is written anew"
    assert daemons.log_file("bgpd").read_text().count("starting") == 2
    with pytest.raises(NotFoundError, match="ospfd"):
        daemons.restart("ospfd")


def test_a_death_is_heard_at_once_and_once(make: Callable[..., Daemons]) -> None:
    daemons, (asleep, awake) = make(), socket.socketpair()
    with asleep, awake:
        daemons.start()
        assert not daemons.wait_for_death(0.01, asleep.fileno())
        threading.Timer(0.1, os.kill, (pids(daemons)["zebra"], signal.SIGKILL)).start()
        assert daemons.wait_for_death(60.0, asleep.fileno())
        assert daemons.missing() == ("zebra",)
        assert not daemons.wait_for_death(0.01, asleep.fileno()), "it is known to be missing"
        awake.send(b"x")
        assert not daemons.wait_for_death(60.0, asleep.fileno())


def test_a_log_does_not_grow_without_bound(make: Callable[..., Daemons]) -> None:
    daemons = make()
    daemons.start()
    with daemons.log_file("bgpd").open("ab") as log:
        log.truncate(17 << 20)
    assert daemons.missing() == ()
    assert daemons.log_file("bgpd").stat().st_size == 0
    daemons.restart("bgpd")
    assert "starting" in daemons.log_file("bgpd").read_text()


def test_an_edited_file_is_refused_before_anything_is_touched(make: Callable[..., Daemons]) -> None:
    daemons = make()
    daemons.start()
    before = pids(daemons)
    edited = daemons.folder / "bgpd.conf"
    edited.write_text(edited.read_text().replace("65102", "65103"))
    for action in (make(replace(HOST, asn=65009)).start, lambda: daemons.restart("bgpd")):
        with pytest.raises(BadInputError, match=r"bgpd\.conf"):
            action()
    assert pids(daemons) == before
    assert "65103" in edited.read_text()
    daemons.stop()
    assert edited.exists(), "what somebody wrote is theirs to remove"
    edited.unlink()
    daemons.start()
    assert set(pids(daemons)) == set(before)


def test_stopped_is_gone(make: Callable[..., Daemons]) -> None:
    daemons = make()
    daemons.start()
    before = pids(daemons)
    make().stop()
    assert pids(daemons) == {}
    assert not daemons.folder.exists()
    for name, pid in before.items():
        assert not Path(f"/var/tmp/frr/{name}.{pid}").exists()
    daemons.stop()


def test_frr_that_is_not_there_is_said_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(programs, "_FOLDERS", (tmp_path,))
    find_programs.cache_clear()
    try:
        with pytest.raises(MissingDependencyError, match="apt-get install frr"):
            Daemons(tmp_path, host_files(HOST)).start()
        (tmp_path / "zebra").touch()
        with pytest.raises(MissingDependencyError, match="bfdd and no bgpd"):
            find_programs()
        for name in DAEMONS:
            (tmp_path / name).write_text("#!/bin/sh\necho $0 version 7.5.1\n")
            (tmp_path / name).chmod(0o755)
        with pytest.raises(MissingDependencyError, match=r"7\.5\.1"):
            find_programs()
    finally:
        find_programs.cache_clear()


def test_a_folder_too_deep_for_sockets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="deep"):
        Daemons(tmp_path / ("deep" * 30), host_files(HOST))
