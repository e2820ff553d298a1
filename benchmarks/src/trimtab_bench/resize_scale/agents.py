"""Many nodes at once: a real controller on one core, and simulated agents on the others, over the real link.

An agent reports every 100 ms what its containers did, and notes when the controller's answer came. A report
waits for the controller's next period, so its answer is due within one; where it takes longer than two, a
period has been missed, and likewise where the controller itself began one a whole period late.

Agents use the least of HTTP/2 that a gRPC stream needs, over TLS, in one thread, so that hundreds take
little of the machine on which the controller is measured. A frame is its length (3 bytes), type, flags and
stream (4 bytes), then its content (RFC 9113, section 4.1). In DATA frames a message is a zero byte, its
length (4 bytes) and itself. Receive windows are opened wide at once, so none has to be widened later.
"""

import contextlib
import heapq
import json
import os
import pickle
import select
import socket
import ssl
import struct
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
from trimtab_bench.harness import BenchOptions

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _RESET, _SETTINGS, _PING, _GOODBYE, _WINDOW = 0, 3, 4, 6, 7, 8
_HEADERS = 1
_ACK = _END_STREAM = 0x1
_END_HEADERS = 0x4
_STREAM = 1
_WIDE = 2**30  # bytes
_INITIAL_WINDOW = 0x4  # the setting's name
_USUAL_WINDOW = 65_535  # bytes
_LARGEST = 16_384  # bytes of content in a frame
_PATIENCE = 10.0  # s to connect
_POOL_SIZE = 100  # containers, on as many nodes
_PRECEDENCE = 100 * 1024  # shares of a CPU, where others have 1024
_MEMORY = 64.0 * 2**20  # bytes in use by each


