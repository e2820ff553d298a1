"""A node's containers, in real control groups: who comes and goes, and who else sets limits."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from waiting import until

from trimtab.core import StorageError
from trimtab.kernel import ContainerGroup, Hierarchy, LimitedGroup, Owner, SafeLimits, mounted
from trimtab.resize import (
    Container,
    Controller,
    Discovery,
    Grant,
    NodeAgent,
    NodeMembers,
    Pool,
    Selector,
    SlotLimits,
)

MIB = 2**20


class Place:
    """A group of our own that plays the root, and containers with a process that does nothing."""

    def __init__(self, stack: ExitStack, root: LimitedGroup) -> None:
        self._stack = stack
        self.root = root
        self.hierarchy = Hierarchy(1, root.folders)
        self.groups: dict[str, LimitedGroup] = {}

    def group(self, path: str) -> LimitedGroup:
        """A group without a process."""
        folders = {name: folder / path[1:] for name, folder in self.hierarchy.folders.items()}
        for folder in folders.values():
            folder.mkdir()
        self.groups[path] = LimitedGroup(1, folders)
        self._stack.callback(self.remove, path)
        return self.groups[path]

    def start(self, path: str) -> LimitedGroup:
        """A container."""
        group = self.group(path)
        child = os.posix_spawn("/bin/sleep", ["sleep", "60"], os.environ)
        self._stack.callback(_end, child)
        group.add(child)
        return group

    def remove(self, path: str) -> None:
        if path in self.groups:
            self.groups.pop(path).remove()

    def find(self) -> list[Container]:
        there = self.hierarchy.folders["cpu"]
        return [Container(path) for path in self.groups if (there / path[1:]).is_dir()]

    def read(self, path: str, name: str) -> str:
        folder = self.hierarchy.folders[name.partition(".")[0]]
        return (folder / path[1:] / name).read_text().strip()

    def cpus(self, path: str) -> float | None:
        quota, period = (int(self.read(path, f"cpu.cfs_{name}_us")) for name in ("quota", "period"))
        return None if quota < 0 else quota / period

    def is_managed(self, path: str) -> bool:
        return self.cpus(path) is not None and "disable 1" in self.read(path, "memory.oom_control")


def _end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.fixture
def place(new_group: Callable[..., LimitedGroup]) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(stack, new_group(version=1))


def _pool(cpu: float = 1.5, memory: float = 256.0 * MIB, pattern: str = "/*") -> Pool:
    return Pool("shop", cpu, memory, (Selector(pattern),), policy="escra")


@pytest.fixture
def node(place: Place) -> Iterator[NodeMembers]:
    node = NodeMembers(Controller([_pool()]), place.hierarchy, place.find)
    yield node
    node.release()


def _set(node: NodeMembers, path: str, cpus: float, memory: float = 64.0 * MIB) -> SlotLimits:
    """What a container has of CPU after it was to have so much."""
    slots = np.array([node.members[path].slot])
    node.set_memory(SlotLimits(slots, np.array([memory])))
    return node.set_cpus(SlotLimits(slots, np.array([cpus])))


def _logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What Trimtab logged; threads of other tests' clients may still complain of servers that are gone."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("trimtab")]


def test_a_new_container_is_under_management_after_two_periods(place: Place) -> None:
    agent = NodeAgent([_pool()], place.hierarchy)
    try:
        for number in range(7):
            place.start(f"/new{number}")
            agent.step()
            agent.step()
            assert place.is_managed(f"/new{number}")
    finally:
        agent.close()


def test_from_none_to_fifty_and_back_nothing_is_left(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    def files() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = files()
    agent = NodeAgent([_pool()], place.hierarchy)
    agent.step()
    idle = files()
    for _ in range(2):
        for number in range(50):
            place.start(f"/short{number}")
            if number % 10 == 9:
                agent.step()
        assert len(agent.members) == 50
        assert files() > idle + 100
        assert agent.controller.column("cpus").sum() <= 1.5 + 1e-9
        for number in range(50):
            place.remove(f"/short{number}")
            if number % 10 == 9:
                agent.step()
        assert agent.members == []
        assert len(agent.controller.slots) == 0
        assert files() == idle
    agent.close()
    assert files() == before
    assert _logged(caplog) == []


def test_a_group_that_cannot_be_managed_is_named_with_the_reason_and_logged_once(
    place: Place, node: NodeMembers, caplog: pytest.LogCaptureFixture
) -> None:
    place.start("/whole")
    place.start("/part")
    _leave(place.hierarchy.folders["cpuacct"] / "part")
    for _ in range(3):
        node.rescan()
    assert list(node.members) == ["/whole"]
    assert list(node.unmanaged) == ["/part"]
    assert "cpuacct" in node.unmanaged["/part"]
    assert len(_logged(caplog)) == 1
    place.remove("/part")
    node.rescan()
    assert node.unmanaged == {}


def _leave(folder: Path) -> None:
    """Move the processes of one controller's group to the group above, and remove it."""
    for pid in (folder / "cgroup.procs").read_text().split():
        (folder.parent / "cgroup.procs").write_text(pid)
    folder.rmdir()


