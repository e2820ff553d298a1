"""Containers for the resize agent: control groups with limits, watched while its processes are killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.core import MIB, TrimtabError
from trimtab.kernel import ContainerGroup, Hierarchy, LimitedGroup, NoGroupError, die_with_parent, mounted

COUNT = 3
CPUS = 0.5
MEMORY = 192.0 * MIB
_POOL_CPUS = 0.8  # of all together: less than the sum of their own limits
_POOL_MEMORY = 400.0 * MIB
RESTORED_WITHIN = 3.0
"""Seconds after a death in which every container must have its limits and a killer again."""
_STARTED_WITHIN = 15.0  # s in which a new agent must have limited every container
_NEAR = 0.01

# Grows by steps and begins again: an agent that has taken unused memory away must give it back.
_WAVES = """
import random, time
dice = random.Random({seed})
while True:
    most, held = dice.randrange(16, 96), []
    for _ in range(most):
        held.append(bytes(1 << 20).replace(b"\\0", b"1", 1))
        time.sleep(0.02)
    time.sleep(dice.random())
"""


@dataclass(slots=True)
class ChaosContainer:
    """A group with its own limits, and a process in it that needs memory in waves."""

    path: str  # below the root of the hierarchy
    group: LimitedGroup
    seed: int
    process: "subprocess.Popen[bytes] | None" = None
    trapped_since: float | None = None
    reported: bool = False  # since the last death

    def keep_running(self) -> int:
        """Start its process if there is none; 1 if it had died."""
        if self.process is not None and self.process.poll() is None:
            return 0
        died = self.process is not None

        def enter() -> None:
            die_with_parent(signal.SIGKILL)
            self.group.add(os.getpid())

        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WAVES.format(seed=self.seed)],
            preexec_fn=enter,
            start_new_session=True,
        )
        return int(died)


@dataclass(slots=True)
class ContainerWatch:
    """Checks that no container is left without limits, or asleep without a killer.

    Without a running agent, `RESTORED_WITHIN` seconds after the last death or stop every container must have
    the limits it began with, and its killer. With one, it must have limits, and not stay out of memory.
    """

    containers: list[ChaosContainer]
    hierarchy: Hierarchy
    deaths: int = 0  # of processes in containers
    managed: int = 0  # looks at a container that the agent had taken the killer from
    orphans: list[dict[str, Any]] = field(default_factory=list)
    _changed: float = field(default_factory=time.monotonic)

    def agent_changed(self) -> None:
        """A process of the agent was started, killed, stopped or continued."""
        self._changed = time.monotonic()
        for container in self.containers:
            container.reported = False

    def look(self, agent_works: bool) -> None:
        now = time.monotonic()
        for container in self.containers:
            self.deaths += container.keep_running()
            problem = self._problem(container, now, agent_works)
            if problem and not container.reported:
                container.reported = True
                since = round(now - self._changed, 2)
                self.orphans.append({"container": container.path, "problem": problem, "after_s": since})

    def last_look(self) -> None:
        """Look once more after the agent was ended in order."""
        self.agent_changed()
        time.sleep(RESTORED_WITHIN)
        self.look(agent_works=False)

    def _problem(self, container: ChaosContainer, now: float, agent_works: bool) -> str:
        with ContainerGroup(self.hierarchy, container.path) as group:
            cpus, memory = group.cpu_limit(), group.memory_limit()
            oom = dict(line.split() for line in group.read_text("memory.oom_control").splitlines())
        trapped, killer = oom["under_oom"] == "1", oom["oom_kill_disable"] == "0"
        self.managed += not killer
        if not trapped or killer:
            container.trapped_since = None
        elif container.trapped_since is None:
            container.trapped_since = now
        if container.trapped_since is not None and now - container.trapped_since > RESTORED_WITHIN:
            return f"out of memory for {now - container.trapped_since:.1f} s without a killer"
        if agent_works:
            if now < self._changed + _STARTED_WITHIN:
                return ""
            return "no limit" if cpus is None or memory is None else ""
        if now < self._changed + RESTORED_WITHIN:
            return ""
        if not killer:
            return "no killer"
        if not _equal(cpus, CPUS) or not _equal(memory, MEMORY):
            return f"limits are {cpus} CPUs and {memory} bytes, not {CPUS} and {MEMORY:.0f}"
        return ""


def _equal(value: float | None, wanted: float) -> bool:
    return value is not None and abs(value / wanted - 1) < _NEAR


def pools_file(name: str) -> str:
    """The file of pools that selects the containers of a group."""
    return (
        f"pools:\n  - name: chaos\n    cpu: {_POOL_CPUS}\n    memory: {_POOL_MEMORY:.0f}\n"
        f"    select: [{{cgroup: /{name}/*}}]\n"
    )


@contextlib.contextmanager
def chaos_containers(name: str, seed: int) -> Iterator[ContainerWatch]:
    """Containers below a group of this name, removed when the context ends."""
    hierarchy = mounted()
    if hierarchy is None or hierarchy.version != 1:
        raise NoGroupError(
            "the containers of this bench need control groups of version 1, mounted for writing"
        )
    with contextlib.ExitStack() as stack:
        top = stack.enter_context(LimitedGroup.create(hierarchy, name))
        containers = list[ChaosContainer]()
        for number in range(COUNT):
            below = Hierarchy(hierarchy.version, top.folders)
            group = stack.enter_context(LimitedGroup.create(below, f"c{number}"))
            group.limit_cpus(CPUS)
            group.limit_memory(MEMORY)
            containers.append(ChaosContainer(f"/{name}/c{number}", group, seed + number))
        try:
            yield ContainerWatch(containers, hierarchy)
        finally:
            for container in containers:
                with contextlib.suppress(TrimtabError), ContainerGroup(hierarchy, container.path) as files:
                    files.write_text("memory.oom_control", "0")  # wakes a process that waits for memory
                container.group.kill()
                if container.process is not None:
                    container.process.wait()


def sweep_containers(name: str) -> None:
    """Remove the group of a run that was killed."""
    hierarchy = mounted()
    if hierarchy is not None:
        for path in (*(f"{name}/c{number}" for number in range(COUNT)), name):
            folders = {key: Path(folder) / path for key, folder in hierarchy.folders.items()}
            LimitedGroup(hierarchy.version, folders).remove()
