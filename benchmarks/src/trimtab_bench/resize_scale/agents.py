"""Many nodes at once: a real controller on one core, and simulated agents on another, over the real link.

An agent reports every 100 ms the CPU use of its containers, and notes when the controller's answer came. A
report waits for the controller's next period, so its answer is due within one; where it takes longer than
two, a period has been missed, and likewise where the controller itself began one a whole period late.
"""

import asyncio
import contextlib
import itertools
import os
import pickle
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from trimtab.kernel import LimitedGroup, NoGroupError
from trimtab.resize import PERIOD, Pool, Selector
from trimtab.resize.link.certificates import Authority
from trimtab.resize.link.client import ControllerStream
from trimtab.resize.link.joining import Membership, issue
from trimtab.resize.link.server import RunningController, serve
from trimtab.resize.link.wire import ROW, Join, Orders, Report
from trimtab_bench.harness import BenchOptions
from trimtab_bench.processes import Child, child, write_line

_POOL_SIZE = 100  # containers, on as many nodes
_PRECEDENCE = 100 * 1024  # shares of a CPU, where others have 1024
_MEMORY = 64.0 * 2**20  # bytes in use by each container


@dataclass(frozen=True, slots=True)
class AgentsPlan:
    """Agents, containers of each, and for how long."""

    agents: int
    containers: int
    settle: float  # s after the last one has come, not measured
    seconds: float  # measured
    seed: int
    memberships: tuple[Membership, ...] = ()

    @property
    def pools(self) -> int:
        """Number of pools; each holds containers of many nodes."""
        return max(1, self.agents * self.containers // _POOL_SIZE)


def link_figures(options: BenchOptions) -> dict[str, float]:
    """Periods missed by a controller on one core, and how long agents wait for its answers."""
    quick = AgentsPlan(20, 50, 1.0, 3.0, options.seed)
    plan = quick if options.quick else AgentsPlan(200, 50, 5.0, 20.0, options.seed)
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder) / "controller")
        nodes = [issue(authority, f"node{number}", "") for number in range(plan.agents)]
        with _process("controller", folder, str(plan.pools)) as controller:
            port = controller.receive()["port"]
            memberships = tuple(replace(node, address=f"127.0.0.1:{port}") for node in nodes)
            Path(folder, "plan").write_bytes(pickle.dumps(replace(plan, memberships=memberships)))
            with _process("agents", folder) as agents:
                agents.receive()
                controller.send("status")
                before = controller.receive()
                answers = np.array(agents.receive()["answers"])
                controller.send("status")
                after = controller.receive()
    late = after["late"] - before["late"]
    return {
        "missed_periods": int(late + (answers > 2 * PERIOD).sum()),
        "late_periods": int(late),
        "periods": round(plan.seconds / PERIOD),
        "agents": plan.agents,
        "agent_containers": plan.containers,
        "answers": len(answers),
        "answer_p50_ms": float(np.median(answers)) * 1e3,
        "answer_p99_ms": float(np.percentile(answers, 99)) * 1e3,
        "answer_worst_ms": float(answers.max()) * 1e3,
        "controller_cpus": (after["cpu"] - before["cpu"]) / (after["time"] - before["time"]),
    }


@contextlib.contextmanager
def _process(function: str, *arguments: str) -> Iterator[Child]:
    """A function of this module in a process of its own.

    It has precedence over others on its core, where a control group can be made for it.
    """
    call = f"from trimtab_bench.resize_scale.agents import {function}; {function}(*{arguments!r})"
    # A home of its own: a controller may run on this machine.
    with contextlib.ExitStack() as stack:
        group: LimitedGroup | None = None
        with contextlib.suppress(NoGroupError):
            group = stack.enter_context(LimitedGroup.create())
            group.weigh_cpu(_PRECEDENCE)
        started = stack.enter_context(child("-c", call, env={**os.environ, "TRIMTAB_HOME": arguments[0]}))
        if group is not None:
            group.add(started.process.pid)
        yield started