class LightStream:
    """A stream to a controller: messages out at once, messages in as far as they have come."""

    def __init__(self, membership: Membership, folder: Path, path: str) -> None:
        """`folder` is for the node's keys, which TLS reads from files; `path` names the method."""
        folder.mkdir()
        (folder / "node.pem").write_bytes(membership.certificate + membership.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # the authority signs one controller only
        context.load_verify_locations(cadata=membership.authority.decode())
        context.load_cert_chain(folder / "node.pem")
        context.set_alpn_protocols(["h2"])
        host, _, port = membership.address.rpartition(":")
        plain = socket.create_connection((host, int(port)), _PATIENCE)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = context.wrap_socket(plain)
        self._raw = bytearray()  # frames that are not whole yet
        self._body = bytearray()  # messages that are not whole yet
        self._window = {0: _USUAL_WINDOW, _STREAM: _USUAL_WINDOW}  # bytes that we may still send
        self._usual = _USUAL_WINDOW
        self._send(
            _PREFACE
            + _frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, _WIDE))
            + _frame(_WINDOW, 0, 0, struct.pack(">I", _WIDE))
            + _frame(_HEADERS, _END_HEADERS, _STREAM, _headers(path, membership.address))
        )

    def fileno(self) -> int:
        """For whoever waits."""
        return self._socket.fileno()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def do_not_wait(self) -> None:
        """From now on `hear` comes back with what is there, and be it nothing."""
        self._socket.setblocking(False)

    def send(self, message: bytes) -> None:
        """Send it."""
        content = b"\0" + struct.pack(">I", len(message)) + message
        for name in self._window:
            self._window[name] -= len(content)
        if min(self._window.values()) < 0:
            raise TrimtabError("the controller does not take what agents say")
        parts = (content[at : at + _LARGEST] for at in range(0, len(content), _LARGEST))
        self._send(b"".join(_frame(_DATA, 0, _STREAM, part) for part in parts))

    def receive(self) -> list[bytes]:
        """The messages that have come."""
        try:
            while chunk := self._socket.recv(65536):
                self._raw += chunk
                if self._socket.gettimeout() is not None and not self._socket.pending():
                    break
            else:
                raise TrimtabError("the controller has closed the stream")
        except (ssl.SSLWantReadError, BlockingIOError):
            pass
        except OSError:
            raise TrimtabError("the controller has closed the stream") from None
        self._take_frames()
        return self._messages()

    def _take_frames(self) -> None:
        at = 0
        while len(self._raw) >= at + 9:
            length = int.from_bytes(self._raw[at : at + 3], "big")
            if len(self._raw) < at + 9 + length:
                break
            kind, flags = self._raw[at + 3], self._raw[at + 4]
            stream = int.from_bytes(self._raw[at + 5 : at + 9], "big")
            self._take(kind, flags, stream, bytes(self._raw[at + 9 : at + 9 + length]))
            at += 9 + length
        del self._raw[:at]

    def _take(self, kind: int, flags: int, stream: int, content: bytes) -> None:
        if kind == _DATA:
            self._body += content
        elif kind == _SETTINGS and not flags & _ACK:
            self._set(content)
            self._send(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._send(_frame(_PING, _ACK, 0, content))
        elif kind == _WINDOW:
            self._window[stream] += int.from_bytes(content, "big")
        elif kind in (_RESET, _GOODBYE) or (kind == _HEADERS and flags & _END_STREAM):
            raise TrimtabError("the controller has closed the stream")

    def _set(self, content: bytes) -> None:
        """Apply the server's SETTINGS: its initial receive window."""
        for name, value in struct.iter_unpack(">HI", content):
            if name == _INITIAL_WINDOW:
                self._window[_STREAM] += value - self._usual
                self._usual = value

    def _messages(self) -> list[bytes]:
        found, at = [], 0
        while len(self._body) >= at + 5:
            length = int.from_bytes(self._body[at + 1 : at + 5], "big")
            if len(self._body) < at + 5 + length:
                break
            found.append(bytes(self._body[at + 5 : at + 5 + length]))
            at += 5 + length
        del self._body[:at]
        return found

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError:
            raise TrimtabError("the controller has closed the stream, or does not listen") from None


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + content


def _headers(path: str, authority: str) -> bytes:
    """The request's header fields, none of them to be remembered (RFC 7541, section 6.2.2): the usual ones by
    their number in its table, the path and so on as text."""
    return b"".join(
        (
            b"\x83\x87",  # :method POST, :scheme https
            b"\x04" + _text(path),
            b"\x01" + _text(authority),
            b"\x0f\x10" + _text("application/grpc"),  # content-type
            b"\x00" + _text("te") + _text("trailers"),
        )
    )


def _text(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


@dataclass(frozen=True, slots=True)
class AgentsPlan:
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
    plan = (
        AgentsPlan(20, 50, 1.0, 3.0, options.seed)
        if options.quick
        else AgentsPlan(200, 50, 5.0, 20.0, options.seed)
    )
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
    plan: AgentsPlan = pickle.loads(sys.stdin.buffer.read())  # nosec B301 # our own parent wrote it
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

    def __init__(self, plan: AgentsPlan, number: int, folder: Path) -> None:
        random, count = np.random.default_rng((plan.seed, number)), plan.containers
        self._wanted = random.lognormal(-1.5, 1.0, count) * random.lognormal(0.0, 0.3, (64, count))
        self._rows = np.zeros(count, ROW)
        self._rows["slot"], self._rows["memory_used"] = np.arange(count), _MEMORY
        pools = [(number * count + slot) % plan.pools for slot in range(count)]
        self._joins = tuple(Join(slot, pool, f"/{pool}/{number}-{slot}") for slot, pool in enumerate(pools))
        self._turn = 0
        self._waiting: dict[int, float] = {}  # when sent, by number: not answered yet
        self._answers: list[tuple[float, float]] = []  # when sent, and s to the answer
        self._post = MessageStream()
        self.phase = PERIOD * number / plan.agents  # s
        self.stream = LightStream(plan.memberships[number], folder / str(number), METHOD)
        self.stream.send(self._post.pack(Hello()))
        while not self._post.heard:
            for message in self.stream.receive():
                self._post.unpack(message)
        self.stream.do_not_wait()

    def report(self, now: float) -> None:
        """CPU use of its containers since the last report."""
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
        """When each report was sent, and how long its answer took; at least until now where none has come."""
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
