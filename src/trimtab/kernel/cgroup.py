"""Names and formats of the files of a control group in cgroup v1 and v2.

The rest of Trimtab uses CPUs, seconds and bytes. `codec(version)` serves either version; `V1` and `V2` name
files that only one of them has.
"""

import os
from typing import NamedTuple

PROCS = "cgroup.procs"
"""Processes of the group, a pid per line, 0 for one of another pid namespace; writing a pid moves it here."""

NO_QUOTA = -1
USUAL_PERIOD = 100_000  # microseconds
_LEAST_QUOTA = 1000  # microseconds; the kernel refuses less
_UNLIMITED = 2**60  # bytes; v1 writes "no limit" as the largest multiple of the page size below 2^63
_NOISE = 1e-6  # microseconds; 0.29 CPUs of 100000 are 29000, not one less
_NO_PERIODS = (b"0", b"nr_throttled", b"0")


class CpuCounters(NamedTuple):
    """Counters of a group since it was made."""

    used: float  # CPU s
    periods: int  # in which it ran under a quota
    throttled: int  # periods in which the quota ran out


class V1:
    """Version 1: a folder per controller, and every file's name begins with its controller's."""

    version = 1
    cpu_usage = "cpuacct.usage"  # CPU time of all processes, including ended ones
    cpu_stat = "cpu.stat"  # throttled periods
    cpu_quota = "cpu.cfs_quota_us"  # microseconds per period
    cpu_period = "cpu.cfs_period_us"
    cpu_burst = "cpu.cfs_burst_us"  # microseconds saved up at most; Linux 5.14 or later
    cpu_weight = "cpu.shares"  # part of a busy CPU
    memory_usage = "memory.usage_in_bytes"  # bytes charged, file cache included
    memory_peak = "memory.max_usage_in_bytes"
    memory_limit = "memory.limit_in_bytes"
    memory_and_swap_limit = "memory.memsw.limit_in_bytes"  # >= memory_limit; not on every kernel
    memory_stat = "memory.stat"
    inactive_file = "total_inactive_file"  # in memory_stat: file cache that can be dropped at once
    oom_control = "memory.oom_control"  # has "oom_kill_disable 0" and "oom_kill 3"; takes 0 or 1
    event_control = "cgroup.event_control"  # takes "EVENTFD FILE": notify when the file changes
    memory_events = oom_control  # has "oom_kill 3": processes killed for lack of memory
    memory_trap = oom_control  # pauses a group at its limit instead of a kill
    process_limit = "pids.max"  # processes and threads

    def controller(self, file: str) -> str:
        """Key in `Hierarchy.folders` of the folder that has the file."""
        name = file.partition(".")[0]
        return "memory" if name == "cgroup" else name

    def cpu_seconds(self, usage: bytes) -> float:
        """`cpuacct.usage` is nanoseconds."""
        return int(usage) / 1e9

    def cpu_counters(self, usage: bytes, stat: bytes) -> CpuCounters:
        """`cpu.stat` of either version has "nr_periods 10" and then "nr_throttled 2", a pair per line."""
        words = stat.partition(b"nr_periods")[2].split(None, 3) or _NO_PERIODS
        return CpuCounters(int(usage) / 1e9, int(words[0]), int(words[2]))

    def throttled_seconds(self, stat: dict[str, float]) -> float:
        """`cpu.stat` has "throttled_time 34567000", nanoseconds."""
        return stat.get("throttled_time", 0.0) / 1e9

    def quota(self, text: bytes) -> tuple[int, int | None]:
        """`cpu.cfs_quota_us` is microseconds, -1 without a limit; the period is in `cpu_period`."""
        return int(text), None

    def quota_text(self, quota: int, period: int) -> str:
        """Contents for `cpu_quota`."""
        return str(quota)

    def weight_text(self, shares: float) -> str:
        """Contents for `cpu_weight`; 1024 shares are every group's default, 2 the least."""
        return str(max(2, round(shares)))

    def memory_text(self, count: int | None) -> str:
        """Contents for `memory_limit`; None is no limit."""
        return "-1" if count is None else str(count)