def _pin(which: int) -> None:
    """Keep this process on one core: the first or the last there is."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[which]})


def controller(folder: str, pools: str) -> None:
    """The controller's process; it answers every line with its status, and ends with its input."""

    def answer(serving: RunningController) -> None:
        write_line(port=serving.port)
        for _ in sys.stdin:
            write_line(late=serving.late, cpu=time.process_time(), time=time.monotonic())
        serving.stop()

    _pin(0)
    serve(
        [Pool(f"pool{i}", 0.5 * _POOL_SIZE, 1e12, (Selector(f"/{i}/*"),)) for i in range(int(pools))],
        lambda serving: threading.Thread(target=answer, args=(serving,), daemon=True).start(),
        Path(folder) / "controller",
        listen="127.0.0.1:0",
        join="127.0.0.1:0",
    )


def agents(folder: str) -> None:
    """The agents' process: prints when measuring begins, and at the end how long each answer took."""
    _pin(-1)
    plan: AgentsPlan = pickle.loads(Path(folder, "plan").read_bytes())  # nosec B301 # the parent wrote it
    asyncio.run(_run_agents(plan))


async def _run_agents(plan: AgentsPlan) -> None:
    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        nodes, tasks = list[_SimulatedAgent](), list[asyncio.Task[None]]()
        for number, membership in enumerate(plan.memberships):
            stream = await stack.enter_async_context(ControllerStream(membership))
            await stream.greet()
            node = _SimulatedAgent(plan, number, stream)
            nodes.append(node)
            tasks += [group.create_task(node.report()), group.create_task(node.receive())]
        await asyncio.sleep(plan.settle)
        write_line(begun=True)
        begin = time.monotonic()
        await asyncio.sleep(plan.seconds)
        end = time.monotonic()
        await asyncio.sleep(3 * PERIOD)  # for the last answers
        for task in tasks:
            task.cancel()
    now = time.monotonic()  # a report without an answer has waited until now at least
    answers = [
        answer
        for node in nodes
        for answer in (*node.answers, *((sent, now - sent) for sent in node.waiting.values()))
    ]
    write_line(answers=[seconds for sent, seconds in answers if begin <= sent < end])


class _SimulatedAgent:
    """One agent; its containers want a share of a CPU that wavers, and use as much of it as they get."""

    def __init__(self, plan: AgentsPlan, number: int, stream: ControllerStream) -> None:
        random, count = np.random.default_rng((plan.seed, number)), plan.containers
        self._wanted = random.lognormal(-1.5, 1.0, count) * random.lognormal(0.0, 0.3, (64, count))
        self._rows = np.zeros(count, ROW)
        self._rows["slot"], self._rows["memory_used"] = np.arange(count), _MEMORY
        pools = [(number * count + slot) % plan.pools for slot in range(count)]
        self._joins = tuple(Join(slot, pool, f"/{pool}/{number}-{slot}") for slot, pool in enumerate(pools))
        self._phase = PERIOD * number / plan.agents  # s: each agent reports at its own time in a period
        self._stream = stream
        self.waiting: dict[int, float] = {}  # when sent, by the number of the message without an answer
        self.answers: list[tuple[float, float]] = []  # when sent, and s to the answer

    async def report(self) -> None:
        """Send the CPU use of its containers in every period."""
        due, joins = time.monotonic() + self._phase, self._joins
        for wanted in itertools.cycle(self._wanted):
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due += PERIOD
            cpus = self._rows["cpus"]
            self._rows["used"], self._rows["throttled"] = np.minimum(wanted, cpus), wanted > cpus
            sending = self._stream.send(Report(PERIOD, self._rows, joins))
            self.waiting[self._stream.messages.sent] = time.monotonic()
            joins = ()
            await sending

    async def receive(self) -> None:
        """Apply the controller's orders, and note which reports they answer."""
        while True:
            orders = await self._stream.receive()
            now = time.monotonic()
            assert isinstance(orders, Orders)
            for name, limits in (
                ("cpus", orders.cpu_takes),
                ("cpus", orders.cpu_gives),
                ("memory", orders.memory_takes),
                ("memory", orders.memory_gives),
            ):
                self._rows[name][limits["slot"]] = limits["value"]
            answered = self._stream.messages.acknowledged
            for number in [number for number in self.waiting if number <= answered]:
                sent = self.waiting.pop(number)
                self.answers.append((sent, now - sent))
