"""One node's part of sizing: the cost of sampling a container, and how long containers wait for memory.

Containers are real control groups with a process in each. Those that run out of memory are measured from
within: they write page after page and note how long each few took, so a wait counts from the fault that the
kernel could not serve until the program went on.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from trimtab.core import TrimtabError
from trimtab.kernel import Hierarchy, LimitedGroup, NoGroupError
from trimtab.resize import (
    Container,
    Controller,
    Grant,
    MemorySettings,
    NodeAgent,
    NodeMembers,
    Pool,
    Selector,
    SlotLimits,
)
from trimtab_bench.harness import BenchOptions, seconds_of

MIB = 2**20
_BYSTANDERS = 50  # other containers than those that run out of memory
_TOP = 256 * MIB  # how far those grow before they give everything back
_STEP = 32 * 4096  # bytes between two looks at the clock
_LIMIT = 0.1  # CPUs of each container that is only sampled
_STIRRED = 0.05  # s until all processes have run
_TAKEN_BACK = 0.5  # s between two rounds of taking back, ten times as often as usual: more traps in less time
_PATIENCE = 300.0  # s

_CROWD = """
import json, os, signal, sys
wake = {signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, wake)
for folders in json.loads(sys.stdin.readline()):
    child = os.fork()
    while child == 0:
        signal.sigwait(wake)
    for folder in folders:
        with open(folder + "/cgroup.procs", "w") as file:
            file.write(str(child))
