"""Measures one application at all sizes in turns, each as a function in a control group of its own."""

import contextlib
import errno
import gc
import os
import resource
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from trimtab.collect.functions.applications import Application, Run, Surroundings
from trimtab.collect.functions.law import Law
from trimtab.collect.functions.measurements import Invocations, Measurement, Usage, statistics_of
from trimtab.collect.functions.surroundings import (
    Neighbours,
    child,
    files_of_functions,
    neighbours_on,
    own_folder,
)
from trimtab.core import StorageError
from trimtab.kernel import LimitedGroup
from trimtab.observe import HostSpeed


@dataclass(frozen=True, slots=True)
class Effort:
    """At least `least` invocations of each size and `seconds` of them, in turns of `turn` seconds or longer.

    Hosts are faster at one time than at another. So sizes take short turns, the one that is least complete
    next: every size's invocations are spread evenly over the same time, and the host's speed cancels out of
    the ratios between sizes.
    """

    least: int = 8
    seconds: float = 3.0
    turn: float = 0.05  # s; longer where an invocation is, or where the law says so
    ceiling: float = 30.0  # s of one size, its warm-up included, after which `barely` invocations have to do
    barely: int = 3

    def progress(self, invocations: int, seconds: float, spent: float) -> float:
        """The part of a measurement that is done; `spent` are all its seconds, the warm-up included."""
        return max(min(invocations / self.least, seconds / self.seconds), spent / self.ceiling)


_GOLDEN = 0.618034  # multiples of it, without their whole parts, fill 0 to 1 evenly
_GAP = 0.001  # s between two looks at the clock: more than that, and somebody else ran
_DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


@dataclass(frozen=True, slots=True)
class Function:
    """The parts of a function's process: its code, surroundings, group and neighbours."""

    invoke: Run
    place: Surroundings
    group: LimitedGroup
    cpus: frozenset[int]
    head_start: float  # CPU seconds that its group, rested, gets before it feels its limit
    neighbours: Neighbours | None = None


@dataclass(slots=True)
class RunningFunction:
    """A function's process, and the turns that it has had."""

    group: LimitedGroup
    pid: int
    pipe: Connection
    turns: list[Invocations] = field(default_factory=list)
    spent: float = 0.0  # s of all its turns
    ended: str = ""  # out-of-memory, timed-out or failed, once it cannot go on
    _since: float = 0.0

    @property
    def invocations(self) -> int:
        """Measured invocations."""
        return sum(len(turn.durations) for turn in self.turns)

    @property
    def seconds(self) -> float:
        """Duration of all measured invocations."""
        return sum(sum(turn.durations) for turn in self.turns)

    @property
    def usual(self) -> float:
        """Mean duration of an invocation in the last turn."""
        durations = self.turns[-1].durations if self.turns else ()
        return sum(durations) / len(durations) if durations else 0.0

    def begin_turn(self, seconds: float) -> None:
        """Let it invoke for at least `seconds`, and at least once."""
        self._since = time.monotonic()
        with contextlib.suppress(OSError):  # it has died, which `end_turn` notices
            self.pipe.send(seconds)

    def end_turn(self, patience: float) -> None:
        """Wait until it rests again; a function that takes longer than `patience` seconds is ended."""
        answer: Invocations | str | None = None
        try:
            if self.pipe.poll(max(0.0, patience)):
                answer = self.pipe.recv()
            else:
                self.group.kill()
                answer = "timed-out"
        except (EOFError, OSError):
            answer = "out-of-memory" if self.group.out_of_memory_kills() else "failed"
        self.spent += time.monotonic() - self._since
        if isinstance(answer, Invocations):
            self.turns.append(answer)
        elif answer == "disk":
            raise StorageError("the disk of the temporary folder is full; name another folder with TMPDIR")
        else:
            self.ended = str(answer)


@contextlib.contextmanager
def running(function: Function) -> Iterator[RunningFunction]:
    """The function in a forked process inside its group, ended with the context or with this process."""
    parent_end, child_end = Pipe()
    with parent_end, child(lambda: _live(function, child_end)) as pid:
        child_end.close()
        function.group.add(pid)
        yield RunningFunction(function.group, pid, parent_end)


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


def _turn(function: Function, seconds: float, phase: float) -> Invocations:
    """Invoke for at least `seconds`, and at least once.

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
        return Invocations(tuple(durations), replace(usage, cpu_user_s=max(0.0, usage.cpu_user_s - spent)))
    finally:
        if function.neighbours:  # not by the lane, which would wait for a CPU behind them
            function.neighbours.rest()


def _spend(seconds: float) -> float:
    """Use `seconds` of CPU time; the amount that was used.

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