def test_a_container_whose_limits_cannot_be_recorded_is_left_alone(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    recorded = list[list[str]]()
    disk_is_full = True

    def record(safe: Mapping[str, SafeLimits]) -> None:
        if disk_is_full:
            raise StorageError("the disk is full")
        recorded.append(sorted(safe))

    node = NodeMembers(Controller([_pool()]), place.hierarchy, place.find, record)
    try:
        place.start("/a")
        assert node.rescan() == []
        assert node.members == {}
        assert node.unmanaged == {"/a": "the disk is full"}
        disk_is_full = False
        assert [member.container.cgroup for member in node.rescan()] == ["/a"]
        assert node.unmanaged == {}
        place.start("/b")
        node.rescan()
        node.rescan()
        place.remove("/a")
        node.rescan()
        assert recorded == [["/a"], ["/a", "/b"], ["/b"]]
    finally:
        node.release()


def test_a_container_that_ends_has_not_run_out_of_memory(place: Place) -> None:
    """Its group's removal wakes whoever waits for it to run out."""
    grants = list[Grant]()
    agent = NodeAgent([_pool()], place.hierarchy, notice=grants.append)
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        for number in range(5):
            path = f"/short{number}"
            place.start(path)
            until(lambda path=path: place.is_managed(path))  # type: ignore[misc]
            place.remove(path)
        until(lambda: not agent.members)
    finally:
        agent.stop()
        thread.join()
    assert grants == []


def test_containers_that_vanish_while_they_are_taken_in_leave_no_file_open(
    place: Place, node: NodeMembers
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    place.group("/half")
    (place.hierarchy.folders["memory"] / "half").rmdir()  # as when its controllers go one after the other
    assert node.rescan() == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_limits_that_others_set_are_what_it_is_left_with(place: Place, node: NodeMembers) -> None:
    group = place.start("/a")
    node.rescan()
    _set(node, "/a", 0.2)
    group.limit_cpus(0.6, period=0.05)  # its runtime was slow, or somebody updates it
    group.limit_memory(200 * MIB)
    node.sample(0.1)
    assert place.cpus("/a") == pytest.approx(0.2)
    assert place.read("/a", "memory.limit_in_bytes") == str(64 * MIB)
    assert node.safe["/a"].cpus == pytest.approx(0.6)
    assert node.safe["/a"].memory == 200 * MIB
    for _ in range(30):
        node.sample(0.1)
    group.limit_cpus(0.7)
    for _ in range(20):  # everyone's turn comes
        node.sample(0.1)
    assert place.cpus("/a") == pytest.approx(0.2)
    node.release()
    assert place.cpus("/a") == pytest.approx(0.7)
    assert place.read("/a", "memory.limit_in_bytes") == str(200 * MIB)


def test_who_is_no_longer_ours_gets_its_limits_back(place: Place, node: NodeMembers) -> None:
    place.start("/a").limit_cpus(0.9)
    node.rescan()
    _set(node, "/a", 0.1)
    assert place.is_managed("/a")
    del place.groups["/a"]  # its label was changed
    folders = {name: folder / "a" for name, folder in place.hierarchy.folders.items()}
    node.rescan()
    assert node.members == {}
    assert place.cpus("/a") == pytest.approx(0.9)
    assert "disable 0" in place.read("/a", "memory.oom_control")
    LimitedGroup(1, folders).remove()


def test_another_label_moves_a_container_to_another_pool(place: Place) -> None:
    place.start("/a").limit_cpus(0.9)
    pools = [Pool(name, 1.0, 256.0 * MIB, (Selector(labels={"app": name}),)) for name in ("shop", "bank")]
    labels = {"app": "shop"}
    node = NodeMembers(Controller(pools), place.hierarchy, lambda: [Container("/a", dict(labels))])
    (member,) = node.rescan()
    _set(node, "/a", 0.1)
    assert node.rescan() == []
    labels["tier"] = "front"
    assert node.rescan() == []
    assert member.container.labels == labels
    labels["app"] = "bank"
    (moved,) = node.rescan()
    assert (member.pool, moved.pool) == (0, 1)
    assert moved.safe.cpus == pytest.approx(0.9)
    node.release()


def test_a_group_above_with_less_than_the_pool_is_kept_to_and_said_once(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.group("/inner").limit_cpus(0.5)
    for name in ("a", "b"):
        place.start(f"/inner/{name}")
    pools = [_pool(pattern="/inner/*")]
    node = NodeMembers(Controller(pools), place.hierarchy, place.find)
    node.rescan()
    assert _set(node, "/inner/a", 0.4).values.tolist() == [0.4]
    assert _set(node, "/inner/a", 0.8).values.tolist() == [0.5]
    assert place.cpus("/inner/a") == pytest.approx(0.5)
    place.groups["/inner"].limit_cpus(0.7)
    for _ in range(20):  # everyone's turn comes
        node.sample(0.1)
    assert _set(node, "/inner/a", 0.8).values.tolist() == [pytest.approx(0.7)]
    node.release()
    (warning,) = _logged(caplog)
    assert "/inner " in warning
    assert "0.5 CPUs" in warning
    assert "shop" in warning


def test_after_everyone_was_set_free_limits_and_pods_are_as_they_were(place: Place) -> None:
    for path in ("/kubepods", "/kubepods/pod1"):
        place.group(path)
    place.groups["/kubepods/pod1"].limit_cpus(0.5)
    group = place.start("/kubepods/pod1/aa")
    place.start("/new")
    controller = Controller([_pool()])
    node = NodeMembers(
        controller, place.hierarchy, lambda: [Container("/kubepods/pod1/aa"), Container("/new")]
    )
    node.rescan()
    slot = node.members["/kubepods/pod1/aa"].slot
    controller.confirm(node.set_cpus(SlotLimits(np.array([slot]), np.array([1.2]))))
    group.limit_cpus(None)  # as the dead man's switch does it
    place.groups["/kubepods/pod1"].limit_cpus(0.5)
    node.set_again()
    assert place.cpus("/kubepods/pod1/aa") == pytest.approx(1.2)
    assert place.cpus("/kubepods/pod1") == pytest.approx(2.0)
    assert place.cpus("/new") is None  # nothing had been decided for it
    node.release()
    assert place.cpus("/kubepods/pod1") == pytest.approx(0.5)


def _tree(tmp_path: Path, *names: str, quota: bool) -> Hierarchy:
    """Files as version 1 shows them, for some containers; with limits of CPU, or from a kernel without."""
    files = {
        "cpuacct/cpuacct.usage": "7",
        "memory/memory.usage_in_bytes": str(MIB),
        "memory/memory.limit_in_bytes": str(2**62),
        "memory/memory.oom_control": "",
        "memory/cgroup.event_control": "",
        "cpu/cpu.stat": "nr_periods 0\nnr_throttled 0\n",
    }
    if quota:
        files |= {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}
    for name in names:
        for file, text in files.items():
            controller, _, file_name = file.partition("/")
            folder = tmp_path / controller / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / file_name).write_text(text)
    return Hierarchy(1, {name: tmp_path / name for name in ("cpu", "cpuacct", "memory")})


def _manage(node: NodeMembers) -> None:
    members = node.rescan()
    slots = np.array([member.slot for member in members])
    for _ in range(3):
        node.sample(0.1)
        node.set_memory(SlotLimits(slots, np.full(len(slots), 64.0 * MIB)))
        node.set_cpus(SlotLimits(slots, np.full(len(slots), 0.3)))


def test_on_a_kernel_without_limits_of_cpu_memory_is_still_managed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hierarchy = _tree(tmp_path, "a", "b", "c", quota=False)
    node = NodeMembers(Controller([_pool()]), hierarchy, lambda: [Container(f"/{name}") for name in "abc"])
    _manage(node)
    limits = [(tmp_path / "memory" / name / "memory.limit_in_bytes").read_text() for name in "abc"]
    assert limits == [str(64 * MIB)] * 3
    (said,) = _logged(caplog)
    assert said.startswith("CPU cannot be limited, there is no cpu.cfs_quota_us")
    node.release()


UNPRIVILEGED = """
import logging, os, sys
import numpy as np
from pathlib import Path
from trimtab.kernel import Hierarchy
from trimtab.resize import Container, Controller, NodeMembers, Pool, Selector, SlotLimits
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
logging.basicConfig(format="%(message)s")
hierarchy = Hierarchy(1, {name: Path(sys.argv[1], name) for name in ("cpu", "cpuacct", "memory")})
pool = Pool("shop", 1.5, 2.0**28, (Selector("/*"),))
node = NodeMembers(Controller([pool]), hierarchy, lambda: [Container(f"/{name}") for name in "abc"])
slots = np.array([member.slot for member in node.rescan()])
for _ in range(3):
    node.sample(0.1)
    for set_limits, value in ((node.set_memory, 2.0**26), (node.set_cpus, 0.3)):
        print(len(set_limits(SlotLimits(slots, np.full(len(slots), value)))))
node.release()
"""


def test_without_permission_it_is_said_once_and_nothing_is_set() -> None:
    if os.getuid() != 0:
        pytest.skip("needs root, to give it up")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        _tree(Path(folder), "a", "b", "c", quota=True)
        program = [sys.executable, "-c", UNPRIVILEGED, folder]
        told = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert told.stdout.split() == ["0"] * 6
    assert told.stderr.splitlines() == [
        "control groups cannot be written: Permission denied; "
        "that takes root, and control groups mounted for writing"
    ]


CONFIG = {
    "ociVersion": "1.0.2",
    "process": {
        "terminal": False,
        "user": {"uid": 0, "gid": 0},
        "args": ["/bin/busybox", "sleep", "60"],
        "env": ["PATH=/bin"],
        "cwd": "/",
    },
    "root": {"path": "rootfs", "readonly": True},
    "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
    "annotations": {"app": "shop"},
}


@pytest.fixture
def bundle(tmp_path: Path) -> Iterator[Path]:
    """What runc needs for a container called "one", in a group of our own at the root."""
    busybox, found = shutil.which("busybox"), mounted()
    if not busybox or not shutil.which("runc") or found is None or found.version == 2 or os.getuid() != 0:
        pytest.skip("needs root, version 1 of control groups, runc and a static busybox")
    (tmp_path / "rootfs" / "bin").mkdir(parents=True)
    (tmp_path / "rootfs" / "proc").mkdir()
    shutil.copy(busybox, tmp_path / "rootfs" / "bin")
    name = Owner.current().name("runc")
    linux = {
        "cgroupsPath": f"/{name}/one",
        "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")],
        "resources": {"cpu": {"quota": 30_000, "period": 50_000}, "memory": {"limit": 200 * MIB}},
    }
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"linux": linux}))
    yield tmp_path
    subprocess.run(["runc", "--root", str(tmp_path / "states"), "delete", "--force", "one"])
    for folder in found.folders["cpu"].parent.glob(f"*/{name}"):
        folder.rmdir()