print("all there", flush=True)
sys.stdin.read()
os.killpg(0, signal.SIGKILL)
"""

_GROWER = """
import array, mmap, sys, time
top, step, rounds, answer = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
seen, at = array.array("d", bytes(16 * rounds * (top // step))), 0
for _ in range(rounds):
    memory = mmap.mmap(-1, top, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    for begin in range(0, top, step):
        seen[at] = time.monotonic()
        for page in range(begin, begin + step, mmap.PAGESIZE):
            memory[page] = 1
        seen[at + 1] = time.monotonic()
        at += 2
        time.sleep(0.0003)
    memory.close()
    time.sleep(0.7)
with open(answer, "wb") as file:
    seen.tofile(file)
"""


class CgroupCrowd:
    """Control groups that play containers, with the processes in them; all removed at the end."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self.groups = list[LimitedGroup]()
        self.containers = list[Container]()
        self._crowd = 0

    def __enter__(self) -> "CgroupCrowd":
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    @property
    def hierarchy(self) -> Hierarchy:
        folders = self.groups[0].folders
        return Hierarchy(self.groups[0].version, {name: each.parent for name, each in folders.items()})

    def crowd(self, count: int) -> None:
        """Add so many containers with an idle process in each."""
        groups = [self._add("crowd") for _ in range(count)]
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", _CROWD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        self._stack.enter_context(child)  # closes its input, at which it ends, and waits
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps([[str(f) for f in group.folders.values()] for group in groups]) + "\n")
        child.stdin.flush()
        if not child.stdout.readline():
            raise NoGroupError("processes cannot be moved into control groups")
        self._crowd = child.pid

    def stir(self) -> None:
        """Let all processes of the crowd run for a moment."""
        os.killpg(self._crowd, signal.SIGUSR1)
        time.sleep(_STIRRED)

    def grower(self, rounds: int, answer: Path) -> "subprocess.Popen[bytes]":
        """Add a container that runs out of memory again and again, and then writes the times of its steps."""
        group = self._add("growers")
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", _GROWER, str(_TOP), str(_STEP), str(rounds), str(answer)],
            preexec_fn=lambda: group.add(os.getpid()),
            start_new_session=True,  # Ctrl-C is ours to hear
        )
        self._stack.callback(child.wait)
        self._stack.callback(child.kill)
        return child

    def _add(self, pool: str) -> LimitedGroup:
        group = self._stack.enter_context(LimitedGroup.create())
        self.groups.append(group)
        self.containers.append(Container(f"/{next(iter(group.folders.values())).name}", {"pool": pool}))
        return group


cpu_seconds = partial(seconds_of, clock=time.thread_time)


def sample_figures(options: BenchOptions) -> dict[str, float]:
    """CPU time of sampling all containers once, by container: of those that ran since the last sample, and
    idle ones; and of the glances between two samples."""
    count, rounds = (50, 10) if options.quick else (300, 100)
    active, idle, ran, glanced = list[float](), list[float](), list[float](), list[float]()
    with CgroupCrowd() as place:
        place.crowd(count)
        controller = Controller([_pool("crowd", 2.0)])
        node = NodeMembers(controller, place.hierarchy, lambda: place.containers)
        try:
            node.rescan()
            node.set_cpus(SlotLimits(controller.slots, np.full(count, _LIMIT)))
            for _ in range(rounds):
                place.stir()
                glanced.append(cpu_seconds(lambda: node.glance(time.monotonic())) / count)
                active.append(cpu_seconds(lambda: node.sample(0.1)) / count)
                ran.append(float((controller.column("used") > 0).mean()))
                idle.append(cpu_seconds(lambda: node.sample(0.1)) / count)
        finally:
            node.release()
        reopened = [
            cpu_seconds(lambda: [(group.throttled(), group.cpu_seconds()) for group in place.groups]) / count
            for _ in range(rounds)
        ]
    return {
        "sample_us": float(np.median(active)) * 1e6,
        "sample_worst_us": max(active) * 1e6,
        "sample_ran": float(np.mean(ran)),
        "sample_idle_us": float(np.median(idle)) * 1e6,
        "glance_us": float(np.median(glanced)) * 1e6,
        "sample_containers": count,
        "sample_rounds": rounds,
        "sample_reopened_us": float(np.median(reopened)) * 1e6,
    }


def grant_figures(options: BenchOptions) -> dict[str, float]:
    """How long containers wait for memory on a node with others, measured by them and by the agent."""
    growers = max(2, min(4, len(os.sched_getaffinity(0))))
    rounds = 2 if options.quick else 20
    grants = list[tuple[float, Grant]]()
    with CgroupCrowd() as place, tempfile.TemporaryDirectory() as folder:
        place.crowd(10 if options.quick else _BYSTANDERS)
        answers = [Path(folder) / str(number) for number in range(growers)]
        children = [place.grower(rounds, answer) for answer in answers]
        agent = NodeAgent(
            # With at least a whole CPU each, growers wait for nothing but memory.
            [_pool("crowd", 2.0), _pool("growers", float(growers), cpu_floor=1.0)],
            place.hierarchy,
            lambda: place.containers,
            memory=MemorySettings(every=_TAKEN_BACK),
            notice=lambda grant: grants.append((time.monotonic(), grant)),
        )
        thread = threading.Thread(target=agent.run, name="agent")
        thread.start()
        try:
            for child in children:
                child.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            raise TrimtabError("containers that ran out of memory hang; nothing was measured") from None
        finally:
            agent.stop()
            thread.join()
        kills = sum(group.out_of_memory_kills() for group in place.groups)
        paths = [each.cgroup for each in place.containers if each.labels["pool"] == "growers"]
        waits = [
            wait
            for path, answer in zip(paths, answers, strict=True)
            for wait in felt(answer, [(at - g.seconds, at) for at, g in grants if g.path == path])
        ]
    served = [grant.seconds for _, grant in grants]
    return {
        "oom_grant_p99_ms": float(np.percentile(waits, 99)) * 1e3,
        "oom_grant_p50_ms": float(np.median(waits)) * 1e3,
        "oom_grant_worst_ms": max(waits) * 1e3,
        "oom_agent_p99_ms": float(np.percentile(served, 99)) * 1e3,
        "oom_traps": len(waits),
        "oom_kills": kills,
    }


def felt(answer: Path, grants: Sequence[tuple[float, float]]) -> list[float]:
    """Seconds of the longest step of a grower during each grant of memory, which has a begin and an end."""
    steps = np.fromfile(answer).reshape(-1, 2)
    waits = []
    for begin, end in grants:
        during = steps[(steps[:, 0] <= end) & (steps[:, 1] >= begin)]
        waits += [float(np.max(during[:, 1] - during[:, 0]))] if len(during) else []
    return waits


def _pool(name: str, cpu: float, **more: float) -> Pool:
    return Pool(name, cpu, 4.0 * 2**30, (Selector(labels={"pool": name}),), **more)  # type: ignore[arg-type]
