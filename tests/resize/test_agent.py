"""The agent on real control groups: limits follow use, nobody dies for want of memory, nothing is left."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from waiting import until

from trimtab.core import Decision, StorageError
from trimtab.kernel import Hierarchy, LimitedGroup
from trimtab.resize import Container, Grant, GrantJournal, MemorySettings, NodeAgent, Pool, Selector

MIB = 2**20
SPIN = "while True: sum(range(10000))"
IDLE = "import time; time.sleep(60)"
GROW = """
import time
kept = []
for _ in range({most}):
    kept.append(bytes(1 << 20).replace(b"\\0", b"1", 1))
time.sleep({then})
"""


# Nothing is asked of the machine before there is a limit to run into.
ONCE_LIMITED = """
import os, time
where = [line.split(":", 2)[2].strip() for line in open("/proc/self/cgroup") if ":memory:" in line][0]
limit = "{root}/" + os.path.basename(where) + "/memory.limit_in_bytes"
while int(open(limit).read()) >= 1 << 60:
    time.sleep(0.01)
"""
GIVEN = Grant("/shop/a", "shop", 64 * MIB, 80 * MIB, 0.002)
REFUSED = Grant("/shop/a", "shop", 64 * MIB, 64 * MIB, 0.002)


class Place:
    """Groups of our own that play containers, found by their path."""

    def __init__(self, stack: ExitStack, root: LimitedGroup) -> None:
        self._stack = stack
        self.groups: dict[str, LimitedGroup] = {}
        self.hierarchy = Hierarchy(1, root.folders)

    def start(self, name: str, script: str) -> "subprocess.Popen[bytes]":
        """A container with a Python script in it."""
        folders = {controller: folder / name for controller, folder in self.hierarchy.folders.items()}
        for folder in folders.values():
            folder.mkdir()
        group = LimitedGroup(1, folders)
        self._stack.callback(group.remove)
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", script], preexec_fn=lambda: group.add(os.getpid())
        )
        self._stack.callback(child.wait)
        self._stack.callback(child.kill)
        self.groups[f"/{name}"] = group
        return child

    def find(self) -> list[Container]:
        there = self.hierarchy.folders["cpu"]
        return [Container(path) for path in self.groups if (there / path[1:]).is_dir()]

    def read(self, path: str, name: str) -> str:
        folder = self.hierarchy.folders[name.partition(".")[0]]
        return (folder / path[1:] / name).read_text().strip()

    def cpus(self, path: str) -> float | None:
        quota = int(self.read(path, "cpu.cfs_quota_us"))
        return None if quota < 0 else quota / 100_000


@pytest.fixture
def place(new_group: Callable[..., LimitedGroup]) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(stack, new_group(version=1))


def _pool(**more: float) -> Pool:
    return Pool("shop", **{"cpu": 1.5, "memory": 256.0 * MIB, **more}, select=(Selector("/*"),))  # type: ignore[arg-type]


def _agent(place: Place, *pools: Pool, **more: object) -> NodeAgent:
    return NodeAgent(pools, place.hierarchy, place.find, **more)  # type: ignore[arg-type]


def test_limits_follow_use_and_everything_is_put_back(place: Place) -> None:
    place.start("busy", SPIN)
    place.start("idle", IDLE)
    agent = _agent(place, _pool())
    seen = []
    thread = threading.Thread(target=agent.run)
    thread.start()
    until(lambda: place.cpus("/busy") is not None and place.cpus("/idle") is not None)

    def settled() -> bool:
        seen.append((place.cpus("/busy") or 0.0, place.cpus("/idle") or 0.0))
        return seen[-1][0] > 0.2 and seen[-1][1] < 0.1  # on a busy machine it gets no more than that

    until(settled)
    agent.stop()
    thread.join()
    assert all(busy + idle <= 1.5 + 1e-6 for busy, idle in seen)
    assert (place.cpus("/busy"), place.cpus("/idle")) == (None, None)
    assert "oom_kill_disable 0" in place.read("/busy", "memory.oom_control")


def test_who_runs_out_of_memory_gets_more_and_lives(place: Place) -> None:
    wait = ONCE_LIMITED.format(root=place.hierarchy.folders["memory"])
    child = place.start("grows", wait + GROW.format(most=120, then=0))
    grants = list[Grant]()
    agent = _agent(place, _pool(withheld=0.9), notice=grants.append)
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        assert child.wait() == 0
    finally:
        agent.stop()
        thread.join()
    assert grants
    assert all(grant.after > grant.before and grant.path == "/grows" for grant in grants)
    assert place.groups["/grows"].out_of_memory_kills() == 0


def test_an_empty_pool_takes_from_those_with_room_before_anyone_dies(place: Place) -> None:
    place.start("rich", GROW.format(most=8, then=60))
    until(lambda: (place.groups["/rich"].memory() or 0) > 8 * MIB)
    grants = list[Grant]()
    settings = MemorySettings(every=1e9)  # no calm round: only need makes it take
    agent = _agent(place, _pool(memory=160.0 * MIB, withheld=0.0), notice=grants.append, memory=settings)
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        until(lambda: place.cpus("/rich") is not None)
        child = place.start("poor", GROW.format(most=100, then=0))
        assert child.wait() == 0
    finally:
        agent.stop()
        thread.join()
    assert place.groups["/poor"].out_of_memory_kills() == 0
    assert place.groups["/rich"].out_of_memory_kills() == 0


def test_where_nothing_can_be_given_the_kernel_kills_as_usual(place: Place) -> None:
    wait = ONCE_LIMITED.format(root=place.hierarchy.folders["memory"])
    child = place.start("greedy", wait + GROW.format(most=200, then=0))
    grants = list[Grant]()
    agent = _agent(place, _pool(memory=48.0 * MIB), notice=grants.append)
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        assert child.wait() == -signal.SIGKILL
    finally:
        agent.stop()
        thread.join()
    assert grants[-1].after == grants[-1].before


def test_when_memory_can_no_longer_be_granted_the_agent_ends_and_gives_the_killer_back(place: Place) -> None:
    wait = ONCE_LIMITED.format(root=place.hierarchy.folders["memory"])
    place.start("grows", wait + GROW.format(most=120, then=0))

    def broken(grant: Grant) -> None:
        raise RuntimeError("nobody expected that")

    agent = _agent(place, _pool(withheld=0.9), notice=broken)
    thread = threading.Thread(target=agent.run)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert place.cpus("/grows") is None
    assert "oom_kill_disable 0" in place.read("/grows", "memory.oom_control")


def test_a_new_container_is_taken_under_management(place: Place) -> None:
    agent = _agent(place, _pool())
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        place.start("early", IDLE)
        until(lambda: place.cpus("/early") is not None)
        place.start("late", IDLE)
        until(lambda: place.cpus("/late") is not None)
    finally:
        agent.stop()
        thread.join()


def test_containers_that_vanish_or_come_by_the_dozen_harm_nobody(place: Place) -> None:
    agent = _agent(place, _pool())
    for number in range(12):
        place.start(f"short{number}", IDLE)
        agent.step()
        if number % 2:
            place.groups[f"/short{number}"].remove()
        agent.step()
    assert len(agent.members) == 6
    assert agent.controller.column("cpus").sum() <= 1.5 + 1e-9
    agent.close()


AGENT = """
from pathlib import Path
from trimtab.kernel import Hierarchy
from trimtab.resize import Container, NodeAgent, Pool, Selector
folders = {{name: Path(path) for name, path in {folders!r}.items()}}
pool = Pool("shop", 1.5, 256.0 * 2**20, (Selector("/*"),))
NodeAgent([pool], Hierarchy(1, folders), lambda: [Container({path!r})]).run()
"""


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_when_the_agent_dies_or_hangs_safe_limits_and_the_killer_come_back(place: Place, blow: int) -> None:
    place.start("left", SPIN)
    folders = {name: str(folder) for name, folder in place.hierarchy.folders.items()}
    script = AGENT.format(folders=folders, path="/left")
    agent = subprocess.Popen([sys.executable, "-c", script])
    try:
        until(lambda: place.cpus("/left") is not None)
        assert "oom_kill_disable 1" in place.read("/left", "memory.oom_control")
        agent.send_signal(blow)
        until(lambda: place.cpus("/left") is None)
        until(lambda: "oom_kill_disable 0" in place.read("/left", "memory.oom_control"))
        if blow == signal.SIGSTOP:  # it was only asleep: it notices, and starts over
            agent.send_signal(signal.SIGCONT)
            until(lambda: place.cpus("/left") is not None)
    finally:
        agent.kill()
        agent.wait()
    until(lambda: place.cpus("/left") is None)


def test_a_grant_and_a_kill_are_decisions_that_say_why() -> None:
    kept = list[Decision]()
    with GrantJournal(kept.append) as journal:
        journal(GIVEN)
        journal(REFUSED)
    given, refused = kept
    assert (given.kind, given.subject) == ("resize", "/shop/a")
    assert given.action == {"memory_bytes": 80 * 2**20, "killed": False}
    assert given.reason == "ran out of 64 MiB in the pool shop: 80 MiB since then, after 2 ms"
    assert refused.action["killed"] is True
    assert "the kernel killed" in refused.reason


def test_what_cannot_be_kept_is_said_once_and_the_next_is_tried(caplog: pytest.LogCaptureFixture) -> None:
    tried = list[Decision]()

    def full(made: Decision) -> None:
        tried.append(made)
        raise StorageError("the disk is full")

    with caplog.at_level(logging.WARNING), GrantJournal(full) as journal:
        for _ in range(3):
            journal(GIVEN)
    assert len(tried) == 3
    said = [record.getMessage() for record in caplog.records if record.name.startswith("trimtab")]
    assert said == ["a grant is not in the ledger: the disk is full"]