def test_a_container_of_runc_is_left_with_the_limits_that_runc_wrote(bundle: Path) -> None:
    hierarchy = mounted()
    assert hierarchy is not None
    pool = Pool("shop", 1.5, 256.0 * MIB, (Selector(labels={"app": "shop"}),))
    with Discovery(hierarchy, [pool], [bundle / "states"]) as discovery:
        agent = NodeAgent([pool], hierarchy, discovery)
        thread = threading.Thread(target=agent.run)
        thread.start()
        try:
            run = [
                "runc",
                "--root",
                str(bundle / "states"),
                "run",
                "--detach",
                "--bundle",
                str(bundle),
                "one",
            ]
            subprocess.run(run, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            until(lambda: bool(agent.members))
            (member,) = agent.members
            assert member.container.labels["app"] == "shop"
            assert (member.safe.cpus, member.safe.memory) == (0.6, 200.0 * MIB)
            until(lambda: (member.group.cpu_limit() or 1.0) < 0.5)
        finally:
            agent.stop()
            thread.join()
    with ContainerGroup(hierarchy, member.container.cgroup) as group:
        assert (group.cpu_limit(), group.memory_limit()) == (0.6, 200.0 * MIB)


def test_whatever_is_borrowed_all_together_never_have_more_than_their_limits(place: Place) -> None:
    pool = Pool("shop", 0.6, 256.0 * MIB, (Selector("/*"),))
    node = NodeMembers(Controller([pool]), place.hierarchy, place.find)
    spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        for name in ("busy", "calm", "quiet"):
            place.start(f"/{name}")
        place.groups["/busy"].add(spinning.pid)
        node.rescan()
        slots = np.array([member.slot for member in node.members.values()])
        node.set_cpus(SlotLimits(slots, np.full(3, 0.2)))
        most = 0.0
        for turn in range(60):
            node.sample(0.1) if turn % 4 == 0 else node.glance(time.monotonic())
            if turn % 4 == 0:
                node.trim()
            committed = {path: member.committed for path, member in node.members.items()}
            assert sum(committed.values()) <= 0.6 + 1e-6
            most = max(most, committed["/busy"])
            time.sleep(0.025)
        assert most > 0.2 + 1e-3  # what the others do not use
    finally:
        spinning.kill()
        spinning.wait()
        node.release()
