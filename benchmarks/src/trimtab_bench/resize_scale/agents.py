"""Many nodes at once: a real controller on one core, and simulated agents that speak to it over the real
link from the others.

An agent says every 100 ms what its containers did, and notes when the controller's answer to that came. A
report waits for the controller's next period, so its answer is due within one; where it takes longer than
two, a period has been missed, and likewise where the controller itself began one a whole period late.
"""

import contextlib
import heapq
import json
import os
import pickle
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.core import TrimtabError
from trimtab.kernel import LimitedGroup, NoGroupError
from trimtab.resize import PERIOD, Pool, Selector
from trimtab.resize.link.certificates import Authority
from trimtab.resize.link.joining import Membership, issue
from trimtab.resize.link.server import RunningController, serve
from trimtab.resize.link.wire import METHOD, ROW, Hello, Join, MessageStream, Orders, Report
from trimtab_bench.options import BenchOptions
from trimtab_bench.resize_scale.light_stream import LightStream

_POOL_SIZE = 100  # containers, on as many nodes
_PRECEDENCE = 100 * 1024  # shares of a CPU, where others have 1024
_MEMORY = 64.0 * 2**20  # bytes in use by each


@dataclass(frozen=True, slots=True)
class Plan:
    """How many agents with how many containers each, and for how long."""

    agents: int
    containers: int
    settle: float  # s after the last one has come, not measured
    seconds: float  # measured
    seed: int
    memberships: tuple[Membership, ...] = ()

    @property
    def pools(self) -> int:
        """Each holds containers of many nodes."""
        return max(1, self.agents * self.containers // _POOL_SIZE)


def link_figures(options: BenchOptions) -> dict[str, float]:
    """Periods missed by a controller on one core, and how long agents wait for its answers."""
    plan = Plan(20, 50, 1.0, 3.0, options.seed) if options.quick else Plan(200, 50, 5.0, 20.0, options.seed)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        authority = Authority(Path(folder) / "controller")
        nodes = [issue(authority, f"node{number}", "") for number in range(plan.agents)]
        controller = stack.enter_context(_process("controller", folder, str(plan.pools)))
        port = _answer(controller)["port"]
        agents = stack.enter_context(_process("agents", folder))
        assert agents.stdin is not None
        memberships = tuple(replace(node, address=f"127.0.0.1:{port}") for node in nodes)
        agents.stdin.write(pickle.dumps(replace(plan, memberships=memberships)))
        agents.stdin.close()
        _answer(agents)
        before = _asked(controller)
        answers = np.array(_answer(agents)["answers"])
        after = _asked(controller)
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


def controller(folder: str, pools: str) -> None:
    """The controller's process; it answers every line with how it does, and ends with its input."""

    def talk(serving: RunningController) -> None:
        _say(port=serving.port)
        for _ in sys.stdin:
            _say(late=serving.late, cpu=time.process_time(), time=time.monotonic())
        serving.stop()

    _pin(0)
    serve(
        [Pool(f"pool{i}", 0.5 * _POOL_SIZE, 1e12, (Selector(f"/{i}/*"),)) for i in range(int(pools))],
        lambda serving: threading.Thread(target=talk, args=(serving,), daemon=True).start(),
        Path(folder) / "controller",
        listen="127.0.0.1:0",
        join="127.0.0.1:0",
    )


def agents(folder: str) -> None:
    """The agents' process: says when measuring begins, and at the end how long each answer took."""
    _pin(-1)
    plan: Plan = pickle.loads(sys.stdin.buffer.read())  # nosec B301 # our own parent wrote it
    round_ = _Round()
    nodes = []
    for number in range(plan.agents):
        nodes.append(_Node(plan, number, Path(folder)))
        round_.add(nodes[-1])
        round_.until(time.monotonic())
    round_.until(time.monotonic() + plan.settle)
    _say(begun=True)
    begin = time.monotonic()
    round_.until(begin + plan.seconds)
    end = time.monotonic()
    round_.until(end + 3 * PERIOD)  # for the last answers
    answers = [answer for node in nodes for answer in node.all_answers()]
    _say(answers=[seconds for message_count, seconds in answers if begin <= message_count < end])


class _Round:
    """All agents in one thread: whose turn it is reports, and who is spoken to hears."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._nodes: dict[int, _Node] = {}
        self._due: list[tuple[float, int]] = []  # when whose turn is

    def add(self, node: "_Node") -> None:
        """It takes part from now on, each at a time of its own within the period."""
        self._nodes[node.stream.fileno()] = node
        self._poll.register(node.stream.fileno(), select.EPOLLIN)
        heapq.heappush(self._due, (time.monotonic() + node.phase, node.stream.fileno()))

    def until(self, end: float) -> None:
        """Go on until that time, and be it only once."""
        while True:
            self._report_who_is_due()
            left = min(end, self._due[0][0]) - time.monotonic()
            for file, _ in self._poll.poll(max(0.0, left)):
                self._nodes[file].receive()
                self._report_who_is_due()
            if time.monotonic() >= end:
                return

    def _report_who_is_due(self) -> None:
        while (now := time.monotonic()) >= self._due[0][0]:
            due, file = self._due[0]
            self._nodes[file].report(now)
            heapq.heapreplace(self._due, (due + PERIOD, file))


class _Node:
    """One agent; its containers want a share of a CPU that wavers, and use as much of it as they get."""

    def __init__(self, plan: Plan, number: int, folder: Path) -> None:
        random, count = np.random.default_rng((plan.seed, number)), plan.containers
        self._wanted = random.lognormal(-1.5, 1.0, count) * random.lognormal(0.0, 0.3, (64, count))
        self._rows = np.zeros(count, ROW)
        self._rows["slot"], self._rows["memory_used"] = np.arange(count), _MEMORY
        pools = [(number * count + slot) % plan.pools for slot in range(count)]
        self._joins = tuple(Join(slot, pool, f"/{pool}/{number}-{slot}") for slot, pool in enumerate(pools))
        self._turn = 0
        self._waiting: dict[int, float] = {}  # when said, by number: not answered yet
        self._answers: list[tuple[float, float]] = []  # when said, and s to the answer
        self._post = MessageStream()
        self.phase = PERIOD * number / plan.agents  # s
        self.stream = LightStream(plan.memberships[number], folder / str(number), METHOD)
        self.stream.send(self._post.pack(Hello()))
        while not self._post.heard:
            for message in self.stream.receive():
                self._post.unpack(message)
        self.stream.do_not_wait()

    def report(self, now: float) -> None:
        """What its containers did since the last time."""
        wanted, cpus = self._wanted[self._turn % len(self._wanted)], self._rows["cpus"]
        self._rows["used"], self._rows["throttled"] = np.minimum(wanted, cpus), wanted > cpus
        joins = () if self._turn else self._joins
        self.stream.send(self._post.pack(Report(PERIOD, self._rows, joins)))
        self._waiting[self._post.sent] = now
        self._turn += 1

    def receive(self) -> None:
        """Do as the controller says, and note whom it answers."""
        for message in self.stream.receive():
            now, orders = time.monotonic(), self._post.unpack(message)
            assert isinstance(orders, Orders)
            for name, limits in (("cpus", orders.cpu_takes), ("cpus", orders.cpu_gives)):
                self._rows[name][limits["slot"]] = limits["value"]
            for name, limits in (("memory", orders.memory_takes), ("memory", orders.memory_gives)):
                self._rows[name][limits["slot"]] = limits["value"]
            for number in [number for number in self._waiting if number <= self._post.acknowledged]:
                message_count = self._waiting.pop(number)
                self._answers.append((message_count, now - message_count))

    def all_answers(self) -> list[tuple[float, float]]:
        """When each report was said, and how long its answer took; at least until now where none has come."""
        now = time.monotonic()
        return self._answers + [
            (message_count, now - message_count) for message_count in self._waiting.values()
        ]


@contextlib.contextmanager
def _process(function: str, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """One of the functions above in a process of its own, ended with the context.

    It has precedence over what else runs on its core, where a control group can be made to say so.
    """
    call = f"from trimtab_bench.resize_scale.agents import {function}; {function}(*{arguments!r})"
    with contextlib.ExitStack() as stack:
        group = None
        with contextlib.suppress(NoGroupError):
            group = stack.enter_context(LimitedGroup.create())
            group.weigh_cpu(_PRECEDENCE)
        child = subprocess.Popen(
            [sys.executable, "-c", call],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TRIMTAB_HOME": arguments[0]},  # not that of a controller that may run here
            preexec_fn=lambda: group.add(os.getpid()) if group else None,
            start_new_session=True,  # Ctrl-C is ours to hear
        )
        stack.enter_context(child)  # closes its pipes and waits
        stack.callback(child.kill)
        yield child


def _asked(child: "subprocess.Popen[bytes]") -> dict[str, Any]:
    assert child.stdin is not None
    child.stdin.write(b"\n")
    child.stdin.flush()
    return _answer(child)


def _answer(child: "subprocess.Popen[bytes]") -> dict[str, Any]:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise TrimtabError("the controller or its agents died; nothing was measured")
    answer: dict[str, Any] = json.loads(line)
    return answer


def _say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def _pin(which: int) -> None:
    """This process on one core: the first or the last there is."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[which]})
