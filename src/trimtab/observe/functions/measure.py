"""Run one function at one memory size inside a control group of its own, and say how long and with what."""

import gc
import json
import os
import resource
import select
import signal
import statistics
import time
from dataclasses import dataclass, fields
from pathlib import Path

from trimtab.kernel import LimitedGroup, die_with_parent
from trimtab.observe.functions.law import Law
from trimtab.observe.functions.segments import Run, Surroundings

_PROBE_LOOPS = 150_000


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure one size: at least `least` invocations, then until one of the others is reached."""

    least: int = 8
    most: int = 60
    seconds: float = 3.0
    ceiling: float = 30.0  # s, after which `barely` invocations have to do
    barely: int = 3


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row of the data set: a function at a size. Counts and CPU times are means per invocation."""

    environment: str
    application: str
    memory_mb: int
    cpus: float  # what the size buys
    status: str  # ok, out-of-memory, timed-out or failed
    n: int = 0
    mean_s: float = 0.0
    median_s: float = 0.0
    p95_s: float = 0.0
    p99_s: float = 0.0
    std_s: float = 0.0
    min_s: float = 0.0
    max_s: float = 0.0
    cpu_user_s: float = 0.0
    cpu_system_s: float = 0.0
    voluntary_switches: float = 0.0
    involuntary_switches: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    bytes_received: float = 0.0
    bytes_sent: float = 0.0
    memory_peak_bytes: float = 0.0
    throttled_s: float = 0.0
    throttled_periods: float = 0.0
    probe_s: float = 0.0  # a fixed piece of work just before and after, outside the group: the host's speed


COLUMNS = tuple(field.name for field in fields(Measurement))


def probe() -> float:
    """Seconds that a fixed piece of work takes now."""
    start = time.perf_counter()
    total = 0
    for number in range(_PROBE_LOOPS):
        total += number & 7
    return time.perf_counter() - start


class RunningFunction:
    """A function being measured in a forked process; `finish` waits for it and returns the row."""

    def __init__(
        self, invoke: Run, place: Surroundings, group: LimitedGroup, cpus: frozenset[int], effort: Effort
    ) -> None:
        self._group = group
        self._deadline = time.monotonic() + effort.ceiling * 2
        self._pipe, theirs = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _child(invoke, place, group, cpus, effort, theirs)
        os.close(theirs)

    def finish(self) -> dict[str, float | str]:
        """What the function's process reported, or how it ended."""
        report = b""
        while time.monotonic() < self._deadline:
            ready, _, _ = select.select([self._pipe], [], [], max(0.0, self._deadline - time.monotonic()))
            chunk = os.read(self._pipe, 65536) if ready else b""
            if not chunk:
                break
            report += chunk
        os.close(self._pipe)
        late = time.monotonic() >= self._deadline
        if late:
            self._group.kill()
        _, ended = os.waitpid(self._pid, 0)
        peak = self._group.memory_peak() or 0.0
        if report and ended == 0:
            return {**json.loads(report), "memory_peak_bytes": peak}
        if self._group.out_of_memory_kills():
            return {"status": "out-of-memory", "memory_peak_bytes": peak}
        return {"status": "timed-out" if late else "failed"}


def _child(
    invoke: Run, place: Surroundings, group: LimitedGroup, cpus: frozenset[int], effort: Effort, pipe: int
) -> None:
    """The forked process: enters the group, warms up, invokes, reports, and never returns."""
    status = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        die_with_parent(signal.SIGKILL)
        gc.freeze()
        os.sched_setaffinity(0, cpus)
        group.add(os.getpid())
        os.write(pipe, json.dumps(_invocations(invoke, place, group, effort)).encode())
        status = 0
    except MemoryError:
        os.write(pipe, json.dumps({"status": "out-of-memory"}).encode())
        status = 0
    finally:
        os._exit(status)


def _invocations(
    invoke: Run, place: Surroundings, group: LimitedGroup, effort: Effort
) -> dict[str, float | str]:
    start = time.monotonic()
    invoke()
    before, files, throttles = resource.getrusage(resource.RUSAGE_SELF), _file_bytes(), group.throttled()
    received, sent = place.received, place.sent
    begin, seconds = time.monotonic(), list[float]()
    while len(seconds) < effort.most:
        elapsed = time.monotonic() - begin
        if len(seconds) >= effort.least and elapsed > effort.seconds:
            break
        if time.monotonic() - start > effort.ceiling:
            if len(seconds) < effort.barely:
                return {"status": "timed-out"}
            break
        at = time.perf_counter()
        invoke()
        seconds.append(time.perf_counter() - at)
    after, files_after, throttles_after = (
        resource.getrusage(resource.RUSAGE_SELF),
        _file_bytes(),
        group.throttled(),
    )
    count = len(seconds)
    totals = {
        "cpu_user_s": after.ru_utime - before.ru_utime,
        "cpu_system_s": after.ru_stime - before.ru_stime,
        "voluntary_switches": after.ru_nvcsw - before.ru_nvcsw,
        "involuntary_switches": after.ru_nivcsw - before.ru_nivcsw,
        "bytes_read": files_after[0] - files[0],
        "bytes_written": files_after[1] - files[1],
        "bytes_received": place.received - received,
        "bytes_sent": place.sent - sent,
        "throttled_s": throttles_after[1] - throttles[1],
        "throttled_periods": throttles_after[0] - throttles[0],
    }
    ordered = sorted(seconds)
    return {
        "status": "ok",
        "n": count,
        "mean_s": statistics.fmean(seconds),
        "median_s": statistics.median(seconds),
        "p95_s": ordered[min(count - 1, int(0.95 * count))],
        "p99_s": ordered[min(count - 1, int(0.99 * count))],
        "std_s": statistics.pstdev(seconds),
        "min_s": ordered[0],
        "max_s": ordered[-1],
        **{name: total / count for name, total in totals.items()},
    }


def _file_bytes() -> tuple[int, int]:
    """Bytes read and written through files. `/proc/self/io` begins "rchar: 323934931", "wchar: 323929600"."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["rchar"]), int(lines["wchar"])


def row(law: Law, application: str, memory_mb: int, host_cpus: int, report: dict[str, float | str]) -> Measurement:
    """A report as a row of the data set."""
    return Measurement(law.name, application, memory_mb, law.cpus(memory_mb, host_cpus), **report)  # type: ignore[arg-type]
