"""The workers of a training job on this machine: each in a control group, all in one network namespace."""

import contextlib
import math
import os
import re
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Protocol

from trimtab.collect.shapes.spec import Shape, TrainingGang
from trimtab.core import TrimtabError
from trimtab.kernel import LimitedGroup, NetworkNamespace, die_with_parent, end_groups, network_bytes

_LINE = re.compile(rb"^\s*step\s+(\d+)\s+loss\s+(\S+)(?:\s+time\s+(\d+(?:\.\d+)?))?")
_LONGEST_LINE = 2**16  # bytes; longer lines are no steps
_KEPT = 200  # characters of the last other line, for error messages


@dataclass(frozen=True, slots=True)
class Step:
    """A step that has ended: its number, its loss, and when, in seconds since the epoch."""

    number: int
    loss: float
    time: float

    @property
    def diverged(self) -> bool:
        """Whether the loss is NaN or infinite."""
        return not math.isfinite(self.loss)


@dataclass(slots=True)
class StepLines:
    """Parses steps from output as it arrives; a line without a time counts from its arrival."""

    steps: list[Step] = field(default_factory=list)
    last_words: str = ""  # the last line that is no step
    _rest: bytes = b""

    def feed(self, output: bytes) -> None:
        """Parse new output."""
        *lines, self._rest = (self._rest + output).split(b"\n")
        self._rest = self._rest[-_LONGEST_LINE:]
        for line in lines:
            match = _LINE.match(line)
            if match is None:
                self.last_words = line.decode(errors="replace").strip()[:_KEPT] or self.last_words
                continue
            try:
                loss = float(match[2])
            except ValueError:
                loss = math.nan
            self.steps.append(Step(int(match[1]), loss, float(match[3]) if match[3] else time.time()))


class MeasuredWorkers(Protocol):
    """Running workers: steps that the first one prints, and counters of all of them."""

    @property
    def lines(self) -> StepLines: ...

    def listen(self, seconds: float) -> None:
        """Read output for at most `seconds`; raises `WorkerEndedError` when a worker has ended."""
        ...

    def cpu_seconds(self) -> float:
        """CPU time of all workers so far."""
        ...

    def throttled_seconds(self) -> float:
        """Time that quotas have stopped workers so far, summed over them."""
        ...

    def memory(self) -> float:
        """Bytes that the largest worker uses."""
        ...

    def bytes_sent(self) -> float:
        """Bytes that workers have sent each other so far."""
        ...


def steps_within(workers: MeasuredWorkers, count: int, patience: float) -> bool:
    """Wait for `count` more steps; whether they were made within `patience` seconds."""
    target = len(workers.lines.steps) + count
    until = time.monotonic() + patience
    while len(workers.lines.steps) < target:
        left = until - time.monotonic()
        if left <= 0:
            return False
        workers.listen(min(left, 0.1))
    return True


_PORT = 29400  # of the first worker; the network is theirs alone
_WEIGHT = 262_144.0  # shares of a busy CPU: what else runs on the machine should not be measured
_LAST_WORDS = 4096  # bytes


class WorkerEndedError(TrimtabError):
    """A worker has ended too early; the message says how."""


class TrainingWorkers:
    """Running workers; made by `started`."""

    def __init__(
        self, groups: Sequence[LimitedGroup], children: Sequence["subprocess.Popen[bytes]"], errors: IO[bytes]
    ) -> None:
        self.lines = StepLines()
        self._groups, self._children, self._errors = groups, children, errors
        self._selector = selectors.DefaultSelector()
        output = children[0].stdout
        assert output is not None
        os.set_blocking(output.fileno(), False)
        self._output = output
        self._selector.register(output, selectors.EVENT_READ)

    def __len__(self) -> int:
        return len(self._children)

    def shape(self, shape: Shape) -> None:
        """Limit every worker to a machine of that shape."""
        for group in self._groups:
            group.limit_memory(shape.memory)
            group.limit_cpus(shape.cpus)
            group.weigh_cpu(_WEIGHT)

    def listen(self, seconds: float) -> None:
        if self._selector.select(seconds):
            with contextlib.suppress(BlockingIOError):
                while chunk := os.read(self._output.fileno(), 65536):
                    self.lines.feed(chunk)
        for rank, child in enumerate(self._children):
            if (code := child.poll()) is not None:
                raise WorkerEndedError(self._how_it_ended(rank, code))

    def cpu_seconds(self) -> float:
        return sum(group.cpu_seconds() or 0.0 for group in self._groups)

    def throttled_seconds(self) -> float:
        return sum(group.throttled()[1] for group in self._groups)

    def memory(self) -> float:
        return max(group.memory() or 0.0 for group in self._groups)

    def bytes_sent(self) -> float:
        return (network_bytes(self._children[0].pid, loopback=True) or (0.0, 0.0))[1]

    def out_of_memory(self) -> bool:
        """Whether the kernel has killed one for lack of memory."""
        return any(group.out_of_memory_kills() for group in self._groups)

    def _how_it_ended(self, rank: int, code: int) -> str:
        if code < 0:
            return f"worker {rank} was killed by {signal.Signals(-code).name}"
        if code == 0:
            return f"worker {rank} ended by itself after {len(self.lines.steps)} steps; give it more epochs"
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _LAST_WORDS))
        lines = self._errors.read().decode(errors="replace").strip().splitlines() or [self.lines.last_words]
        return f"worker {rank} ended with status {code}" + (f": {lines[-1]:.200}" if lines[-1] else "")


@contextlib.contextmanager
def started(
    gang: TrainingGang, memory: float | None = None, variables: Mapping[str, str] | None = None
) -> Iterator[TrainingWorkers]:
    """Start a gang with `memory` bytes per worker; the first worker gets `variables` too.

    Leaving the context leaves no process and no group behind; so does the death of this process, but for
    empty groups, which the next `sweep_groups` removes.
    """
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(NetworkNamespace())
        errors = stack.enter_context(tempfile.TemporaryFile())
        groups = list[LimitedGroup]()
        children = list["subprocess.Popen[bytes]"]()
        stack.callback(end_groups, children)
        for rank in range(gang.workers):
            group = stack.enter_context(LimitedGroup.create())
            if memory is not None:
                group.limit_memory(memory)
            groups.append(group)
            more = variables if rank == 0 and variables else {}
            children.append(_start(gang, rank, group, network, more, errors))
        yield TrainingWorkers(groups, children, errors)


def _start(
    gang: TrainingGang,
    rank: int,
    group: LimitedGroup,
    network: NetworkNamespace,
    variables: Mapping[str, str],
    errors: IO[bytes],
) -> "subprocess.Popen[bytes]":
    parent = os.getpid()

    def prepare() -> None:
        """In the child, before the command."""
        die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        group.add(os.getpid())
        network.enter()

    words = gang.job.words(gang.batch)
    # Python runs callbacks at a fork and ignores what is raised in them: not the moment for an interrupt.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            words,
            cwd=gang.job.folder,
            env={**os.environ, **_distributed(rank, gang.workers), **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            stderr=errors,
            process_group=0,
            preexec_fn=prepare,
        )
    except (OSError, subprocess.SubprocessError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise WorkerEndedError(f'"{words[0]}" cannot be started: {reason}') from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _distributed(rank: int, workers: int) -> dict[str, str]:
    """Environment variables of a worker, as torchrun sets them."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(workers),
        "LOCAL_WORLD_SIZE": str(workers),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_PORT),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }
