"""One function at one size, in a process of its own that rests until it is given a turn."""

import contextlib
import errno
import gc
import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from trimtab.collect.functions.child import child
from trimtab.collect.functions.measurement import Turn, Usage
from trimtab.collect.functions.neighbours import Neighbours
from trimtab.collect.functions.segments import Run, Surroundings
from trimtab.core import StorageError
from trimtab.kernel import LimitedGroup

_GOLDEN = 0.618034  # multiples of it, without their whole parts, fill 0 to 1 evenly
_GAP = 0.001  # s between two looks at the clock: more than that, and somebody else ran
_DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


@dataclass(frozen=True, slots=True)
class Function:
    """What a function's process is made of: what it runs, where, and beside whom."""

    invoke: Run
    place: Surroundings
    group: LimitedGroup
    cpus: frozenset[int]
    head_start: float  # CPU seconds that its group, rested, gets before it feels its limit
    neighbours: Neighbours | None = None


@dataclass(slots=True)
class RunningFunction:
    """A function's process as its lane sees it: turns are given, and add up."""

    group: LimitedGroup
    pid: int
    pipe: Connection
    turns: list[Turn] = field(default_factory=list)
    spent: float = 0.0  # s, given to it in all
    ended: str = ""  # out-of-memory, timed-out or failed, once it can go on no more
    _since: float = 0.0

    @property
    def invocations(self) -> int:
        """How many have been measured."""
        return sum(len(turn.durations) for turn in self.turns)

    @property
    def seconds(self) -> float:
        """How long they took together."""
        return sum(sum(turn.durations) for turn in self.turns)

    @property
    def usual(self) -> float:
        """Seconds an invocation took in the last turn, on average."""
        durations = self.turns[-1].durations if self.turns else ()
        return sum(durations) / len(durations) if durations else 0.0

    def begin_turn(self, seconds: float) -> None:
        """Let it invoke for at least so long, and at least once."""
        self._since = time.monotonic()
        with contextlib.suppress(OSError):  # it has died: the end of the turn will show
            self.pipe.send(seconds)

    def end_turn(self, patience: float) -> None:
        """Wait until it rests again; who takes longer than `patience` seconds is ended."""
        answer: Turn | str | None = None
        try:
            if self.pipe.poll(max(0.0, patience)):
                answer = self.pipe.recv()
            else:
                self.group.kill()
                answer = "timed-out"
        except (EOFError, OSError):
            answer = "out-of-memory" if self.group.out_of_memory_kills() else "failed"
        self.spent += time.monotonic() - self._since
        if isinstance(answer, Turn):
            self.turns.append(answer)
        elif answer == "disk":
            raise StorageError("the disk of the temporary folder is full; name another folder with TMPDIR")
        else:
            self.ended = str(answer)


@contextlib.contextmanager
def running(function: Function) -> Iterator[RunningFunction]:
    """The function in a forked process inside its group, ended with the context or with this process."""
    ours, theirs = Pipe()
    with ours, child(lambda: _live(function, theirs)) as pid:
        theirs.close()
        function.group.add(pid)
        yield RunningFunction(function.group, pid, ours)


def _live(function: Function, pipe: Connection) -> None:
    """The forked process: a turn for every number of seconds it receives."""
    gc.freeze()
    os.sched_setaffinity(0, function.cpus)
    phase = 0.0
    try:
        while True:
            seconds = pipe.recv()
            phase = (phase + _GOLDEN) % 1
            pipe.send(_turn(function, seconds, phase))
    except MemoryError:
        pipe.send("out-of-memory")
    except OSError as error:
        pipe.send("disk" if error.errno in _DISK_IS_FULL else "failed")
    except Exception:
        pipe.send("failed")


def _turn(function: Function, seconds: float, phase: float) -> Turn:
    """Invoke for at least so long and at least once.

    A group that has rested has a head start, which would make short turns look fast: it is spent first. Among
    invocations that never stop each begins anywhere between two throttlings: so a part of the next quota,
    `phase`, is spent too, with no system call between it and the first invocation.
    """
    if function.neighbours:
        function.neighbours.wake()
    try:
        _spend(function.head_start)
        counters = _counters(function)
        used, durations = _used(), list[float]()
        spent = _spend(phase * function.head_start)
        begin = now = time.perf_counter()
        while not durations or now < begin + seconds:
            function.invoke()
            at, now = now, time.perf_counter()
            durations.append(now - at)
        used_then = _used()  # inside of the counters, whose reading takes CPU too
        usage = Usage(*used_then, *_counters(function)) - Usage(*used, *counters)
        return Turn(tuple(durations), replace(usage, cpu_user_s=max(0.0, usage.cpu_user_s - spent)))
    finally:
        if function.neighbours:  # here rather than by the lane, which would wait for a CPU behind them
            function.neighbours.rest()


def _spend(seconds: float) -> float:
    """Use so much CPU time, and say how much it was.

    The clock of CPU time is a system call, at which the kernel looks whether a quota has run out; in an
    invocation it looks at its ticks only. So gaps in the other clock are left out instead.
    """
    spent, now = 0.0, time.perf_counter()
    while spent < seconds:
        before, now = now, time.perf_counter()
        spent += min(now - before, _GAP)
    return spent


def _used() -> tuple[float, float, float, float]:
    """CPU seconds of the user and the system, switches of the process's own will and against it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime, used.ru_stime, used.ru_nvcsw, used.ru_nivcsw


def _counters(function: Function) -> tuple[float, float, float, float, float, float, float]:
    """Bytes read, written, received and sent, seconds and periods throttled, seconds waiting for a CPU.

    `/proc/self/io` begins "rchar: 323934931", "wchar: 323929600": bytes through files, pipes and the like.
    `/proc/self/schedstat` is "98676 145199 2": nanoseconds on a CPU and waiting for one, and how often.
    """
    files = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    periods, throttled = function.group.throttled()
    waiting = int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    place = function.place
    moved = float(files["rchar"]), float(files["wchar"]), place.received, place.sent
    return *moved, throttled, periods, waiting