class V2:
    """Version 2: one folder for all controllers."""

    version = 2
    cpu_usage = cpu_stat = "cpu.stat"
    cpu_quota = "cpu.max"  # with the period
    cpu_burst = "cpu.max.burst"
    cpu_weight = "cpu.weight"
    memory_usage = "memory.current"
    memory_peak = "memory.peak"
    memory_limit = "memory.max"
    memory_high = memory_trap = "memory.high"  # above it a group is slowed down; bytes or "max"
    memory_stat = "memory.stat"
    inactive_file = "inactive_file"
    memory_events = "memory.events"
    memory_events_local = "memory.events.local"  # changes when the group was slowed down
    swap_limit = "memory.swap.max"
    io_stat = "io.stat"
    process_limit = "pids.max"
    kill = "cgroup.kill"  # takes 1: kill every process; Linux 5.14 or later
    controllers = "cgroup.controllers"  # "cpuset cpu io memory"; not in the root of the hierarchy
    subtree_control = "cgroup.subtree_control"  # controllers that groups below have; takes "+cpu +memory"

    def controller(self, file: str) -> str:
        return ""

    def cpu_seconds(self, usage: bytes) -> float:
        """`cpu.stat` begins "usage_usec 123"."""
        return int(usage.split(None, 2)[1]) / 1e6

    def cpu_counters(self, usage: bytes, stat: bytes) -> CpuCounters:
        words = stat.partition(b"nr_periods")[2].split(None, 3) or _NO_PERIODS
        return CpuCounters(int(usage.split(None, 2)[1]) / 1e6, int(words[0]), int(words[2]))

    def throttled_seconds(self, stat: dict[str, float]) -> float:
        """`cpu.stat` has "throttled_usec 34567" where the cpu controller is on."""
        return stat.get("throttled_usec", 0.0) / 1e6

    def quota(self, text: bytes) -> tuple[int, int | None]:
        """`cpu.max` is "50000 100000", quota and period in microseconds, or "max 100000" without a limit."""
        quota, period = text.split()
        return NO_QUOTA if quota == b"max" else int(quota), int(period)

    def quota_text(self, quota: int, period: int) -> str:
        return f"{'max' if quota < 0 else quota} {period}"

    def weight_text(self, shares: float) -> str:
        """Weights go from 1 to 10000 where v1's shares go from 2 to 262144; 100 is 1024 shares."""
        return str(min(10_000, max(1, round(shares * 100 / 1024))))

    def memory_text(self, count: int | None) -> str:
        return "max" if count is None else str(count)


def codec(version: int) -> V1 | V2:
    """Names and formats of that version's files."""
    return V1() if version == 1 else V2()


def quota_of(cpus: float | None, period: int) -> int:
    """Microseconds of CPU per period of so many microseconds, at least what the kernel accepts."""
    return NO_QUOTA if cpus is None else max(_LEAST_QUOTA, int(cpus * period + _NOISE))


def memory_limit(text: str | bytes) -> float | None:
    """Bytes in the contents of `memory_limit`, None without a limit: v2's "max", v1's number above 2^60."""
    return None if text.strip() in ("max", b"max") or int(text) >= _UNLIMITED else float(text)


def keyed(text: str) -> dict[str, float]:
    """Contents of a file of "name number" lines: cpu.stat, memory.stat, memory.events, memory.oom_control."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: float(pair[1]) for pair in pairs if len(pair) == 2}


def io_bytes(text: str) -> tuple[float, float]:
    """Bytes read and written: v2's `io.stat` has "8:0 rbytes=1459200 wbytes=314773504 rios=…" per device."""
    words = [word.partition("=") for word in text.split()]
    read, written = (
        sum(float(value) for key, _, value in words if key == name) for name in ("rbytes", "wbytes")
    )
    return read, written


def pids(folder: str | os.PathLike[str]) -> list[int]:
    """Processes of the group in that folder, 0 for each that is hidden; empty where the group is gone."""
    try:
        with open(os.path.join(folder, PROCS)) as file:
            return [int(line) for line in file.read().split()]
    except OSError:
        return []
