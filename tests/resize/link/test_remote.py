"""Agents under a controller: real processes, TLS and control groups, some of them killed or stopped."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from waiting import until

from trimtab.kernel import LimitedGroup
from trimtab.resize.link.certificates import Authority
from trimtab.resize.link.joining import issue

SPIN = "while True: sum(range(10000))"
IDLE = "import time; time.sleep(100)"
GROW = """
import time
kept = []
for _ in range({most}):
    kept.append(bytes(1 << 20).replace(b"\\0", b"1", 1))
time.sleep({then})
"""
WAIT = """
import pathlib, time
while not pathlib.Path({path!r}).exists(): time.sleep(0.02)
"""
CONTROLLER = """
from pathlib import Path
from trimtab.resize import MemorySettings, Pool, Selector
from trimtab.resize.link.server import serve
pool = Pool("shop", 1.5, {memory} * 2.0**20, (Selector("/*"),), withheld=0.0)
serve([pool], lambda serving: print("up", flush=True), Path({folder!r}), {address!r}, "127.0.0.1:0",
      patience={patience}, memory=MemorySettings(every=1e9))
"""
AGENT = """
import logging, signal
from pathlib import Path
from trimtab.kernel import Hierarchy
from trimtab.resize.link.joining import Membership
from trimtab.resize.link.remote import RemoteAgent
logging.basicConfig()
folders = {{name: Path(path) for name, path in {folders!r}.items()}}
agent = RemoteAgent(Membership.read(Path({member!r})), Hierarchy(1, folders))
signal.signal(signal.SIGTERM, lambda number, frame: agent.stop())
agent.run()
"""


class Machine:
    """A node: a control group of our own, containers below it, and an agent for them."""

    def __init__(self, stack: ExitStack, root: LimitedGroup, name: str, folder: Path) -> None:
        self.name, self._stack, self._folders, self._member = name, stack, root.folders, folder / name
        self.groups: dict[str, LimitedGroup] = {}
        self.agent: subprocess.Popen[bytes] | None = None

    def start(self, name: str, script: str) -> "subprocess.Popen[bytes]":
        """A container with a Python script in it."""
        folders = {controller: folder / name for controller, folder in self._folders.items()}
        for folder in folders.values():
            folder.mkdir()
        group = self.groups[name] = LimitedGroup(1, folders)
        self._stack.callback(group.remove)
        return self._run(script, lambda: group.add(os.getpid()))

    def join(self, authority: Authority, address: str) -> None:
        issue(authority, self.name, address).write(self._member)
        folders = {name: str(folder) for name, folder in self._folders.items()}
        self.agent = self._run(AGENT.format(folders=folders, member=str(self._member)))

    def cpus(self, name: str) -> float | None:
        quota = int(self._read(name, "cpu.cfs_quota_us"))
        return None if quota < 0 else quota / 100_000

    def memory(self, name: str) -> int:
        return int(self._read(name, "memory.limit_in_bytes"))

    def is_trapped_when_out_of_memory(self, name: str) -> bool:
        return "oom_kill_disable 1" in self._read(name, "memory.oom_control")

    def is_free(self, name: str) -> bool:
        return self.cpus(name) is None and not self.is_trapped_when_out_of_memory(name)

    def _read(self, name: str, file: str) -> str:
        return (self._folders[file.partition(".")[0]] / name / file).read_text().strip()

    def _run(self, script: str, before: Callable[[], None] | None = None) -> "subprocess.Popen[bytes]":
        child = subprocess.Popen([sys.executable, "-c", script], preexec_fn=before)
        self._stack.callback(child.wait)
        self._stack.callback(child.kill)
        return child


class Place:
    """A controller, and machines that have joined it."""

    def __init__(self, stack: ExitStack, folder: Path, new_group: Callable[..., LimitedGroup]) -> None:
        self._stack, self._folder, self._new_group = stack, folder, new_group
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.controller: subprocess.Popen[bytes] | None = None

    def up(self, patience: float = 1.0, memory: float = 256.0) -> "subprocess.Popen[bytes]":
        """Start the controller, or start it again."""
        script = CONTROLLER.format(
            folder=str(self._folder / "controller"), address=self.address, patience=patience, memory=memory
        )
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        self._stack.callback(child.wait)
        self._stack.callback(child.kill)
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        return child

    def join(self, *machines: Machine) -> None:
        for machine in machines:
            machine.join(Authority(self._folder / "controller"), self.address)

    def machine(self, name: str) -> Machine:
        return Machine(self._stack, self._new_group(version=1), name, self._folder)


@pytest.fixture
def place(tmp_path: Path, new_group: Callable[..., LimitedGroup]) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(stack, tmp_path, new_group)


def test_two_nodes_share_one_pool_of_cpu_and_of_memory(place: Place) -> None:
    busy, rich = place.machine("busy"), place.machine("rich")
    rich.start("idle", GROW.format(most=8, then=100))
    busy.start("spins", SPIN)
    place.up(memory=300.0)
    place.join(busy, rich)
    until(lambda: busy.cpus("spins") is not None and rich.cpus("idle") is not None)
    until(lambda: (rich.cpus("idle") or 9) < 0.1 and (busy.cpus("spins") or 0) > 0.3)
    for _ in range(20):
        assert (busy.cpus("spins") or 0) + (rich.cpus("idle") or 0) <= 1.5 + 1e-6
        time.sleep(0.01)
    child = busy.start("grows", GROW.format(most=180, then=0))  # more than its share: the others have it
    assert child.wait() == 0
    assert busy.groups["grows"].out_of_memory_kills() == 0
    assert rich.groups["idle"].out_of_memory_kills() == 0
    assert busy.agent is not None
    busy.agent.terminate()
    assert busy.agent.wait() == 0
    assert busy.is_free("spins")


def test_where_no_node_has_memory_left_the_kernel_kills_as_usual(place: Place, tmp_path: Path) -> None:
    node, go = place.machine("node"), tmp_path / "go"
    place.up(memory=48.0)
    place.join(node)
    node.start("idle", IDLE)
    greedy = node.start("greedy", WAIT.format(path=str(go)) + GROW.format(most=200, then=0))
    until(lambda: all(node.is_trapped_when_out_of_memory(name) for name in ("idle", "greedy")))
    until(lambda: node.memory("greedy") < 48 * 2**20)
    go.touch()
    assert greedy.wait() == -signal.SIGKILL


def test_a_controller_that_is_killed_and_starts_again_goes_on(place: Place) -> None:
    node = place.machine("node")
    child = node.start("busy", SPIN)
    node.start("idle", IDLE)
    controller = place.up(patience=6.0)
    place.join(node)
    until(lambda: (node.cpus("busy") or 9) < 1.5)  # the first limit is all there is
    controller.kill()
    controller.wait()
    limits = [node.cpus("busy")]
    place.up(patience=6.0)
    for _ in range(40):
        limits.append(node.cpus("busy"))
        assert node.is_trapped_when_out_of_memory("busy")
        time.sleep(0.05)
    assert None not in limits
    assert min(limit for limit in limits if limit) > 0.1
    child.kill()
    until(lambda: (node.cpus("busy") or 9) < 0.1)  # once it knows that no other node is to come


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_when_the_controller_dies_or_hangs_nodes_have_safe_limits_until_it_is_back(
    place: Place, blow: int
) -> None:
    node = place.machine("node")
    node.start("busy", SPIN)
    controller = place.up()
    place.join(node)
    until(lambda: node.cpus("busy") is not None)
    assert node.is_trapped_when_out_of_memory("busy")
    controller.send_signal(blow)
    until(lambda: node.is_free("busy"))
    if blow == signal.SIGKILL:
        place.up()
    else:
        controller.send_signal(signal.SIGCONT)
    until(lambda: node.cpus("busy") is not None)
    until(lambda: node.is_trapped_when_out_of_memory("busy"))


def test_when_an_agent_dies_or_hangs_its_node_is_free_and_the_others_go_on(place: Place) -> None:
    lost, other = place.machine("lost"), place.machine("other")
    for machine in (lost, other):
        machine.start("busy", SPIN)
    place.up()
    place.join(lost, other)
    until(lambda: lost.cpus("busy") is not None and other.cpus("busy") is not None)
    assert lost.agent is not None
    lost.agent.send_signal(signal.SIGSTOP)
    until(lambda: lost.is_free("busy"))
    lost.agent.send_signal(signal.SIGCONT)  # it was only asleep: it registers anew
    until(lambda: lost.cpus("busy") is not None)
    lost.agent.kill()
    until(lambda: lost.is_free("busy"))
    assert other.cpus("busy") is not None
    assert other.is_trapped_when_out_of_memory("busy")
