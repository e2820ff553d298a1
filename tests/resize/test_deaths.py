"""Any of the agent's processes are killed at once: every container keeps an agent or gets its limits back."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from waiting import until

from trimtab.kernel import (
    ContainerGroup,
    Hierarchy,
    LimitedGroup,
    ReleaseHelper,
    journal_folder,
    journals,
    processes,
    restore_orphans,
)

MIB = 2**20
SEED = 20
# Needs more and more memory, so that it is soon trapped when there is no agent.
GROW = """
import time
while True:
    held = []
    for _ in range(64):
        held.append(bytes(1 << 20).replace(b"\\0", b"1", 1))
        time.sleep(0.002)
"""
# Starts an agent for every line; a fork is quicker than an interpreter.
AGENTS = """
import os, signal, sys
from pathlib import Path
from trimtab.kernel import Hierarchy
from trimtab.resize import Container, NodeAgent, Pool, Selector
folders = {{name: Path(path) for name, path in {folders!r}.items()}}
pool = Pool("shop", 1.5, 512.0 * 2**20, (Selector("/*"),), withheld=0.8)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in iter(sys.stdin.readline, ""):
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        find = lambda: [Container(path) for path in {paths!r}]
        NodeAgent([pool], Hierarchy(1, folders), find).run()
        os._exit(0)
    print(pid, flush=True)
"""


class KilledAgents:
    """Two containers, one with limits of its own, and agents that can be killed."""

    def __init__(self, stack: ExitStack, root: LimitedGroup) -> None:
        self.groups: dict[str, ContainerGroup] = {}
        self.own: dict[str, tuple[float | None, float | None]] = {
            "/limited": (0.9, 256.0 * MIB),
            "/free": (None, None),
        }
        self._children = list["subprocess.Popen[bytes]"]()
        self._limited = list[LimitedGroup]()
        hierarchy = Hierarchy(1, root.folders)
        for path, (cpus, memory) in self.own.items():
            folders = {name: folder / path[1:] for name, folder in root.folders.items()}
            for folder in folders.values():
                folder.mkdir()
            group = LimitedGroup(1, folders)
            stack.callback(group.remove)
            self._limited.append(group)
            self.groups[path] = stack.enter_context(ContainerGroup(hierarchy, path))
            self.groups[path].limit_cpus(cpus)
            self.groups[path].limit_memory(memory)
            child = subprocess.Popen([sys.executable, "-S", "-c", GROW], preexec_fn=_entering(group))
            stack.callback(child.wait)
            stack.callback(child.kill)
            self._children.append(child)
        script = AGENTS.format(
            folders={name: str(folder) for name, folder in root.folders.items()}, paths=list(self.own)
        )
        self._agents = subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        stack.callback(self._agents.wait)
        stack.callback(self._agents.kill)
        stack.callback(self._end)
        self.agent = 0

    def start(self) -> None:
        """Start an agent, and wait until it manages both containers."""
        assert self._agents.stdin is not None
        assert self._agents.stdout is not None
        self._agents.stdin.write(b"\n")
        self._agents.stdin.flush()
        self.agent = int(self._agents.stdout.readline())
        until(self.is_managed)

    def switches(self) -> list[int]:
        return [each.pid for each in processes() if each.parent == self.agent and not each.zombie]

    def kill(self, chosen: Sequence[int]) -> None:
        """Kill some of (agent, first switch, second switch) at once."""
        switches = self.switches()
        pids = (self.agent, *switches)
        for number in chosen:
            os.kill(pids[number], signal.SIGKILL)
        if 0 in chosen:
            until(self.is_restored)
            self.agent = 0
        else:
            killed = {pids[number] for number in chosen}
            until(lambda: len(set(self.switches()) - killed) == 2 and self.is_managed())

    def is_managed(self) -> bool:
        switched_off = all(self._killer_is_off(group) for group in self.groups.values())
        return switched_off and len(self.switches()) == 2

    def is_restored(self) -> bool:
        """Every container has its own limits, its OOM killer, and does not wait for memory."""
        limits = {path: (group.cpu_limit(), group.memory_limit()) for path, group in self.groups.items()}
        return limits == self.own and all(
            "oom_kill_disable 0\nunder_oom 0" in group.read_text("memory.oom_control")
            for group in self.groups.values()
        )

    def nobody_was_killed(self) -> bool:
        killed = sum(group.out_of_memory_kills() for group in self._limited)
        return not killed and all(child.poll() is None for child in self._children)

    def _killer_is_off(self, group: ContainerGroup) -> bool:
        return "oom_kill_disable 1" in group.read_text("memory.oom_control")

    def _end(self) -> None:
        for pid in (self.agent, *(self.switches() if self.agent else ())):
            if pid:
                os.kill(pid, signal.SIGKILL)
        restore_orphans(journal_folder())


def _entering(group: LimitedGroup) -> Callable[[], None]:
    return lambda: group.add(os.getpid())


@pytest.fixture
def place(new_group: Callable[..., LimitedGroup]) -> Iterator[KilledAgents]:
    with ExitStack() as stack:
        yield KilledAgents(stack, new_group(version=1))


@pytest.fixture
def helper(tmp_path: Path) -> None:
    """Skips where the kernel cannot start a program for us."""
    helper = ReleaseHelper.create(tmp_path / "journal.json")
    if helper is None:
        pytest.skip("needs root and CAP_SYS_ADMIN in the machine's own namespaces")
    helper.remove()


ALL = tuple(
    subset for count in (1, 2, 3) for subset in itertools.combinations(range(3), count)
)  # of agent and switches


@pytest.mark.usefixtures("helper")
@pytest.mark.parametrize("chosen", [(0, 1), (0, 1, 2)], ids=["agent and switch", "all"])
def test_when_they_are_killed_together_all_limits_come_back(
    place: KilledAgents, chosen: Sequence[int]
) -> None:
    place.start()
    place.kill(chosen)
    assert place.nobody_was_killed()
    until(lambda: journals(journal_folder()) == [])


@pytest.mark.usefixtures("helper")
@pytest.mark.second_tier
def test_a_hundred_times_any_of_them_are_killed_at_once(place: KilledAgents) -> None:
    chance = random.Random(SEED)
    for _ in range(100):
        if not place.agent:
            place.start()
        time.sleep(chance.random() * 0.1)
        place.kill(chance.choice(ALL))
        assert place.nobody_was_killed()


@pytest.mark.usefixtures("helper")
def test_both_switches_die_while_the_agent_is_suspended(place: KilledAgents) -> None:
    place.start()
    switches = place.switches()
    os.kill(place.agent, signal.SIGSTOP)
    for pid in switches:
        os.kill(pid, signal.SIGKILL)
    until(place.is_restored)
    os.kill(place.agent, signal.SIGCONT)
    until(place.is_managed)
    assert place.nobody_was_killed()


def test_the_next_agent_restores_what_the_last_one_left(place: KilledAgents) -> None:
    place.start()
    (journal,) = [path for path, _ in journals(journal_folder())]
    left = json.loads(journal.read_text())
    place.kill([0])
    squeezed = place.groups["/limited"]
    squeezed.limit_cpus(0.05)
    squeezed.write_text("memory.oom_control", "1")
    journal.write_text(json.dumps(left))  # as if its switches had been killed, too
    place.start()
    until(lambda: not journal.exists())
    (current,) = [path for path, _ in journals(journal_folder())]
    recorded = {
        entry["path"]: (entry["cpus"], entry["memory"]) for entry in json.loads(current.read_text())["limits"]
    }
    assert recorded == place.own
