"""The agent on control groups of version 2, where a kernel has them: slowing down instead of a kill."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from waiting import until

from trimtab.kernel import ContainerGroup, GroupBusyError, Hierarchy, LimitedGroup, SafeLimits
from trimtab.resize import Container, Grant, NodeAgent, Pool, Selector
from trimtab.resize.member import ManagedContainer

MIB = 2**20
SPIN = "while True: sum(range(10000))"
IDLE = "import time; time.sleep(60)"
GROW = """
import time
kept = []
for _ in range({most}):
    kept.append(bytes(1 << 20).replace(b"\\0", b"1", 1))
"""
HOLD = GROW.format(most=200) + "time.sleep(60)"


class Place:
    """A group of our own that passes its controllers down, and containers in it."""

    def __init__(self, stack: ExitStack, root: LimitedGroup) -> None:
        self._stack = stack
        self.root = root.folders[""]
        (self.root / "cgroup.subtree_control").write_text("+cpu +memory")
        self.hierarchy = Hierarchy(2, {"": self.root})
        self._names: list[str] = []

    def start(self, name: str, script: str) -> "subprocess.Popen[bytes]":
        folder = self.root / name
        folder.mkdir()
        group = LimitedGroup(2, {"": folder})
        self._stack.callback(group.remove)
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", script], preexec_fn=lambda: group.add(os.getpid())
        )
        self._stack.callback(child.wait)
        self._stack.callback(child.kill)
        self._names.append(name)
        return child

    def find(self) -> list[Container]:
        return [Container(f"/{name}") for name in self._names if (self.root / name).is_dir()]

    def read(self, name: str, file: str) -> str:
        return Path(self.root / name / file).read_text().strip()

    def events(self, name: str) -> dict[str, int]:
        words = self.read(name, "memory.events").split()
        return {key: int(value) for key, value in zip(words[::2], words[1::2], strict=True)}


@pytest.fixture
def place(new_group: Callable[..., LimitedGroup]) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(stack, new_group(version=2))


def _pool(memory: float = 256.0 * MIB, withheld: float = 0.2) -> Pool:
    return Pool("shop", 1.5, memory, (Selector("/*"),), withheld=withheld)


@contextmanager
def _sized(place: Place, pool: Pool) -> Iterator[list[Grant]]:
    grants = list[Grant]()
    agent = NodeAgent([pool], place.hierarchy, place.find, notice=grants.append)
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        yield grants
    finally:
        agent.stop()
        thread.join()


def test_limits_follow_use_and_everything_is_put_back(place: Place) -> None:
    place.start("busy", SPIN)
    place.start("idle", IDLE)
    seen = []
    with _sized(place, _pool()):
        while not (seen and seen[-1][0] > 0.2 and seen[-1][1] < 0.1):
            limits = [place.read(name, "cpu.max").split()[0] for name in ("busy", "idle")]
            if "max" not in limits:
                seen.append([int(limit) / 100_000 for limit in limits])
            time.sleep(0.02)
    assert seen[-1][0] > 0.2
    assert seen[-1][1] < 0.1
    assert all(sum(both) <= 1.5 + 1e-6 for both in seen)
    for name in ("busy", "idle"):
        assert place.read(name, "cpu.max").startswith("max")
        assert place.read(name, "cpu.max.burst") == "0"
        assert place.read(name, "memory.max") == "max"
        assert place.read(name, "memory.high") == "max"


def test_who_runs_out_of_memory_gets_more_and_lives(place: Place) -> None:
    child = place.start("grows", GROW.format(most=160))
    with _sized(place, _pool(withheld=0.8)) as grants:
        assert child.wait() == 0
    assert grants
    assert all(grant.after > grant.before for grant in grants)
    assert place.events("grows")["oom_kill"] == 0


def test_an_empty_pool_takes_from_those_with_room_before_anyone_dies(place: Place) -> None:
    place.start("rich", IDLE)
    child = place.start("grows", GROW.format(most=140))
    with _sized(place, _pool(withheld=0.0)) as grants:
        assert child.wait() == 0
    assert grants
    assert place.events("grows")["oom_kill"] == 0


def test_where_nothing_can_be_given_the_kernel_kills_as_usual(place: Place) -> None:
    child = place.start("grows", GROW.format(most=400))
    with _sized(place, _pool(memory=128.0 * MIB)) as grants:
        assert child.wait() == -9
    assert place.events("grows")["oom_kill"] >= 1
    assert any(grant.after <= grant.before for grant in grants)


def test_who_does_not_run_out_is_given_nothing(place: Place) -> None:
    place.start("idle", IDLE)
    with _sized(place, _pool()) as grants:
        until(lambda: place.read("idle", "memory.high") != "max")
    assert not grants


def test_what_is_taken_leaves_room_above_use_or_is_refused(place: Place) -> None:
    child = place.start("holds", HOLD)
    with ContainerGroup(place.hierarchy, "/holds") as group:
        member = ManagedContainer(
            Container("/holds"), group, 0, 0, SafeLimits("/holds", None, None), group.cpu()
        )
        until(lambda: group.memory() > 200 * MIB)
        member.limit_memory(300.0 * MIB)
        high = place.read("holds", "memory.high")
        with pytest.raises(GroupBusyError):
            member.limit_memory(150.0 * MIB)
        assert (place.read("holds", "memory.high"), group.memory_limit()) == (high, 300.0 * MIB)
        meant = group.memory() + 4.0 * MIB
        member.limit_memory(member.limit_for(meant))
        assert int(place.read("holds", "memory.high")) >= meant - 8192  # whole pages
        assert meant < (group.memory_limit() or 0) < 300.0 * MIB
        member.limit_memory(None)
    assert child.poll() is None