# Sizes that need so little CPU together share a turn on one CPU: each still gets its quota in every period.
_SIDE_BY_SIDE = 0.6
_PATIENCE = 2  # times the effort's ceiling, after which a function is ended in the middle of an invocation


@dataclass(slots=True)
class _SizedFunction:
    """A memory size, its process, its least turn, and the host's speed before each of its turns."""

    memory_mb: int
    running: RunningFunction
    least_turn: float  # s
    probes: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FunctionLane:
    """Measures functions on some CPUs; `server` is the address that they call."""

    cpus: tuple[int, ...]
    server: str
    effort: Effort

    def measure(self, application: Application, law: Law, sizes: Sequence[int]) -> list[Measurement]:
        """A row for every size."""
        os.sched_setaffinity(0, self.cpus)
        with contextlib.ExitStack() as stack:
            place = Surroundings(stack.enter_context(own_folder()), self.server)
            with files_of_functions():
                invoke = application.prepare(place)
            neighbours = stack.enter_context(neighbours_on(self.cpus)) if law.crowded else None
            batches = list[list[_SizedFunction]]()
            for batch in self._batches(law, sizes):
                cpus = frozenset(self.cpus[:1] if len(batch) > 1 else self.cpus)
                batches.append([])
                for size in batch:
                    group = stack.enter_context(LimitedGroup.create())
                    law.limit(size, len(self.cpus), group)
                    head_start = law.head_start(size, len(self.cpus))
                    process = running(Function(invoke, place, group, cpus, head_start, neighbours))
                    least_turn = max(self.effort.turn, law.least_turn(size, len(self.cpus)))
                    batches[-1].append(_SizedFunction(size, stack.enter_context(process), least_turn))
            host = HostSpeed()
            for functions in batches:
                self._turn(functions, law, neighbours, host)
                for function in functions:  # this was the warm-up, which does not count
                    function.running.turns.clear()
            while self._progress(functions := min(batches, key=self._progress)) < 1:
                self._turn(functions, law, neighbours, host)
            everything = [function for functions in batches for function in functions]
            rows = {function.memory_mb: self._row(application, law, function) for function in everything}
            return [rows[size] for size in sizes]

    def _batches(self, law: Law, sizes: Sequence[int]) -> list[tuple[int, ...]]:
        """Sizes that take their turns together: small quotas do, every other size is alone."""
        together, load = list[int](), 0.0
        for size in sorted(sizes):
            load += law.cpus(size, len(self.cpus))
            if law.crowded or load > _SIDE_BY_SIDE:
                break
            together.append(size)
        batches = [tuple(together), *((size,) for size in sizes if size not in together)]
        return [batch for batch in batches if batch]

    def _progress(self, batch: list[_SizedFunction]) -> float:
        """Progress of the least complete one."""
        active = [function.running for function in batch if not function.running.ended]
        progress = self.effort.progress
        return min((progress(run.invocations, run.seconds, run.spent) for run in active), default=1.0)

    def _turn(
        self, batch: list[_SizedFunction], law: Law, neighbours: Neighbours | None, host: HostSpeed
    ) -> None:
        """A turn together: at least as long as an invocation of the slowest takes."""
        speed = host.probe()
        active = [function for function in batch if not function.running.ended]
        seconds = max(max(function.least_turn, function.running.usual) for function in active)
        if neighbours:
            law.crowd(active[0].memory_mb, neighbours.group)
        deadline = time.monotonic() + _PATIENCE * self.effort.ceiling
        for function in active:
            function.running.begin_turn(seconds)
        for function in active:
            function.running.end_turn(deadline - time.monotonic())
            function.probes.append(speed)
        if neighbours:  # also when a function died before it could send them to rest
            neighbours.rest()

    def _row(self, application: Application, law: Law, function: _SizedFunction) -> Measurement:
        running, size = function.running, function.memory_mb
        enough = running.invocations >= min(self.effort.barely, self.effort.least)
        status = running.ended or ("ok" if enough else "timed-out")
        return Measurement(
            environment=law.name,
            application=application.name,
            memory_mb=size,
            cpus=law.cpus(size, len(self.cpus)),
            status=status,
            n=running.invocations if status == "ok" else 0,
            memory_peak_bytes=running.group.memory_peak() or 0.0,
            probe_s=statistics.fmean(function.probes),
            **(statistics_of(running.turns) if status == "ok" else {}),
        )
